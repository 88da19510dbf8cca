"""The talker: prompts into paged KV, then one position per step in every slot.

A step's output, after the final norm, is codebook 0's logits by `head` and the predictor's input.
Source: Qwen3-TTS technical report and package `qwen-tts` 0.1.1 (talker of modeling_qwen3_tts.py).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.kernels.packed_attention import packed_attention
from ttsbatch.kernels.paged_attention import paged_attention
from ttsbatch.kernels.qk_norm_rope import qk_norm_rope
from ttsbatch.kernels.rms_norm import add_rms_norm, rms_norm
from ttsbatch.kernels.silu_mul import silu_mul
from ttsbatch.models.layers import PagedKV, Rotary
from ttsbatch.models.protocol import PAGE_SIZE
from ttsbatch.models.qwen3_tts.config import StackConfig
from ttsbatch.models.qwen3_tts.weights import LayerWeights, StackWeights


def mlp(h: Tensor, layer: LayerWeights) -> Tensor:
    """down(silu(gate h) * up h)."""
    return F.linear(silu_mul(F.linear(h, layer.gate_up)), layer.down)


class Talker:
    """The backbone over its weights; state is the caller's."""

    def __init__(
        self, config: StackConfig, weights: StackWeights, max_positions: int, device: torch.device
    ) -> None:
        self.config, self.weights = config, weights
        self.rotary = Rotary.make(config.rope_theta, config.head_dim, max_positions, device)

    def prefill(self, x: Tensor, position: Tensor, kv: PagedKV, block_table: Tensor) -> Tensor:
        """Run packed prompts and write their KV.

        Args:
            x: [T, E] input of every token.
            position: [T] int64 its place in its prompt; a 0 begins a prompt.
            kv: written in place.
            block_table: [T, P] int32 pages of each token's row.

        Returns:
            [T, E] after the final norm.
        """
        c, eps = self.config, self.config.rms_norm_eps
        page = block_table.gather(1, (position // PAGE_SIZE)[:, None])[:, 0].long()
        offset = position % PAGE_SIZE
        h = rms_norm(x, self.weights.layers[0].input_norm, eps)
        for n, layer in enumerate(self.weights.layers):
            qkv = F.linear(h, layer.qkv)
            q = qk_norm_rope(
                qkv,
                layer.q_norm,
                layer.k_norm,
                self.rotary.cos,
                self.rotary.sin,
                position,
                block_table,
                kv.k[n],
                kv.v[n],
                eps,
            )
            k = kv.k[n][page, :, offset]
            v = qkv.unflatten(1, (-1, c.head_dim))[:, -c.num_kv_heads :]
            seen = packed_attention(q, k, v, position).flatten(1)
            h, x = add_rms_norm(F.linear(seen, layer.out), x, layer.post_norm, eps)
            h, x = add_rms_norm(mlp(h, layer), x, self._norm_after(n), eps)
        return h

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
        eps = self.config.rms_norm_eps
        h = rms_norm(x, self.weights.layers[0].input_norm, eps)
        for n, layer in enumerate(self.weights.layers):
            q = qk_norm_rope(
                F.linear(h, layer.qkv),
                layer.q_norm,
                layer.k_norm,
                self.rotary.cos,
                self.rotary.sin,
                position,
                block_table,
                kv.k[n],
                kv.v[n],
                eps,
            )
            seen = paged_attention(q, kv.k[n], kv.v[n], block_table, position, bound)
            h, x = add_rms_norm(F.linear(seen.flatten(1), layer.out), x, layer.post_norm, eps)
            h, x = add_rms_norm(mlp(h, layer), x, self._norm_after(n), eps)
        return h

    def _norm_after(self, n: int) -> Tensor:
        """The norm that follows layer n: the next layer's first, or the final one."""
        layers = self.weights.layers
        return layers[n + 1].input_norm if n + 1 < len(layers) else self.weights.norm
