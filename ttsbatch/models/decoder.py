"""A decoder-only transformer over paged KV: prompts in packed, then one position a step per slot.

RMSNorm before attention and MLP, grouped queries, SiLU-gated MLP, no biases. What families do
otherwise lies between the qkv projection and the attention, in `Turn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.kernels.packed_attention import packed_attention
from ttsbatch.kernels.paged_attention import paged_attention
from ttsbatch.kernels.rms_norm import add_rms_norm, rms_norm
from ttsbatch.kernels.silu_mul import silu_mul
from ttsbatch.models.layers import PagedKV
from ttsbatch.models.protocol import PAGE_SIZE
from ttsbatch.models.stack import StackConfig


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; matrices are [out, in]."""

    input_norm: Tensor  # [E]
    qkv: Tensor  # [(Hq + 2 Hkv) D, E]
    out: Tensor  # [E, Hq D]
    post_norm: Tensor  # [E]
    gate_up: Tensor  # [2 I, E]
    down: Tensor  # [E, I]
    qk_norm: tuple[Tensor, Tensor] | None = None  # [D] of q, [D] of k, where heads are normed


@dataclass(frozen=True, slots=True)
class StackWeights:
    """The layers and the final norm."""

    layers: tuple[LayerWeights, ...]
    norm: Tensor  # [E]

    def norm_after(self, n: int) -> Tensor:
        """The norm that follows layer n: the next layer's first, or the final one."""
        return self.layers[n + 1].input_norm if n + 1 < len(self.layers) else self.norm


def pack_stack(
    get: Callable[[str], Tensor], prefix: str, num_layers: int, has_qk_norm: bool = False
) -> StackWeights:
    """The tensors `prefix`layers.N.… and `prefix`norm.weight, qkv and gate-up as one matrix each.

    `get` gives a tensor by its name, on the device in the run dtype.
    """
    layers = []
    for n in range(num_layers):
        layer = f"{prefix}layers.{n}."
        attention = f"{layer}self_attn."
        qk_norm = None
        if has_qk_norm:
            qk_norm = get(f"{attention}q_norm.weight"), get(f"{attention}k_norm.weight")
        layers.append(
            LayerWeights(
                input_norm=get(f"{layer}input_layernorm.weight"),
                qkv=torch.cat([get(f"{attention}{x}_proj.weight") for x in "qkv"]),
                out=get(f"{attention}o_proj.weight"),
                post_norm=get(f"{layer}post_attention_layernorm.weight"),
                gate_up=torch.cat([get(f"{layer}mlp.{x}_proj.weight") for x in ("gate", "up")]),
                down=get(f"{layer}mlp.down_proj.weight"),
                qk_norm=qk_norm,
            )
        )
    return StackWeights(tuple(layers), get(f"{prefix}norm.weight"))


Turn = Callable[[Tensor, LayerWeights, Tensor, Tensor, Tensor, Tensor], Tensor]
"""`turn(qkv, layer, position, block_table, k_pool, v_pool)`: q [T, Hq, D] ready for attention, with
k and v stored in their pages. Arguments as those of `kernels/rope_store.py`."""


def mlp(h: Tensor, layer: LayerWeights) -> Tensor:
    """down(silu(gate h) * up h)."""
    return F.linear(silu_mul(F.linear(h, layer.gate_up)), layer.down)


class PagedDecoder:
    """The stack over its weights; state is the caller's."""

    def __init__(self, config: StackConfig, weights: StackWeights, turn: Turn) -> None:
        self.config, self.weights, self._turn = config, weights, turn

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
        c = self.config
        page = block_table.gather(1, (position // PAGE_SIZE)[:, None])[:, 0].long()
        offset = position % PAGE_SIZE

        def attend(q: Tensor, qkv: Tensor, n: int) -> Tensor:
            k = kv.k[n][page, :, offset]
            v = qkv.unflatten(1, (-1, c.head_dim))[:, -c.num_kv_heads :]
            return packed_attention(q, k, v, position)

        return self._run(x, position, kv, block_table, attend)

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

        def attend(q: Tensor, qkv: Tensor, n: int) -> Tensor:
            return paged_attention(q, kv.k[n], kv.v[n], block_table, position, bound)

        return self._run(x, position, kv, block_table, attend)

    def _run(
        self,
        x: Tensor,
        position: Tensor,
        kv: PagedKV,
        block_table: Tensor,
        attend: Callable[[Tensor, Tensor, int], Tensor],
    ) -> Tensor:
        eps = self.config.rms_norm_eps
        h = rms_norm(x, self.weights.layers[0].input_norm, eps)
        for n, layer in enumerate(self.weights.layers):
            qkv = F.linear(h, layer.qkv)
            q = self._turn(qkv, layer, position, block_table, kv.k[n], kv.v[n])
            seen = attend(q, qkv, n).flatten(1)
            h, x = add_rms_norm(F.linear(seen, layer.out), x, layer.post_norm, eps)
            h, x = add_rms_norm(mlp(h, layer), x, self.weights.norm_after(n), eps)
        return h
