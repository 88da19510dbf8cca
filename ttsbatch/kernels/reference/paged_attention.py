"""Decode attention over a paged cache in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def paged_attention(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    block_table: Tensor,
    positions: Tensor,
    max_length: int,
) -> Tensor:
    """As `ttsbatch.kernels.paged_attention.paged_attention`: gathers up to `max_length` keys."""
    num_slots, num_q_heads, head_dim = q.shape
    _, num_kv_heads, page_size, _ = k_pool.shape
    num_pages = -(-max_length // page_size)
    pages = block_table[:, :num_pages].to(torch.int64)
    keys = k_pool[pages].transpose(1, 2).flatten(2, 3)[:, :, None].to(torch.float32)
    values = v_pool[pages].transpose(1, 2).flatten(2, 3)[:, :, None].to(torch.float32)
    # keys, values: [S, Hkv, 1, L, D]; what lies past a slot's length may be anything, even NaN
    grouped = q.view(num_slots, num_kv_heads, -1, 1, head_dim).to(torch.float32)
    index = torch.arange(keys.shape[3], device=q.device)
    past = (index > positions[:, None]).view(num_slots, 1, 1, 1, -1)
    scores = (grouped @ keys.transpose(-1, -2)) * head_dim**-0.5
    weights = scores.masked_fill(past, -torch.inf).softmax(dim=-1)
    mixed: Tensor = weights @ values.masked_fill(past.transpose(-1, -2), 0)
    return mixed.to(q.dtype).view(num_slots, num_q_heads, head_dim)
