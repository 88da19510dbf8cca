"""The talker: prompts into paged KV, then one position per step in every slot.

A step's output, after the final norm, is codebook 0's logits by `head` and the predictor's input.
Source: Qwen3-TTS technical report and package `qwen-tts` 0.1.1 (talker of modeling_qwen3_tts.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.models.layers import PackedLayout, Rotary, packed_attention, rms_norm, rotate
from ttsbatch.models.protocol import PAGE_SIZE
from ttsbatch.models.qwen3_tts.config import StackConfig
from ttsbatch.models.qwen3_tts.weights import LayerWeights, StackWeights


@dataclass(frozen=True, slots=True)
class PagedKV:
    """Keys and values of every layer in pages: [L, num_pages, Hkv, PAGE_SIZE, D] each."""

    k: Tensor
    v: Tensor

    @staticmethod
    def make(
        config: StackConfig, num_pages: int, device: torch.device, dtype: torch.dtype
    ) -> PagedKV:
        """Zeroed pages (a page's unused tail is read under a mask, so it must be finite)."""
        shape = (config.num_layers, num_pages, config.num_kv_heads, PAGE_SIZE, config.head_dim)
        return PagedKV(
            torch.zeros(shape, device=device, dtype=dtype),
            torch.zeros(shape, device=device, dtype=dtype),
        )


def split_heads(
    qkv: Tensor, layer: LayerWeights, config: StackConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Packed [..., (Hq + 2 Hkv) D] as normed q [..., Hq, D], normed k and plain v [..., Hkv, D]."""
    heads = qkv.unflatten(-1, (-1, config.head_dim))
    q, k, v = heads.split([config.num_heads, config.num_kv_heads, config.num_kv_heads], dim=-2)
    eps = config.rms_norm_eps
    return rms_norm(q, layer.q_norm, eps), rms_norm(k, layer.k_norm, eps), v


def mlp(x: Tensor, layer: LayerWeights) -> Tensor:
    """down(silu(gate x) * up x)."""
    gate, up = F.linear(x, layer.gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, layer.down)


class Talker:
    """The backbone over its weights; state is the caller's."""

    def __init__(
        self, config: StackConfig, weights: StackWeights, max_positions: int, device: torch.device
    ) -> None:
        self.config, self.weights = config, weights
        self.rotary = Rotary.make(config.rope_theta, config.head_dim, max_positions, device)

    def prefill(self, x: Tensor, layout: PackedLayout, cells: Tensor, kv: PagedKV) -> Tensor:
        """Run packed prompts and write their KV.

        Args:
            x: [T, E] input of every token.
            layout: which prompt and position each is.
            cells: [T] int64 where its KV belongs: page * PAGE_SIZE + offset.
            kv: written in place.

        Returns:
            [T, E] after the final norm.
        """
        c = self.config
        page, offset = cells // PAGE_SIZE, cells % PAGE_SIZE
        cos, sin = self.rotary.cos[layout.position], self.rotary.sin[layout.position]
        for n, layer in enumerate(self.weights.layers):
            h = rms_norm(x, layer.input_norm, c.rms_norm_eps)
            q, k, v = split_heads(F.linear(h, layer.qkv), layer, c)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            kv.k[n, page, :, offset] = k
            kv.v[n, page, :, offset] = v
            x = x + F.linear(packed_attention(q, k, v, layout).flatten(1), layer.out)
            x = x + mlp(rms_norm(x, layer.post_norm, c.rms_norm_eps), layer)
        return rms_norm(x, self.weights.norm, c.rms_norm_eps)

    def step(
        self, x: Tensor, position: Tensor, kv: PagedKV, block_table: Tensor, bound: int
    ) -> Tensor:
        """Run one position of every slot.

        Args:
            x: [S, E]. position: [S] int64, where each is written and what it sees up to.
            kv: written in place. block_table: [S, P] int32 pages of each slot.
            bound: above every position.

        Returns:
            [S, E] after the final norm.
        """
        c = self.config
        block_table = block_table[:, : -(-bound // PAGE_SIZE)]
        page = block_table.gather(1, (position // PAGE_SIZE)[:, None]).squeeze(1).long()
        offset = position % PAGE_SIZE
        cos, sin = self.rotary.cos[position], self.rotary.sin[position]
        for n, layer in enumerate(self.weights.layers):
            h = rms_norm(x, layer.input_norm, c.rms_norm_eps)
            q, k, v = split_heads(F.linear(h, layer.qkv), layer, c)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            kv.k[n, page, :, offset] = k
            kv.v[n, page, :, offset] = v
            seen = paged_attention(q, kv.k[n], kv.v[n], block_table, position)
            x = x + F.linear(seen.flatten(1), layer.out)
            x = x + mlp(rms_norm(x, layer.post_norm, c.rms_norm_eps), layer)
        return rms_norm(x, self.weights.norm, c.rms_norm_eps)


def paged_attention(
    q: Tensor, k: Tensor, v: Tensor, block_table: Tensor, position: Tensor
) -> Tensor:
    """Attention of one query per slot over its pages, positions 0 to `position`.

    Args:
        q: [S, Hq, D]. k, v: [num_pages, Hkv, PAGE_SIZE, D].
        block_table: [S, P] int32. position: [S] int64.

    Returns:
        [S, Hq, D].
    """
    table = block_table.long()
    keys = k[table].transpose(1, 2).flatten(2, 3)  # [S, Hkv, P * PAGE_SIZE, D]
    values = v[table].transpose(1, 2).flatten(2, 3)
    visible = torch.arange(keys.shape[2], device=q.device) <= position[:, None]
    out = F.scaled_dot_product_attention(
        q.unsqueeze(2), keys, values, attn_mask=visible[:, None, None], enable_gqa=True
    )
    return out.squeeze(2)
