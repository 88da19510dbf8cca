"""Keyed normal numbers in plain torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ttsbatch.kernels.reference.sampler import philox_words

NOISE = 1  # last word of the counter; uniforms have 0 there
_MASK32 = 0xFFFFFFFF


def philox_normal(seed: Tensor, age: Tensor, stream: Tensor, count: int) -> Tensor:
    """As `ttsbatch.kernels.noise.philox_normal`."""
    blocks = torch.arange(-(-count // 4), device=seed.device)
    shape = (len(seed), len(blocks))
    counter = (
        (age & _MASK32)[:, None].expand(shape),
        blocks.expand(shape),
        (stream & _MASK32)[:, None].expand(shape),
        torch.full(shape, NOISE, device=seed.device),
    )
    words = philox_words(counter, ((seed & _MASK32)[:, None], ((seed >> 32) & _MASK32)[:, None]))
    u = [((w >> 8).to(torch.float32) + 0.5) * 2.0**-24 for w in words]
    pairs = []
    for first, second in ((u[0], u[1]), (u[2], u[3])):
        radius, angle = (-2 * first.log()).sqrt(), (2 * math.pi) * second
        pairs += [radius * angle.cos(), radius * angle.sin()]
    return torch.stack(pairs, dim=2).flatten(1)[:, :count].contiguous()
