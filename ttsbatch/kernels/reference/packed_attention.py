"""Causal attention over prompts laid one behind another, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def packed_attention(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
    """As `ttsbatch.kernels.packed_attention.packed_attention`: one prompt after the other."""
    starts = torch.nonzero(position == 0).flatten().tolist()
    out = torch.empty_like(q)
    for start, end in zip(starts, [*starts[1:], len(q)], strict=True):
        own = [x[start:end].transpose(0, 1) for x in (q, k, v)]  # [H, T, D] each
        seen = F.scaled_dot_product_attention(
            own[0], _finite(own[1]), _finite(own[2]), is_causal=True, enable_gqa=True
        )
        # 0, and NaN from the first token on whose key or value is not finite.
        poison = ((own[1] - own[1]) + (own[2] - own[2])).sum(2).cumsum(1)  # [Hkv, T]
        seen = seen + poison.repeat_interleave(len(seen) // len(poison), dim=0)[..., None]
        out[start:end] = seen.transpose(0, 1)
    return out


def _finite(x: Tensor) -> Tensor:
    # The weight of what is not seen is 0, but 0 * NaN is NaN.
    return torch.where(x.isfinite(), x, 0)
