"""The talker: Qwen3's decoder, whose query and key heads are normed before they are turned.

A step's output, after the final norm, is codebook 0's logits by `head` and the predictor's input.
Source: Qwen3-TTS technical report and package `qwen-tts` 0.1.1 (talker of modeling_qwen3_tts.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.qk_norm_rope import qk_norm_rope
from ttsbatch.models.decoder import LayerWeights, PagedDecoder, StackWeights, Turn
from ttsbatch.models.layers import Rotary
from ttsbatch.models.qwen3_tts.config import RotaryStackConfig


def make_talker(
    config: RotaryStackConfig, weights: StackWeights, max_positions: int, device: torch.device
) -> PagedDecoder:
    """The talker over its weights."""
    rotary = Rotary.make(config.rope_theta, config.head_dim, max_positions, device)
    return PagedDecoder(config, weights, _turn_by(rotary, config.rms_norm_eps))


def _turn_by(rotary: Rotary, eps: float) -> Turn:
    def turn(
        qkv: Tensor, layer: LayerWeights, position: Tensor, table: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        assert layer.qk_norm is not None
        angles = rotary.cos, rotary.sin
        return qk_norm_rope(qkv, *layer.qk_norm, *angles, position, table, k, v, eps)

    return turn
