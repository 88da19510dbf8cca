"""SnakeBeta in plain torch: what the CPU runs and what the kernel must equal."""

from __future__ import annotations

import torch
from torch import Tensor


def snake_beta(x: Tensor, alpha: Tensor, inv_beta: Tensor) -> Tensor:
    """Add a periodic bump per channel: x + sin(alpha x)^2 * inv_beta, computed in float32.

    Source: Ziyin et al., "Neural networks fail to learn periodic functions", 2020; the separate
    magnitude is BigVGAN's.

    Args:
        x: [B, C, N] floating point.
        alpha: [C] f32, the frequency (already out of its logarithm).
        inv_beta: [C] f32, one over the magnitude.

    Returns:
        [B, C, N] in the dtype of `x`.
    """
    wide = x.float()
    bump = torch.mul(wide, alpha[:, None]).sin_().square_()
    return torch.addcmul(wide, bump, inv_beta[:, None]).to(x.dtype)
