"""Blocks that codec-LM families share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
