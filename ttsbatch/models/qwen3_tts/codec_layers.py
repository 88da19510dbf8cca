"""Blocks that the codec's decoder and encoder share: causal attention with rotary positions.

Plain objects around prepared tensors, not `nn.Module`s: weights are packed once, and nothing here
has a shape that depends on data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Take = Callable[[str], Tensor]
"""Gives a weight by its name, on the device and in the dtype of the run."""

BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Of attention. Not cuDNN's, which plans for each new shape: with it 34 took 1.8 s on an H200."""
_SMALLEST_TABLE = 512  # covers the codec's windows, so that no graph is captured during growth


def taker(weights: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype) -> Take:
    """Look weights up by name, moved and cast."""
    return lambda name: weights[name].to(device=device, dtype=dtype)


class Positions(NamedTuple):
    """What attention needs to know of `T` positions."""

    cos: Tensor  # [T, D]
    sin: Tensor  # [T, D]
    mask: Tensor | None  # [T, T] bool, True where the query sees the key; None: all before it


class PositionTables:
    """Rotary and mask tables, made once per power of two and kept.

    A shorter table is a corner of a longer one. Captured graphs point into the tables, so one that
    was handed out is never freed or replaced.
    """

    def __init__(
        self,
        head_dim: int,
        theta: float,
        window: int | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._head_dim, self._theta, self._window = head_dim, theta, window
        self._device, self._dtype = device, dtype
        self._tables: dict[int, Positions] = {}
        self(_SMALLEST_TABLE)

    def __call__(self, num_positions: int) -> Positions:
        """Views of the tables for positions 0 to `num_positions` - 1."""
        n = num_positions
        size = max(_SMALLEST_TABLE, 1 << (n - 1).bit_length())
        if size not in self._tables:
            self._tables[size] = self._build(size)
        cos, sin, mask = self._tables[size]
        return Positions(cos[:n], sin[:n], None if mask is None else mask[:n, :n])

    def _build(self, size: int) -> Positions:
        # Angles in float64: float32 products of 4,000 positions are off by 1e-4 rad otherwise,
        # while the tables themselves are rounded to float32 just once.
        exponent = torch.arange(0, self._head_dim, 2, dtype=torch.float64) / self._head_dim
        at = torch.arange(size, dtype=torch.float64)
        angle = torch.outer(at, self._theta**-exponent).repeat(1, 2)  # [T, D]
        mask = None
        if self._window is not None:
            back = (at[:, None] - at[None, :]).to(self._device)
            mask = (back >= 0) & (back < self._window)
        cos, sin = (
            x.float().to(device=self._device, dtype=self._dtype) for x in (angle.cos(), angle.sin())
        )
        return Positions(cos, sin, mask)


def rotate(x: Tensor, positions: Positions) -> Tensor:
    """Rotary embedding, half-split: dimension i turns with i + D / 2. [B, H, T, D] -> same."""
    first, second = x.chunk(2, dim=-1)
    return x * positions.cos + torch.cat((-second, first), dim=-1) * positions.sin


class CausalAttention:
    """Self-attention over a whole clip, with packed q, k, v and the layer scale folded in."""

    def __init__(self, take: Take, layer: str, num_heads: int, num_kv_heads: int, head_dim: int):
        name = f"{layer}self_attn."
        self.qkv = torch.cat([take(f"{name}{x}_proj.weight") for x in "qkv"])
        self.out = scaled_rows(
            take(f"{name}o_proj.weight"), take(f"{layer}self_attn_layer_scale.scale")
        )
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim

    def __call__(self, x: Tensor, positions: Positions) -> Tensor:
        """[B, T, E] -> [B, T, E], already scaled for the residual sum."""
        batch, length, _ = x.shape
        heads, kv_heads = self.num_heads, self.num_kv_heads
        qkv = F.linear(x, self.qkv).view(batch, length, heads + 2 * kv_heads, self.head_dim)
        qkv = qkv.transpose(1, 2)  # [B, H, T, D]
        rotated = rotate(qkv[:, : heads + kv_heads], positions)
        with sdpa_kernel(BACKENDS):
            mixed = F.scaled_dot_product_attention(
                rotated[:, :heads],
                rotated[:, heads:],
                qkv[:, heads + kv_heads :],
                attn_mask=positions.mask,
                is_causal=positions.mask is None,
                enable_gqa=heads != kv_heads,
            )
        return F.linear(mixed.transpose(1, 2).flatten(2), self.out)


def scaled_rows(weight: Tensor, scale: Tensor) -> Tensor:
    """Fold a per-output scale into a [out, ...] weight or bias."""
    wide = weight.float() if weight.dtype == torch.bfloat16 else weight
    return (wide * scale.to(wide.dtype).view(-1, *[1] * (weight.dim() - 1))).to(weight.dtype)
