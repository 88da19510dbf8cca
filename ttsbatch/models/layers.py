"""Blocks that codec-LM families share: rotary tables, prompts packed one behind another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


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
