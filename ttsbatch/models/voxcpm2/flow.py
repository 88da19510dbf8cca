"""The times of the Euler solver, rounded as the official path rounds them.

Officially every number of the time axis is of the model's dtype: in bfloat16 the steps, the time
carried from step to step, and even the integers behind the sinusoid are rounded, so a time
embedding in float32 would be another model's. Only a few times exist: they are made once, on the
CPU, and never read back.
Source: `unified_cfm.py` and `local_dit_v2.py` of package `voxcpm` 2.0.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

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


FEWEST_STEPS = 2
"""One step is a still one: the patch would be the noise itself."""


def sinusoids(most_steps: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The sinusoids [N + 1, K, width] and step widths [N + 1, K] f32 that a `Schedule` is made of.

    Rows below FEWEST_STEPS are zeros.
    """
    counts = range(FEWEST_STEPS, most_steps + 1)
    num_evaluations = max(n - num_still(n) for n in counts)
    embedded = torch.zeros(most_steps + 1, num_evaluations, width, dtype=dtype)
    widths = torch.zeros(most_steps + 1, num_evaluations)
    for n in counts:
        times, dts = (x[num_still(n) :] for x in walk(n, dtype))
        embedded[n, : len(times)] = sinusoid(times, width)
        widths[n, : len(times)] = dts.float()
    return embedded, widths
