"""The networks of a VoxCPM2 step in plain torch, layer by layer, and what of them is compiled.

Kernels registered as ours are cannot be traced by Inductor, so that what is compiled is this. It
computes what the family's own modules compute, from the same weights; the tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from recipes.bench.plain_torch import kernels_on
from ttsbatch.kernels.reference import paged_attention, rms_norm, rope_store, silu_mul
from ttsbatch.models.decoder import LayerWeights, PagedDecoder, StackWeights
from ttsbatch.models.layers import PagedKV
from ttsbatch.models.protocol import PAGE_SIZE
from ttsbatch.models.stack import StackConfig
from ttsbatch.models.voxcpm2.blocks import long_rope
from ttsbatch.models.voxcpm2.flow import Schedule
from ttsbatch.models.voxcpm2.model import VoxCPM2, VoxCPM2State
from ttsbatch.models.voxcpm2.network import Network

Compiled = Literal["nothing", "layers", "forward", "solve"]
"""Nothing; each layer of all stacks; one evaluation of LocDiT; all evaluations of a patch."""

KEPT = ("noise", "advance_rows")
"""Kernels of the engine, not of the network: they stay."""

GUARD = 1e-8
Function = Callable[..., Any]


def layer_tensors(layer: LayerWeights) -> tuple[Tensor, ...]:
    """The weights in the order in which layers take them."""
    return (
        layer.input_norm,
        layer.qkv,
        layer.out,
        layer.post_norm,
        layer.gate_up,
        layer.down,
    )


def finish(x: Tensor, seen: Tensor, weights: tuple[Tensor, ...], eps: float) -> Tensor:
    """A layer from its attention's output on."""
    _, _, out, post_norm, gate_up, down = weights
    x = x + F.linear(seen, out)
    h = rms_norm.rms_norm(x, post_norm, eps)
    return x + F.linear(silu_mul.silu_mul(F.linear(h, gate_up)), down)


def local_layer(
    x: Tensor, weights: tuple[Tensor, ...], cos: Tensor, sin: Tensor, kv_heads: int, eps: float
) -> Tensor:
    """[B, T, E]: every token hears all of its row; `cos` and `sin` are [T, 1, D/2]."""
    h = F.linear(rms_norm.rms_norm(x, weights[0], eps), weights[1])
    heads = h.unflatten(-1, (-1, 2 * cos.shape[-1]))
    first, second = heads[:, :, :-kv_heads].float().chunk(2, dim=-1)
    both = [first * cos - second * sin, second * cos + first * sin]
    turned = torch.cat(both, dim=-1).to(x.dtype)
    q, k = turned[:, :, :-kv_heads], turned[:, :, -kv_heads:]
    q, k, v = (t.transpose(1, 2) for t in (q, k, heads[:, :, -kv_heads:]))
    mixed = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return finish(x, mixed.transpose(1, 2).flatten(2), weights, eps)


def paged_layer(
    x: Tensor,
    weights: tuple[Tensor, ...],
    tables: tuple[Tensor, Tensor] | None,
    position: Tensor,
    block_table: Tensor,
    k: Tensor,
    v: Tensor,
    bound: int,
    eps: float,
) -> Tensor:
    """[S, E]: one position of every slot, which hears its pages."""
    qkv = F.linear(rms_norm.rms_norm(x, weights[0], eps), weights[1])
    q = rope_store.rope_store(qkv, tables, position, block_table, k, v)
    seen = paged_attention.paged_attention(q, k, v, block_table, position, bound)
    return finish(x, seen.flatten(1), weights, eps)


class PlainLM(PagedDecoder):
    """A language model by layers, with the angles of its positions, if it is told them."""

    def __init__(
        self, lm: PagedDecoder, tables: tuple[Tensor, Tensor] | None, layer: Function
    ) -> None:
        super().__init__(lm.config, lm.weights, lm._turn)
        self._tables, self._layer = tables, layer

    def step(
        self, x: Tensor, position: Tensor, kv: PagedKV, block_table: Tensor, bound: int
    ) -> Tensor:
        """As `PagedDecoder.step`."""
        eps, tables = self.config.rms_norm_eps, self._tables
        for n, layer in enumerate(self.weights.layers):
            where = (position, block_table, kv.k[n], kv.v[n], bound, eps)
            x = self._layer(x, layer_tensors(layer), tables, *where)
        return rms_norm.rms_norm(x, self.weights.norm, eps)


class PlainStack:
    """A bidirectional stack by layers."""

    def __init__(self, config: StackConfig, weights: StackWeights, layer: Function) -> None:
        self._config, self._layer = config, layer
        self._layers, self._norm = [layer_tensors(x) for x in weights.layers], weights.norm

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        c = self._config
        for weights in self._layers:
            x = self._layer(x, weights, cos, sin, c.num_kv_heads, c.rms_norm_eps)
        return rms_norm.rms_norm(x, self._norm, c.rms_norm_eps)


class PlainDiT:
    """LocDiT and its solver."""

    def __init__(self, network: Network, layer: Function) -> None:
        self._w, self._p = network.weights.dit, network.config.patch_size
        self._stack = PlainStack(network.config.dit, self._w.stack, layer)
        self.tables = local_tables(network, 3 + 2 * self._p)
        self.schedule = network.dit.schedule

    def forward(self, x: Tensor, mu: Tensor, time: Tensor, cond: Tensor) -> Tensor:
        """The velocity [B, P, C] of patches [B, P, C]."""
        tokens = torch.cat([mu, time[:, None], cond, F.linear(x, *self._w.in_proj)], dim=1)
        return F.linear(self._stack(tokens, *self.tables)[:, -self._p :], *self._w.out_proj)

    def solve(
        self,
        noise: Tensor,
        mu: Tensor,
        cond: Tensor,
        guidance: Tensor,
        num_steps: Tensor,
        schedule: Schedule,
    ) -> Tensor:
        """As `LocDiT.solve`."""
        mu = torch.cat([mu, torch.zeros_like(mu)])
        cond = F.linear(cond, *self._w.cond_proj).repeat(2, 1, 1)
        times = schedule.time[num_steps].repeat(2, 1, 1)  # [2 S, K, E]
        widths = schedule.width[num_steps][:, :, None, None]  # [S, K, 1, 1]
        x = noise
        for k in range(schedule.num_evaluations):
            heard, unheard = self.forward(x.repeat(2, 1, 1), mu, times[:, k], cond).chunk(2)
            dot = (heard * unheard).flatten(1).sum(dim=1)
            square = unheard.square().flatten(1).sum(dim=1) + GUARD
            along = unheard * (dot / square)[:, None, None]
            beyond = (guidance[:, None, None] * (heard - along).float()).to(x.dtype)
            x = x - (widths[:, k] * (along + beyond).float()).to(x.dtype)
        return x


class PlainNetwork(Network):
    """The networks of a step over the weights of another network."""

    def __init__(self, network: Network, compiled: Compiled, backend: str) -> None:
        """Compile at the first call, for fixed shapes, on torch's backend of that name."""
        self.config, self.weights = network.config, network.weights

        def ready(function: Function, when: Compiled) -> Function:
            if compiled != when:
                return function
            return torch.compile(function, dynamic=False, backend=backend)

        paged, local = ready(paged_layer, "layers"), ready(local_layer, "layers")
        rotary = long_rope(self.config.rope, self.config.max_positions, self.weights.embed.device)
        self.lm = PlainLM(network.lm, (rotary.cos, rotary.sin), paged)
        self.residual = PlainLM(network.residual, None, paged)
        dit = PlainDiT(network, local)
        dit.forward = ready(dit.forward, "forward")  # type: ignore[method-assign]
        dit.solve = ready(dit.solve, "solve")  # type: ignore[method-assign]
        self.dit = dit  # type: ignore[assignment]
        w = network.weights.encoder
        self._stack = PlainStack(network.config.encoder, w.stack, local)
        self._tables = local_tables(network, 1 + network.config.patch_size)

    def encode(self, patches: Tensor) -> Tensor:
        """As `Network.encode`."""
        w = self.weights.encoder
        special = w.special.expand(len(patches), 1, -1)
        tokens = torch.cat([special, F.linear(patches, *w.in_proj)], dim=1)
        return self._stack(tokens, *self._tables)[:, 0]


def local_tables(network: Network, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, 1, D/2] of the first positions."""
    rotary = long_rope(network.config.rope, num_tokens, network.weights.embed.device)
    return rotary.cos[:, None], rotary.sin[:, None]


@contextmanager
def in_plain_torch(model: VoxCPM2, compiled: Compiled, backend: str) -> Iterator[Network]:
    """The model's steps run without kernels meanwhile, and with one bound: shapes are fixed."""
    step, network = model.step, model.network

    def fixed(state: VoxCPM2State, rows: Any, draw: Any, bound: int) -> Any:
        return step(state, rows, draw, state.block_table.shape[1] * PAGE_SIZE)

    torch._dynamo.reset()
    plain = PlainNetwork(network, compiled, backend)
    model.network, model.step = plain, fixed  # type: ignore[method-assign]
    try:
        with kernels_on(False, but=KEPT):
            yield plain
    finally:
        model.network = network
        del model.step
