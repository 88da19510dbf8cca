"""Rotary and KV store in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def rope_store(
    qkv: Tensor,
    tables: tuple[Tensor, Tensor] | None,
    positions: Tensor,
    block_table: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
) -> Tensor:
    """As `ttsbatch.kernels.rope_store.rope_store`."""
    _, num_kv_heads, page_size, head_dim = k_pool.shape
    heads = qkv.unflatten(1, (-1, head_dim))  # [S, H, D]
    turned, v = heads[:, :-num_kv_heads], heads[:, -num_kv_heads:]
    place = positions.to(torch.int64)
    if tables is not None:
        cos, sin = (t[place][:, None] for t in tables)
        first, second = turned.float().chunk(2, dim=-1)
        both = [first * cos - second * sin, second * cos + first * sin]
        turned = torch.cat(both, dim=-1).to(qkv.dtype)
    pages = block_table.gather(1, (place // page_size)[:, None])[:, 0].to(torch.int64)
    k_pool[pages, :, place % page_size] = turned[:, -num_kv_heads:]
    v_pool[pages, :, place % page_size] = v
    q: Tensor = turned[:, :-num_kv_heads].contiguous()
    return q
