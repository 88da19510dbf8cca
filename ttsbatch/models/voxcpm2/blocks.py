"""What the four transformer stacks share: rotary angles, the layer's halves, the local stack.

Source: MiniCPM4 modules of package `voxcpm` 2.0.3; LongRoPE (Ding et al., 2024).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.kernels.rms_norm import add_rms_norm, rms_norm
from ttsbatch.models.decoder import StackWeights, mlp
from ttsbatch.models.layers import Rotary
from ttsbatch.models.stack import StackConfig
from ttsbatch.models.voxcpm2.config import RopeConfig
from ttsbatch.models.voxcpm2.weights import Linear


def long_rope(config: RopeConfig, num_positions: int, device: torch.device) -> Rotary:
    """Tables of position / factor * theta^(-2i/D), cosines and sines times the config's scale."""
    half = len(config.factors)
    steps = torch.arange(0, 2 * half, 2, dtype=torch.float32, device=device) / (2 * half)
    factors = torch.tensor(config.factors, dtype=torch.float32, device=device)
    position = torch.arange(num_positions, dtype=torch.float32, device=device)
    angles = torch.outer(position, 1.0 / factors) * (1.0 / config.theta**steps)
    return Rotary(angles.cos() * config.scale, angles.sin() * config.scale)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half-split rotary in f32, rounded once: [..., D] by the angles [..., D/2]."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def silu_between(x: Tensor, first: Linear, second: Linear) -> Tensor:
    """Linear, SiLU, linear."""
    return F.linear(F.silu(F.linear(x, *first)), *second)


class LocalStack:
    """Bidirectional attention within the few tokens of each row; no cache."""

    def __init__(self, config: StackConfig, weights: StackWeights, rotary: Rotary, num_tokens: int):
        self.config, self.weights = config, weights
        self._cos = rotary.cos[:num_tokens, None]  # [T, 1, D/2]
        self._sin = rotary.sin[:num_tokens, None]

    def __call__(self, x: Tensor) -> Tensor:
        """[B, T, E] -> [B, T, E] after the final norm; T is fixed."""
        c, eps = self.config, self.config.rms_norm_eps
        h = rms_norm(x, self.weights.layers[0].input_norm, eps)
        for n, layer in enumerate(self.weights.layers):
            seen = F.linear(self._attend(F.linear(h, layer.qkv), c), layer.out)
            h, x = add_rms_norm(seen, x, layer.post_norm, eps)
            h, x = add_rms_norm(mlp(h, layer), x, self.weights.norm_after(n), eps)
        return h

    def _attend(self, qkv: Tensor, c: StackConfig) -> Tensor:
        heads = qkv.unflatten(-1, (-1, c.head_dim))  # [B, T, H, D]
        turned = rotate(heads[:, :, : -c.num_kv_heads], self._cos, self._sin)
        q, k, v = (
            x.transpose(1, 2)
            for x in (
                turned[:, :, : c.num_heads],
                turned[:, :, c.num_heads :],
                heads[:, :, -c.num_kv_heads :],
            )
        )
        mixed = F.scaled_dot_product_attention(q, k, v, enable_gqa=c.num_heads != c.num_kv_heads)
        return mixed.transpose(1, 2).flatten(2)
