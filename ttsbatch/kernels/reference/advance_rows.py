"""What a frame changes in the rows' own state, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def advance_rows(
    codes: Tensor,
    ended: Tensor,
    active: Tensor,
    age: Tensor,
    cap: Tensor,
    finish: Tensor,
    kept: Tensor,
    if_ended: int,
    if_full: int,
) -> None:
    """As `ttsbatch.kernels.advance_rows.advance_rows`."""
    made = active & ~ended
    spare = kept.shape[1] - 1  # where slots that made no frame write
    place = torch.where(made, age.clamp(max=spare), spare)
    place = place[:, None, None].expand(-1, 1, kept.shape[2])
    kept.scatter_(1, place, codes.to(kept.dtype)[:, None])
    age.add_(made)
    full = made & (age >= cap)
    finish.add_((active & ended) * if_ended + full * if_full)
    active.logical_and_(made & ~full)
