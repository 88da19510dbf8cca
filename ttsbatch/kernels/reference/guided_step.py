"""Projected guidance and a step of the Euler solver, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

GUARD = 1e-8  # keeps the projection finite where the unguided velocity is zero


def guided_step(x: Tensor, velocity: Tensor, strength: Tensor, width: Tensor) -> Tensor:
    """As `ttsbatch.kernels.guided_step.guided_step`."""
    patches = x[:, : len(strength)]
    heard, unheard = velocity.chunk(2, dim=1)
    v = guide(heard, unheard, strength[:, None])
    moved = patches - (width[:, None] * v.float()).to(x.dtype)
    return torch.cat([moved, moved], dim=1)


def guide(heard: Tensor, unheard: Tensor, strength: Tensor) -> Tensor:
    """The velocity beyond the part of `heard` that lies along `unheard`; [P, S, C] each.

    Args:
        heard: with what the language models say.
        unheard: without; same dtype, which every operation rounds to.
        strength: [S, 1] f32.
    """
    dot = (heard * unheard).sum(dim=(0, 2))
    square = unheard.square().sum(dim=(0, 2)) + GUARD
    along = unheard * (dot / square)[:, None]
    return along + (strength * (heard - along).float()).to(heard.dtype)
