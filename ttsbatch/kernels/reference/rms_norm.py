"""RMSNorm and residual add + RMSNorm in plain torch, rounded as the published models round."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """[..., E] normed by its root mean square: statistics in f32, cast back, then the weight."""
    wide = x.to(torch.float32)
    normed = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return normed.to(x.dtype) * weight


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of `x + residual`, and that sum, rounded to the run dtype before the statistics."""
    total = x + residual
    return rms_norm(total, weight, eps), total
