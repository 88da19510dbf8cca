"""The AudioVAE as two chains of fused convolutions, channels last.

Each launch is a convolution with all that stands before the next one: bias, residual sum,
condition and Snake. So a launch reads activated values and stores activated ones, and beside them
runs the residual stream. `vae.py` holds the plain chains, which these equal up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from ttsbatch.kernels.causal_conv import causal_conv, pack_conv, pack_upsampling
from ttsbatch.kernels.conv_finish import Pointwise, Table
from ttsbatch.kernels.depthwise_conv import WIDEST_POINTWISE, depthwise_conv
from ttsbatch.kernels.last_conv import last_conv
from ttsbatch.models.voxcpm2.config import VaeConfig
from ttsbatch.models.voxcpm2.specs import DILATIONS

Weights = Mapping[str, Tensor]
"""By the names of `specs`, weight norm folded: f32 on the device."""
Packed = tuple[Tensor, Tensor]
"""Weight [taps, C', r * C] in the run's dtype and bias [C] f32, as `causal_conv` takes them."""
Calls = list[Callable[[], object]]


class FusedDecoder:
    """Latents to samples."""

    def __init__(self, config: VaeConfig, weights: Weights, dtype: torch.dtype) -> None:
        """Pack the weights.

        Args:
            config: sizes.
            weights: of `decoder_specs`, folded.
            dtype: of activations and matrices, and of the residual stream where channels are few.
                Biases, Snake, depthwise convolutions and sums are float32.
        """
        self._dtype = dtype
        self._entry = _separable(weights, "decoder.model.0", "decoder.model.1", dtype)
        self._stages, self._conditions, self._snakes = [], [], []
        for j, rate in enumerate(config.decoder_rates, start=2):
            block, condition = f"decoder.model.{j}.block.", f"decoder.sr_cond_model.{j}."
            weight = pack_upsampling(weights[f"{block}1.weight"], rate).to(dtype)
            entry = weight, weights[f"{block}1.bias"]
            self._stages.append(_Stage(entry, _units(weights, block, 2, dtype)))
            scale, shift = (weights[f"{condition}{x}_embed.weight"] for x in ("scale", "bias"))
            self._conditions.append(list(zip(scale.unbind(), shift.unbind(), strict=True)))
            self._snakes.append(_snake(weights, f"{block}0"))
        last = len(config.decoder_rates) + 2
        self._snakes.append(_snake(weights, f"decoder.model.{last}"))
        self._last = (
            pack_conv(weights[f"decoder.model.{last + 1}.weight"])[:, :, 0].contiguous(),
            weights[f"decoder.model.{last + 1}.bias"],
        )

    def __call__(self, latents: Tensor, bucket: int) -> Tensor:
        """[B, T, C] latents -> [B, T * output_hop] f32 in -1..1, as of a sample-rate bucket."""
        first, *others = self._affines(bucket)
        x = latents.to(self._dtype).contiguous()
        x = _activated(causal_conv(x, *self._entry, snake=self._snakes[0], affine=first))
        for stage, after, affine in zip(self._stages, self._snakes[1:], others, strict=True):
            x = stage(x, after, affine)
        return last_conv(x, *self._last, bends=True)

    def _affines(self, bucket: int) -> list[Table | None]:
        """What comes before each Snake: a block's condition, or nothing before the last one."""
        return [*(table[bucket] for table in self._conditions), None]

    def trial_calls(self) -> Calls:
        """A small call of each kernel variant; see `models.protocol.CodecLM.trial_calls`."""
        weight, last = self._entry[0], self._last[0]
        first, *others = self._affines(0)

        def enter() -> None:
            x = weight.new_zeros(1, 1, weight.shape[1])
            causal_conv(x, *self._entry, snake=self._snakes[0], affine=first)

        def leave() -> None:
            last_conv(weight.new_zeros(1, 1, last.shape[1]), *self._last, bends=True)

        calls: Calls = [enter, leave]
        for stage, after, affine in zip(self._stages, self._snakes[1:], others, strict=True):
            calls += stage.trial_calls(after, affine)
        return calls


class FusedEncoder:
    """Samples to the means of their latents."""

    def __init__(self, config: VaeConfig, weights: Weights, dtype: torch.dtype) -> None:
        """Pack the weights; arguments as of `FusedDecoder`, weights of `encoder_specs`."""
        self._dtype = dtype
        self._stages, self._snakes = [], []
        entry = _conv(weights, "encoder.block.0", dtype)
        for i, stride in enumerate(config.encoder_rates, start=1):
            block = f"encoder.block.{i}.block."
            self._stages.append(_Stage(entry, _units(weights, block, 0, dtype)))
            self._snakes.append(_snake(weights, f"{block}{len(DILATIONS)}"))
            entry = _strided(weights, f"{block}{len(DILATIONS) + 1}", stride, dtype)
        self._last_strided = entry
        self._means = _conv(weights, "encoder.fc_mu", dtype)

    def __call__(self, samples: Tensor) -> Tensor:
        """[B, N] samples, whole latents -> [B, N / input_hop, C] f32."""
        x = samples.to(self._dtype)[:, :, None].contiguous()
        for stage, after in zip(self._stages, self._snakes, strict=True):
            x = stage(x, after)
        x = _plain(_folded(x, self._last_strided), self._last_strided, self._dtype)
        return _plain(x, self._means, torch.float32)

    def trial_calls(self) -> Calls:
        """A small call of each kernel variant."""

        def end() -> None:
            x = self._last_strided[0].new_zeros(1, 1, self._last_strided[0].shape[1])
            _plain(_plain(x, self._last_strided, self._dtype), self._means, torch.float32)

        calls: Calls = [end]
        for stage, after in zip(self._stages, self._snakes, strict=True):
            calls += stage.trial_calls(after)
        return calls


class _Stage:
    """A convolution that changes the width, and three residual units."""

    def __init__(self, entry: Packed, units: list[_Unit]) -> None:
        self.entry, self.units = entry, units
        # Wide stages have few values: a stream in float32 there costs an eighth of the decoder's
        # bytes and lowers its noise by 1.5 dB; everywhere it would cost 37 % for 2.1 dB.
        wide = len(entry[1]) > WIDEST_POINTWISE
        self.stream_dtype = torch.float32 if wide else entry[0].dtype

    def __call__(self, x: Tensor, after: Table, affine: Table | None = None) -> Tensor:
        """[B, N, C'] activated -> [B, N', C] activated by `after`."""
        weight, bias = self.entry
        x = _folded(x, self.entry)
        rows, channels = x.shape[1] * weight.shape[2] // len(bias), len(bias)
        stream = torch.empty(len(x), rows, channels, dtype=self.stream_dtype, device=x.device)
        x = _activated(causal_conv(x, weight, bias, snake=self.units[0].before, raw=stream))
        for unit, following in zip(self.units[:-1], self.units[1:], strict=True):
            x = unit(x, stream, following.before, raw=stream)
        return self.units[-1](x, stream, after, affine)

    def trial_calls(self, after: Table, affine: Table | None = None) -> Calls:
        """The entry, a unit whose stream is read later, and the last one."""
        weight, bias = self.entry
        first, last = self.units[0], self.units[-1]

        def stream(rows: int) -> Tensor:
            return weight.new_zeros(1, rows, len(bias), dtype=self.stream_dtype)

        def enter() -> None:
            x, rows = weight.new_zeros(1, 1, weight.shape[1]), weight.shape[2] // len(bias)
            causal_conv(x, weight, bias, snake=first.before, raw=stream(rows))

        def go_on() -> None:
            own = stream(1)
            first(own.to(weight.dtype), own, after, raw=own)

        def end() -> None:
            own = stream(1)
            last(own.to(weight.dtype), own, after, affine)

        return [enter, go_on, end]


class _Unit:
    """A residual unit, from its activated input on."""

    def __init__(self, weights: Weights, name: str, dilation: int, dtype: torch.dtype) -> None:
        self.before = _snake(weights, f"{name}block.0")
        self.middle = _snake(weights, f"{name}block.2")
        deep = weights[f"{name}block.1.weight"]  # [C, 1, taps]
        self.deep = deep[:, 0].t().contiguous(), weights[f"{name}block.1.bias"]
        self.point = _conv(weights, f"{name}block.3", dtype)
        self.dilation = dilation
        self.one_launch = len(deep) <= WIDEST_POINTWISE

    def __call__(
        self,
        x: Tensor,
        stream: Tensor,
        after: Table,
        affine: Table | None = None,
        raw: Tensor | None = None,
    ) -> Tensor:
        """The stream plus the unit, to `raw` if that is read later, and activated by `after`."""
        convolve = partial(depthwise_conv, x, *self.deep, dilation=self.dilation)
        if self.one_launch:
            pointwise = Pointwise(self.middle, self.point[0][0], self.point[1])
            return _activated(
                convolve(pointwise=pointwise, residual=stream, raw=raw, snake=after, affine=affine)
            )
        x = _activated(convolve(snake=self.middle))
        # No taps, no edges: the rows of all items are one item's, without a part-filled tile each.
        flat = (1, -1, x.shape[2])
        residual = stream.view(flat)
        x = _activated(
            causal_conv(
                x.view(flat),
                *self.point,
                residual=residual,
                raw=None if raw is None else raw.view(flat),
                snake=after,
                affine=affine,
            )
        )
        return x.view(stream.shape)


def _units(weights: Weights, block: str, first: int, dtype: torch.dtype) -> list[_Unit]:
    return [
        _Unit(weights, f"{block}{n}.", dilation, dtype)
        for n, dilation in enumerate(DILATIONS, start=first)
    ]


def _conv(weights: Weights, name: str, dtype: torch.dtype) -> Packed:
    return pack_conv(weights[f"{name}.weight"]).to(dtype), weights[f"{name}.bias"]


def _strided(weights: Weights, name: str, stride: int, dtype: torch.dtype) -> Packed:
    """With a kernel of two strides: two taps over rows that are a stride of samples long."""
    packed, bias = _conv(weights, name, dtype)  # [2 * stride, C', C]
    return packed.view(2, stride * packed.shape[1], -1), bias


def _separable(weights: Weights, deep: str, point: str, dtype: torch.dtype) -> Packed:
    """A depthwise convolution and the 1x1 one right behind it, as one of all channels."""
    matrix = weights[f"{point}.weight"][:, :, 0]  # [C, C']
    taps = weights[f"{deep}.weight"][:, 0].t()  # [taps, C']
    bias = matrix @ weights[f"{deep}.bias"] + weights[f"{point}.bias"]
    return (taps[:, :, None] * matrix.t()).to(dtype).contiguous(), bias


def _snake(weights: Weights, name: str) -> Table:
    """Frequency and inverse magnitude, which are one number here."""
    alpha = weights[f"{name}.alpha"].flatten().contiguous()
    return alpha, (alpha + 1e-9).reciprocal()


def _folded(x: Tensor, conv: Packed) -> Tensor:
    """The rows as wide as the convolution takes them: a strided one takes several as one."""
    return x.view(len(x), -1, conv[0].shape[1])


def _plain(x: Tensor, conv: Packed, dtype: torch.dtype) -> Tensor:
    """A convolution without what else can be fused with it."""
    raw = torch.empty(len(x), x.shape[1], len(conv[1]), dtype=dtype, device=x.device)
    causal_conv(x, *conv, raw=raw)
    return raw


def _activated(x: Tensor | None) -> Tensor:
    assert x is not None  # each call gives an activation
    return x
