"""The codec's vocoder as a chain of fused convolutions: latents to samples, channels last.

Each launch is a convolution with all that stands before the next one: bias, residual sum and
SnakeBeta. So a launch reads activated values and stores activated ones, and beside them runs the
residual stream. `codec.py` holds the plain chain, which this one equals up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from ttsbatch.kernels.causal_conv import (
    Pointwise,
    causal_conv,
    pack_conv,
    pack_upsampling,
)
from ttsbatch.kernels.causal_conv_tiles import takes_pointwise, tile_for
from ttsbatch.kernels.last_conv import last_conv
from ttsbatch.models.qwen3_tts.codec_config import DecoderConfig
from ttsbatch.models.qwen3_tts.codec_layers import Take, taker

DILATIONS = (1, 3, 9)  # of a block's three residual units

Snake = tuple[Tensor, Tensor]
"""Frequency and inverse magnitude, [C] f32 each."""


class FusedVocoder:
    """Head convolution, upsampling blocks and last convolution."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
        residual_dtype: torch.dtype | None = None,
    ) -> None:
        """Pack the weights.

        Args:
            config: sizes.
            weights: by the names of `codec_specs.decoder_specs`.
            device: where it runs.
            dtype: of activations and weights. Biases, SnakeBeta and sums are float32.
            residual_dtype: of the residual stream between units; None is `dtype`.
        """
        take, take_f32 = taker(weights, device, dtype), taker(weights, device, torch.float32)
        self._dtype = dtype
        self._head = pack_conv(take("decoder.0.conv.weight")), take_f32("decoder.0.conv.bias")
        self._blocks = [
            _Block(take, take_f32, b, rate, residual_dtype or dtype)
            for b, rate in enumerate(config.upsample_rates, start=1)
        ]
        last = len(config.upsample_rates) + 1
        # What comes after each block: the next one's first activation, or the last one.
        self._snakes = [_snake(take_f32, f"decoder.{b}.block.0.") for b in range(1, last)]
        self._snakes.append(_snake(take_f32, f"decoder.{last}."))
        self._last = (
            pack_conv(take_f32(f"decoder.{last + 1}.conv.weight"))[:, :, 0].contiguous(),
            take_f32(f"decoder.{last + 1}.conv.bias"),
        )

    def __call__(self, x: Tensor) -> Tensor:
        """[B, C, T] -> [B, T * prod(upsample_rates)] f32 in -1..1."""
        rows = x.to(self._dtype).transpose(1, 2).contiguous()  # [B, T, C]
        rows = _activated(causal_conv(rows, *self._head, snake=self._snakes[0]))
        for block, after in zip(self._blocks, self._snakes[1:], strict=True):
            rows = block(rows, after)
        return last_conv(rows, *self._last)

    def trial_calls(self) -> list[Callable[[], object]]:
        """A small call of each kernel variant; see `models.protocol.CodecLM.trial_calls`."""
        first = self._head[0]

        def rows(width: int) -> Tensor:
            return first.new_zeros(1, 1, width)

        calls: list[Callable[[], object]] = [
            lambda: causal_conv(rows(first.shape[1]), *self._head, snake=self._snakes[0])
        ]
        for block in self._blocks:
            calls += block.trial_calls()
        calls.append(lambda: last_conv(rows(self._last[0].shape[1]), *self._last))
        return calls


class _Block:
    """A transposed convolution and three residual units; its own first SnakeBeta came before."""

    def __init__(
        self, take: Take, take_f32: Take, index: int, rate: int, residual_dtype: torch.dtype
    ) -> None:
        name = f"decoder.{index}.block."
        self.rate, self.residual_dtype = rate, residual_dtype
        self.weight = pack_upsampling(take(f"{name}1.conv.weight"), rate)
        self.bias = take_f32(f"{name}1.conv.bias")
        self.units = [
            _Unit(take, take_f32, f"{name}{unit}.", dilation)
            for unit, dilation in enumerate(DILATIONS, start=2)
        ]

    def __call__(self, x: Tensor, after: Snake) -> Tensor:
        """[B, N, C] activated -> [B, N * rate, C / 2] activated by `after`."""
        batch, length, _ = x.shape
        shape = (batch, length * self.rate, self.bias.shape[0])
        stream = torch.empty(shape, dtype=self.residual_dtype, device=x.device)
        first = self.units[0].before
        x = _activated(causal_conv(x, self.weight, self.bias, snake=first, raw=stream))
        for unit, following in zip(self.units, [*self.units[1:], None], strict=True):
            x = unit(x, stream, after if following is None else following.before, following is None)
        return x

    def trial_calls(self) -> list[Callable[[], object]]:
        """The upsampling, a unit whose stream is read later, and the last one."""
        channels, snake = self.bias.shape[0], self.units[0].before

        def stream(rows: int) -> Tensor:
            return self.weight.new_zeros(1, rows, channels, dtype=self.residual_dtype)

        def upsample() -> None:
            x = self.weight.new_zeros(1, 1, self.weight.shape[1])
            causal_conv(x, self.weight, self.bias, snake=snake, raw=stream(self.rate))

        def unit(index: int, is_last: bool) -> None:
            x = self.weight.new_zeros(1, 1, channels)
            self.units[index](x, stream(1), snake, is_last)

        return [upsample, partial(unit, 0, False), partial(unit, -1, True)]


class _Unit:
    """A residual unit, from its activated input on."""

    def __init__(self, take: Take, take_f32: Take, name: str, dilation: int) -> None:
        self.before = _snake(take_f32, f"{name}act1.")
        self.middle = _snake(take_f32, f"{name}act2.")
        self.dilation = dilation
        self.wide = pack_conv(take(f"{name}conv1.conv.weight")), take_f32(f"{name}conv1.conv.bias")
        self.point = pack_conv(take(f"{name}conv2.conv.weight")), take_f32(f"{name}conv2.conv.bias")
        taps, width, channels = self.wide[0].shape
        self.one_launch = takes_pointwise(tile_for(width, channels, taps), channels)

    def __call__(self, x: Tensor, stream: Tensor, after: Snake, is_last: bool) -> Tensor:
        """Add the unit to the stream, in place unless nothing reads it later; give it activated."""
        raw = None if is_last else stream
        if self.one_launch:
            weight, bias = self.point
            pointwise = Pointwise(self.middle, weight[0], bias)
            return _activated(
                causal_conv(
                    x,
                    *self.wide,
                    dilation=self.dilation,
                    pointwise=pointwise,
                    residual=stream,
                    raw=raw,
                    snake=after,
                )
            )
        x = _activated(causal_conv(x, *self.wide, dilation=self.dilation, snake=self.middle))
        return _activated(causal_conv(x, *self.point, residual=stream, raw=raw, snake=after))


def _snake(take_f32: Take, name: str) -> Snake:
    """Both are stored as logarithms."""
    alpha = take_f32(f"{name}alpha").exp()
    return alpha, (take_f32(f"{name}beta").exp() + 1e-9).reciprocal()


def _activated(x: Tensor | None) -> Tensor:
    assert x is not None  # each call gives a SnakeBeta
    return x
