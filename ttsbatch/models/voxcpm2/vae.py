"""AudioVAE V2: 16 kHz samples to latents, latents to 48 kHz samples. Everything is causal.

`vae_fused.py` is the same as chains of fused convolutions, for a GPU.
A latent hears the 20 before it (19 for its last sample) and none after, so windows with that much
left context equal one pass over the whole, and right padding is never heard.
Source: `audio_vae_v2.py` of package `voxcpm` 2.0.3; Snake (Ziyin et al., 2020).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.kernels.launch import count_fallback
from ttsbatch.kernels.snake_beta import snake_beta
from ttsbatch.models.layers import full_float32
from ttsbatch.models.voxcpm2.config import VaeConfig
from ttsbatch.models.voxcpm2.specs import DILATIONS
from ttsbatch.models.voxcpm2.vae_fused import Calls, FusedDecoder, FusedEncoder
from ttsbatch.models.voxcpm2.weights import fold_weight_norm

CONTEXT_LATENTS = 20
"""Left context that makes a window exact: 12 are off by 1e-2 of the peak, 16 by 1e-3."""
Layer = Callable[[Tensor], Tensor]
Take = Callable[[str], Tensor]


def vae_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """What the AudioVAE computes in, in a run of `dtype`.

    Officially float32 in every run. In half precision on a GPU it is float16, not bfloat16: at the
    official size with random weights samples are 51 dB from those of float32 and latents 60; in
    bfloat16, at the same bytes, 34 and 43. The published weights have not been tried. An activation
    past 65504 would become infinite and the samples after it no numbers, which the engine counts.
    """
    half = device.type == "cuda" and dtype.itemsize == 2
    return torch.float16 if half else torch.float32


class AudioVAE:
    """Decoder and encoder over weights that are prepared once."""

    def __init__(
        self,
        config: VaeConfig,
        tensors: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        fused: bool | None = None,
    ) -> None:
        """Fold the weight norm.

        Args:
            config: sizes.
            tensors: of `encoder_specs` and `decoder_specs`, checked; on any device.
            device: where it runs.
            dtype: of the convolutions; Snake is computed in float32 whatever it is.
            fused: run as chains of fused convolutions; None does on a GPU in half precision.
        """
        self.config, self.device, self.dtype = config, device, dtype
        self._folded = fold_weight_norm({k: x.to(device) for k, x in tensors.items()})
        self.fused: tuple[FusedDecoder, FusedEncoder] | None = None
        if device.type == "cuda" and dtype.itemsize == 2 if fused is None else fused:
            decoder = FusedDecoder(config, self._folded, dtype)
            self.fused = decoder, FusedEncoder(config, self._folded, dtype)
        else:
            self._make_plain(dtype)
        del self._folded

    def _make_plain(self, dtype: torch.dtype) -> None:
        config = self.config
        take: Take = lambda name: self._folded[name].to(dtype)  # noqa: E731
        last = len(config.decoder_rates) + 2
        self._before: list[Layer] = [
            Conv(take, "decoder.model.0", groups=config.latent_dim),
            Conv(take, "decoder.model.1"),
        ]
        self._blocks = [
            DecoderBlock(take, self._folded, j, rate)
            for j, rate in enumerate(config.decoder_rates, start=2)
        ]
        self._after: list[Layer] = [
            Snake(self._folded[f"decoder.model.{last}.alpha"]),
            Conv(take, f"decoder.model.{last + 1}"),
        ]
        self._encoder = self._encoder_layers(take)

    def _encoder_layers(self, take: Take) -> list[Layer]:
        layers: list[Layer] = [Conv(take, "encoder.block.0")]
        for i, stride in enumerate(self.config.encoder_rates, start=1):
            block = f"encoder.block.{i}.block."
            layers += [
                ResidualUnit(take, self._folded, f"{block}{unit}.", dilation)
                for unit, dilation in enumerate(DILATIONS)
            ]
            layers.append(Snake(self._folded[f"{block}{len(DILATIONS)}.alpha"]))
            layers.append(Conv(take, f"{block}{len(DILATIONS) + 1}", stride=stride))
        return [*layers, Conv(take, "encoder.fc_mu")]

    def rate_bucket(self, sample_rate_hz: int) -> int:
        """The row of the sample-rate tables: boundaries that lie strictly below the rate."""
        return bisect_left(self.config.rate_boundaries_hz, sample_rate_hz)

    def decode(self, latents: Tensor, sample_rate_hz: int | None = None) -> Tensor:
        """Latents to samples, in one pass.

        Args:
            latents: [B, T, C] float on the device.
            sample_rate_hz: the quality to imitate; None: the output's own rate. It changes the
                sound, never the number of samples.

        Returns:
            [B, T * output_hop] f32 in -1..1.
        """
        bucket = self.rate_bucket(sample_rate_hz or self.config.output_sample_rate_hz)
        if self.fused is not None:
            return self.fused[0](latents, bucket)
        count_fallback("AudioVAE", latents)
        x = latents.to(self.dtype).transpose(1, 2)
        with full_float32(self.device):
            for layer in self._before:
                x = layer(x)
            for block in self._blocks:
                x = block(x, bucket)
            for layer in self._after:
                x = layer(x)
        return x[:, 0].float().tanh()

    def encode(self, samples: Tensor) -> Tensor:
        """Samples to the means of their latents.

        Args:
            samples: [B, N] f32 mono at the input rate; padded on the right with zeros to whole
                latents.

        Returns:
            [B, ceil(N / input_hop), C] f32.
        """
        hop = self.config.input_hop
        whole = F.pad(samples, (0, -samples.shape[1] % hop))
        if self.fused is not None:
            return self.fused[1](whole)
        x = whole.to(self.dtype)[:, None]
        with full_float32(self.device):
            for layer in self._encoder:
                x = layer(x)
        return x.transpose(1, 2).float()

    def trial_calls(self) -> Calls:
        """A small call of each kernel variant; see `models.protocol.CodecLM.trial_calls`."""
        if self.fused is None:
            latents = torch.zeros(1, 1, self.config.latent_dim, device=self.device)
            return [lambda: self.decode(latents)]
        return [call for chain in self.fused for call in chain.trial_calls()]


class Conv:
    """Convolution that sees only the past: [B, C, N] -> [B, C', ceil(N / stride)].

    A strided one has a kernel of two strides and begins one stride before the first sample.
    """

    def __init__(
        self, take: Take, name: str, dilation: int = 1, groups: int = 1, stride: int = 1
    ) -> None:
        self.weight, self.bias = take(f"{name}.weight"), take(f"{name}.bias")
        self.dilation, self.groups, self.stride = dilation, groups, stride
        self.padding = (self.weight.shape[-1] - stride) * dilation

    def __call__(self, x: Tensor) -> Tensor:
        x = F.pad(x, (self.padding, 0))
        return F.conv1d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Upsampling:
    """Transposed convolution by `stride`, its tail dropped: [B, C, N] -> [B, C', N * stride]."""

    def __init__(self, take: Take, name: str, stride: int) -> None:
        self.weight, self.bias, self.stride = take(f"{name}.weight"), take(f"{name}.bias"), stride

    def __call__(self, x: Tensor) -> Tensor:
        y = F.conv_transpose1d(x, self.weight, self.bias, self.stride)
        return y[..., : x.shape[-1] * self.stride]


class Snake:
    """x + sin(alpha x)^2 / alpha per channel."""

    def __init__(self, alpha: Tensor) -> None:
        self.alpha = alpha.flatten().contiguous()
        self.inverse = (self.alpha + 1e-9).reciprocal()

    def __call__(self, x: Tensor) -> Tensor:
        return snake_beta(x, self.alpha, self.inverse)


class ResidualUnit:
    """Snake, dilated depthwise convolution, Snake, 1x1 convolution, plus the input."""

    def __init__(self, take: Take, exact: Mapping[str, Tensor], name: str, dilation: int) -> None:
        alpha = exact[f"{name}block.0.alpha"]
        self.layers: list[Layer] = [
            Snake(alpha),
            Conv(take, f"{name}block.1", dilation, groups=alpha.numel()),
            Snake(exact[f"{name}block.2.alpha"]),
            Conv(take, f"{name}block.3"),
        ]

    def __call__(self, x: Tensor) -> Tensor:
        y = x
        for layer in self.layers:
            y = layer(y)
        return x + y


class DecoderBlock:
    """Scale and shift by sample rate, Snake, upsampling, three residual units."""

    def __init__(self, take: Take, exact: Mapping[str, Tensor], index: int, rate: int) -> None:
        name, condition = f"decoder.model.{index}.block.", f"decoder.sr_cond_model.{index}."
        self.scale = take(f"{condition}scale_embed.weight")[:, :, None]
        self.shift = take(f"{condition}bias_embed.weight")[:, :, None]
        self.layers: list[Layer] = [
            Snake(exact[f"{name}0.alpha"]),
            Upsampling(take, f"{name}1", rate),
            *(
                ResidualUnit(take, exact, f"{name}{unit}.", dilation)
                for unit, dilation in enumerate(DILATIONS, start=2)
            ),
        ]

    def __call__(self, x: Tensor, bucket: int) -> Tensor:
        x = x * self.scale[bucket] + self.shift[bucket]
        for layer in self.layers:
            x = layer(x)
        return x
