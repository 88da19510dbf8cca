"""Rows of an embedding table and their RMSNorm, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.reference.rms_norm import rms_norm


def embed_rms_norm(
    ids: Tensor, table: Tensor, weight: Tensor, eps: float, before: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """As `ttsbatch.kernels.embed_rms_norm.embed_rms_norm`."""
    x = table[ids][:, None]
    if before is not None:
        x = torch.cat([before[:, None], x], dim=1)
    return rms_norm(x, weight, eps), x
