"""The times of the Euler solver, rounded as the official path rounds them.

Officially every number of the time axis is of the model's dtype: in bfloat16 the steps, the time
carried from step to step, and even the integers behind the sinusoid are rounded, so a time
embedding in float32 would be another model's. Only a few times exist: they are made once, on the
CPU, and never read back.
Source: `unified_cfm.py` and `local_dit_v2.py` of package `voxcpm` 2.0.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.types import FEWEST_STEPS

TIME_SCALE = 1000
ZERO_SHARE = 0.04  # of the points in time: steps of zero velocity at the start (CFG-Zero*)


def time_points(num_steps: int, dtype: torch.dtype) -> Tensor:
    """The n + 1 times from 1 to 0, closer to each other near 1."""
    s = torch.linspace(1, 0, num_steps + 1, dtype=dtype)
    return s + (torch.cos(torch.pi / 2 * s) - 1 + s)


def num_still(num_steps: int) -> int:
    """Steps at the start whose velocity is zero: the patch stays as it is."""
    return max(1, int((num_steps + 1) * ZERO_SHARE))


def walk(num_steps: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Time and width of every step, [n] each: the time is carried on, not looked up."""
    points = time_points(num_steps, dtype)
    t, dt = points[0], points[0] - points[1]
    times, widths = [], []
    for n in range(1, num_steps + 1):
        times.append(t)
        widths.append(dt)
        t = t - dt
        if n < num_steps:
            dt = t - points[n + 1]
    return torch.stack(times), torch.stack(widths)


def sinusoid(t: Tensor, width: int) -> Tensor:
    """[n] times to [n, width]: sines, then cosines, all in the dtype of `t`."""
    half = width // 2
    rate = torch.exp(torch.arange(half, dtype=t.dtype) * -(math.log(10000) / (half - 1)))
    angle = TIME_SCALE * t[:, None] * rate[None]
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the solver's evaluations need to know, for every number of steps up to the most.

    A row of fewer steps stands still in the evaluations that it does not need.
    """

    time: Tensor  # [N + 1, K, E] in the run dtype: embeddings, by number of steps and evaluation
    width: Tensor  # [N + 1, K] f32 that holds values of the run dtype; 0: nothing moves

    @property
    def num_evaluations(self) -> int:
        """Network evaluations per patch."""
        return self.width.shape[1]


def make_schedule(
    most_steps: int,
    width: int,
    dtype: torch.dtype,
    device: torch.device,
    embed: Callable[[Tensor], Tensor],
) -> Schedule:
    """The tables for rows of up to `most_steps` steps; rows below FEWEST_STEPS are zeros.

    Every number of steps is embedded apart, as a product's last bits depend on its shape: what a
    row hears does not depend on the steps of others.

    Args:
        most_steps: FEWEST_STEPS or more.
        width: of a sinusoid.
        dtype: of the run.
        device: for the tables.
        embed: [n, width] sinusoids to time tokens [n, E].
    """
    counts = range(FEWEST_STEPS, most_steps + 1)
    num_evaluations = max(n - num_still(n) for n in counts)
    tokens, widths = [], torch.zeros(most_steps + 1, num_evaluations)
    for n in counts:
        times, dts = (x[num_still(n) :] for x in walk(n, dtype))
        embedded = embed(sinusoid(times, width).to(device))
        tokens.append(F.pad(embedded, (0, 0, 0, num_evaluations - len(times))))
        widths[n, : len(times)] = dts.float()
    missing = torch.zeros_like(tokens[0])
    return Schedule(torch.stack([missing] * FEWEST_STEPS + tokens), widths.to(device))
