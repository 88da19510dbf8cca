"""The base and the residual language model: MiniCPM4's decoder with positions and without.

Both keep their KV in the same pages: their rows are equally long.
Source: MiniCPM4 modules of package `voxcpm` 2.0.3.
"""

from __future__ import annotations

from torch import Tensor

from ttsbatch.kernels.rope_store import rope_store
from ttsbatch.models.decoder import LayerWeights, PagedDecoder, StackWeights
from ttsbatch.models.layers import Rotary
from ttsbatch.models.stack import StackConfig


def make_lm(config: StackConfig, weights: StackWeights, rotary: Rotary | None) -> PagedDecoder:
    """A language model over its weights; without `rotary` nothing tells it positions."""
    tables = None if rotary is None else (rotary.cos, rotary.sin)

    def turn(
        qkv: Tensor, _: LayerWeights, position: Tensor, table: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        return rope_store(qkv, tables, position, table, k, v)

    return PagedDecoder(config, weights, turn)
