"""q/k norm, rotary and KV store in plain torch, rounded as separate operations would."""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.reference.rms_norm import rms_norm


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half-split rotary: pairs (i, i + D/2) turn by the angle i of their position.

    Args:
        x: [..., D].
        cos: [..., D/2] broadcast against `x`; cast to its dtype before use.
        sin: like `cos`.
    """
    first, second = x.chunk(2, dim=-1)
    c, s = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1)


def qk_norm_rope(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    block_table: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    eps: float,
) -> Tensor:
    """As `ttsbatch.kernels.qk_norm_rope.qk_norm_rope`."""
    num_slots = qkv.shape[0]
    _, num_kv_heads, page_size, head_dim = k_pool.shape
    heads = qkv.view(num_slots, -1, head_dim)
    q, k, v = heads.split(
        [heads.shape[1] - 2 * num_kv_heads, num_kv_heads, num_kv_heads], dim=1
    )  # [S, H, D] each
    place = positions.to(torch.int64)
    c, s = cos[place][:, None], sin[place][:, None]
    q = rotate(rms_norm(q, q_weight, eps), c, s)
    k = rotate(rms_norm(k, k_weight, eps), c, s)
    pages = block_table.gather(1, (place // page_size)[:, None])[:, 0].to(torch.int64)
    k_pool[pages, :, place % page_size] = k
    v_pool[pages, :, place % page_size] = v
    return q
