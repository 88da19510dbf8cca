"""What a frame changes in the rows' own state, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def advance_rows(
    values: Tensor,
    ended: Tensor,
    active: Tensor,
    age: Tensor,
    cap: Tensor,
    finish: Tensor,
    kept: Tensor,
    if_ended: int,
    if_full: int,
    keep_last: bool = False,
) -> None:
    """As `ttsbatch.kernels.advance_rows.advance_rows`."""
    goes_on = active & ~ended
    made = active if keep_last else goes_on
    spare = kept.shape[1] - 1  # where slots that made no frame write
    place = torch.where(made, age.clamp(max=spare), spare)
    place = place[:, None, None].expand(-1, 1, kept.shape[2])
    kept.scatter_(1, place, values.to(kept.dtype)[:, None])
    age.add_(made)
    full = goes_on & (age >= cap)
    finish.add_((active & ended) * if_ended + full * if_full)
    active.logical_and_(goes_on & ~full)
