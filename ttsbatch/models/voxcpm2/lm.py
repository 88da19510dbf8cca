"""A language model over paged KV: prompts in packed, then one position per step in every slot.

Base and residual LM are two of these with the same pages: their rows are equally long. The
residual one has no rotary table, and no other sign of position.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.kernels.packed_attention import packed_attention
from ttsbatch.kernels.paged_attention import paged_attention
from ttsbatch.kernels.rms_norm import add_rms_norm, rms_norm
from ttsbatch.kernels.rope_store import rope_store
from ttsbatch.models.layers import PagedKV, Rotary
from ttsbatch.models.protocol import PAGE_SIZE
from ttsbatch.models.voxcpm2.blocks import mlp
from ttsbatch.models.voxcpm2.config import StackConfig
from ttsbatch.models.voxcpm2.weights import StackWeights


class PagedLM:
    """The stack over its weights; state is the caller's."""

    def __init__(self, config: StackConfig, weights: StackWeights, rotary: Rotary | None) -> None:
        self.config, self.weights, self.rotary = config, weights, rotary

    def new_kv(self, num_pages: int, device: torch.device, dtype: torch.dtype) -> PagedKV:
        """Zeroed pages."""
        c = self.config
        return PagedKV.make(c.num_layers, c.num_kv_heads, c.head_dim, num_pages, device, dtype)

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
            q = rope_store(qkv, self.rotary_tables, position, block_table, kv.k[n], kv.v[n])
            k = kv.k[n][page, :, offset]
            v = qkv.unflatten(1, (-1, c.head_dim))[:, -c.num_kv_heads :]
            seen = packed_attention(q, k, v, position).flatten(1)
            h, x = add_rms_norm(F.linear(seen, layer.out), x, layer.post_norm, eps)
            h, x = add_rms_norm(mlp(h, layer), x, self.weights.norm_after(n), eps)
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
            qkv = F.linear(h, layer.qkv)
            q = rope_store(qkv, self.rotary_tables, position, block_table, kv.k[n], kv.v[n])
            seen = paged_attention(q, kv.k[n], kv.v[n], block_table, position, bound)
            h, x = add_rms_norm(F.linear(seen.flatten(1), layer.out), x, layer.post_norm, eps)
            h, x = add_rms_norm(mlp(h, layer), x, self.weights.norm_after(n), eps)
        return h

    @property
    def rotary_tables(self) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines, where positions are told by them."""
        return None if self.rotary is None else (self.rotary.cos, self.rotary.sin)
