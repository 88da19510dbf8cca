"""The code predictor's attention over its tiny cache, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.reference.qk_norm_rope import rotate
from ttsbatch.kernels.reference.rms_norm import rms_norm


def predictor_attention(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    position: int,
    k_cache: Tensor,
    v_cache: Tensor,
    eps: float,
) -> Tensor:
    """As `ttsbatch.kernels.predictor_attention.predictor_attention`."""
    num_slots, num_kv_heads, _, head_dim = k_cache.shape
    num_new = 1 if qkv.dim() == 2 else qkv.shape[1]
    end = position + num_new
    heads = qkv.view(num_slots, num_new, -1, head_dim)
    q, k, v = heads.split(
        [heads.shape[2] - 2 * num_kv_heads, num_kv_heads, num_kv_heads], dim=2
    )  # [S, T, H, D] each
    c, s = cos[position:end, None], sin[position:end, None]
    q = rotate(rms_norm(q, q_weight, eps), c, s)
    k_cache[:, :, position:end] = rotate(rms_norm(k, k_weight, eps), c, s).transpose(1, 2)
    v_cache[:, :, position:end] = v.transpose(1, 2)

    grouped = q.transpose(1, 2).reshape(num_slots, num_kv_heads, -1, num_new, head_dim)
    keys = k_cache[:, :, None, :end].to(torch.float32)
    values = v_cache[:, :, None, :end].to(torch.float32)
    scores = grouped.to(torch.float32) @ keys.transpose(-1, -2) * head_dim**-0.5
    future = torch.arange(end, device=qkv.device) > torch.arange(
        position, end, device=qkv.device
    ).unsqueeze(1)
    mixed = scores.masked_fill(future, -torch.inf).softmax(dim=-1) @ values  # [S, Hkv, G, T, D]
    out: Tensor = mixed.to(qkv.dtype).flatten(1, 2).transpose(1, 2)  # [S, T, Hq, D]
    return out.reshape(*qkv.shape[:-1], -1)
