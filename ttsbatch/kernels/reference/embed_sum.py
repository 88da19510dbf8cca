"""The sum of a frame's code embeddings and its text vector, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def embed_sum(
    codes: Tensor,
    table: Tensor,
    offsets: Tensor,
    text_ids: Tensor | None = None,
    text_table: Tensor | None = None,
) -> Tensor:
    """As `ttsbatch.kernels.embed_sum.embed_sum`."""
    picked = table[codes.to(torch.int64) + offsets]  # [S, Q, E]
    total = picked.to(torch.float32).sum(dim=1).to(table.dtype)
    if text_ids is None or text_table is None:
        return total
    return total + text_table[text_ids.to(torch.int64)]
