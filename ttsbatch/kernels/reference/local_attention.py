"""Rotary and attention within rows of a few tokens, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def local_attention(q: Tensor, kv: Tensor, cos: Tensor, sin: Tensor, first: int = 0) -> Tensor:
    """As `ttsbatch.kernels.local_attention.local_attention`."""
    head_dim, asked = 2 * cos.shape[1], slice(first, first + len(q))
    keys, values = kv.unflatten(2, (2, -1, head_dim)).unbind(2)  # [T, B, Hkv, D] each
    queries = _turn(q.unflatten(2, (-1, head_dim)), cos[asked], sin[asked])
    mixed = F.scaled_dot_product_attention(
        queries.permute(1, 2, 0, 3),  # [B, Hq, N, D]
        _turn(keys, cos, sin).permute(1, 2, 0, 3),
        values.permute(1, 2, 0, 3),
        enable_gqa=True,
    )
    return mixed.permute(2, 0, 1, 3).flatten(2)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half-split rotary in f32, rounded once: [T, B, H, D] by the angles [T, D/2]."""
    c, s = cos[:, None, None], sin[:, None, None]
    one, other = x.float().chunk(2, dim=-1)
    return torch.cat([one * c - other * s, other * c + one * s], dim=-1).to(x.dtype)
