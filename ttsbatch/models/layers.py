"""Blocks that codec-LM families share: RMSNorm, rotary positions, packed causal attention.

Statistics, angles and softmax are fp32; results are rounded to the run dtype where the reference
models round.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last axis: fp32 statistics, rounded to x's dtype, then times `weight`.

    Source: Qwen3 (transformers 4.57, modeling_qwen3.py).
    """
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary angles of every position: cos and sin [max_positions, D/2] f32."""

    cos: Tensor
    sin: Tensor

    @staticmethod
    def make(theta: float, head_dim: int, max_positions: int, device: torch.device) -> Rotary:
        """Tables for frequencies theta^(-2i/D). Source: RoFormer (Su et al., 2021)."""
        steps = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
        angles = torch.outer(
            torch.arange(max_positions, dtype=torch.float32, device=device), 1.0 / theta**steps
        )
        return Rotary(angles.cos(), angles.sin())


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half-split rotation of x [..., H, D] by cos, sin [..., D/2], in x's dtype."""
    cos, sin = cos.to(x.dtype).unsqueeze(-2), sin.to(x.dtype).unsqueeze(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Where the tokens of several prompts, laid one behind another, belong.

    `row`, `position`: [T] int64 prompt of each token and its position there.
    """

    row: Tensor
    position: Tensor
    num_rows: int
    longest: int

    @staticmethod
    def make(lengths: list[int], device: torch.device) -> PackedLayout:
        """The layout of prompts of the given lengths."""
        counts = torch.tensor(lengths)
        row = torch.repeat_interleave(torch.arange(len(lengths)), counts)
        starts = torch.cumsum(counts, 0) - counts
        position = torch.arange(int(counts.sum())) - starts[row]
        return PackedLayout(row.to(device), position.to(device), len(lengths), max(lengths))


def packed_attention(q: Tensor, k: Tensor, v: Tensor, layout: PackedLayout) -> Tensor:
    """Causal attention of each prompt over itself.

    Prompts are padded on the right to the longest, which causal attention never sees.

    Args:
        q: [T, Hq, D]. k, v: [T, Hkv, D]; Hq a multiple of Hkv.
        layout: which token is whose.

    Returns:
        [T, Hq, D] in q's dtype.
    """

    def padded(x: Tensor) -> Tensor:
        out = x.new_zeros(layout.num_rows, layout.longest, *x.shape[1:])
        out[layout.row, layout.position] = x
        return out.transpose(1, 2)  # [R, H, T, D]

    out = F.scaled_dot_product_attention(
        padded(q), padded(k), padded(v), is_causal=True, enable_gqa=True
    )
    return out.transpose(1, 2)[layout.row, layout.position]
