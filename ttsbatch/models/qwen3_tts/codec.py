"""The codec decoder: codes to samples, in one pass over whole clips or windows of clips.

Everything is causal, so right padding leaves a clip's own samples alone and clips of different
lengths share a batch. `decode` reads nothing back from the device and its shapes follow from
(batch, frames) alone, so that it can be captured.

Source: the 12 Hz tokenizer of the official package qwen-tts 0.1.1, decoder half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.kernels.launch import count_fallback
from ttsbatch.kernels.rms_norm import rms_norm
from ttsbatch.kernels.snake_beta import snake_beta
from ttsbatch.models.layers import full_float32
from ttsbatch.models.qwen3_tts.codec_config import DecoderConfig
from ttsbatch.models.qwen3_tts.codec_layers import (
    CausalAttention,
    Positions,
    PositionTables,
    Take,
    scaled_rows,
    taker,
)
from ttsbatch.models.qwen3_tts.codec_vocoder import DILATIONS, FusedVocoder


class CodecDecoder:
    """Codes in, samples out. Weights are prepared once and not changed afterwards."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: Mapping[str, Tensor],
        device: torch.device | str,
        dtype: torch.dtype = torch.float32,
        fused: bool | None = None,
    ) -> None:
        """Prepare the weights.

        Args:
            config: sizes.
            weights: by the names of `codec_specs.decoder_specs`, checked; on any device.
            device: where it runs.
            dtype: of matrix products and convolutions. Codebooks, norm statistics and SnakeBeta
                are computed in float32 whatever it is.
            fused: run the vocoder as a chain of fused convolutions; None does on a GPU in
                half precision, where it's faster.
        """
        device = torch.device(device)
        self.config, self.device, self.dtype = config, device, dtype
        with torch.inference_mode():
            take = taker(weights, device, dtype)
            self._take_codebooks(weights)
            c = config
            self.pre_conv = CausalConv(take, "pre_conv.conv")
            self.positions = PositionTables(
                c.head_dim, c.rope_theta, c.sliding_window, device, dtype
            )
            name = "pre_transformer."
            self.input_proj = take(f"{name}input_proj.weight"), take(f"{name}input_proj.bias")
            self.layers = [
                TransformerLayer(take, f"{name}layers.{i}.", c) for i in range(c.num_layers)
            ]
            self.norm = take(f"{name}norm.weight")
            self.output_proj = take(f"{name}output_proj.weight"), take(f"{name}output_proj.bias")
            self.upsampling: list[Callable[[Tensor], Tensor]] = []
            for i, ratio in enumerate(c.upsampling_ratios):
                self.upsampling.append(RowUpsampling(take, f"upsample.{i}.0.conv", ratio))
                self.upsampling.append(ConvNeXtBlock(take, f"upsample.{i}.1."))
            if fused is None:
                fused = device.type == "cuda" and dtype.itemsize == 2
            self.fused = FusedVocoder(config, weights, device, dtype) if fused else None
            self.vocoder = (
                [] if fused else self._vocoder(take, taker(weights, device, torch.float32))
            )

    def _take_codebooks(self, weights: Mapping[str, Tensor]) -> None:
        c = self.config
        take = taker(weights, self.device, torch.float32)
        tables, projections = [], []
        for part, count in (("rvq_first", 1), ("rvq_rest", c.num_quantizers - 1)):
            for i in range(count):
                book = f"quantizer.{part}.vq.layers.{i}._codebook."
                usage = take(f"{book}cluster_usage").clamp(min=1e-5)
                tables.append(take(f"{book}embedding_sum") / usage[:, None])
            projections.append(take(f"quantizer.{part}.output_proj.weight")[:, :, 0])
        self.codebooks = torch.cat(tables)  # [Q * V, D]
        self.codebook_offsets = torch.arange(c.num_quantizers, device=self.device) * c.codebook_size
        # One product adds up both parts: [first | rest] times the stacked projections.
        self.code_proj = torch.cat(projections, dim=1).to(self.dtype)

    def _vocoder(self, take: Take, take_f32: Take) -> list[Callable[[Tensor], Tensor]]:
        c = self.config
        stages: list[Callable[[Tensor], Tensor]] = [CausalConv(take, "decoder.0.conv")]
        for b, rate in enumerate(c.upsample_rates, start=1):
            block = f"decoder.{b}.block."
            stages.append(SnakeBeta(take_f32, f"{block}0."))
            stages.append(CausalUpsampling(take, f"{block}1.conv", rate))
            stages += [
                ResidualUnit(take, take_f32, f"{block}{unit}.", dilation)
                for unit, dilation in enumerate(DILATIONS, start=2)
            ]
        last = len(c.upsample_rates) + 1
        stages.append(SnakeBeta(take_f32, f"decoder.{last}."))
        stages.append(CausalConv(take, f"decoder.{last + 1}.conv"))
        return stages

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """Decode clips in one pass.

        Args:
            codes: [B, F, Q] integers on the device; negative ones (padding) count as 0. Q may be
                smaller than the codec's number of codebooks: the first Q are used.

        Returns:
            [B, F * samples_per_frame] f32 in -1..1.
        """
        with full_float32(self.device):
            x = self.transform(self.pre_conv(self.dequantize(codes)))
            return self.synthesize(self.upsample(x))

    def dequantize(self, codes: Tensor) -> Tensor:
        """[B, F, Q] codes -> [B, E, F] sum of the codebooks, projected."""
        offsets = self.codebook_offsets[: codes.shape[-1]]
        rows = F.embedding(codes.clamp(min=0).long() + offsets, self.codebooks)  # [B, F, Q, D]
        halves = torch.cat((rows[:, :, 0], rows[:, :, 1:].sum(dim=2)), dim=-1)
        return F.linear(halves.to(self.dtype), self.code_proj).transpose(1, 2)

    def transform(self, x: Tensor) -> Tensor:
        """[B, C, F] -> [B, C, F] through the sliding-window transformer."""
        positions = self.positions(x.shape[-1])
        hidden = F.linear(x.transpose(1, 2), *self.input_proj)  # [B, F, E]
        for layer in self.layers:
            hidden = layer(hidden, positions)
        hidden = rms_norm(hidden, self.norm, self.config.rms_norm_eps)
        return F.linear(hidden, *self.output_proj).transpose(1, 2)

    def upsample(self, x: Tensor) -> Tensor:
        """[B, C, F] -> [B, C, F * prod(upsampling_ratios)]."""
        for stage in self.upsampling:
            x = stage(x)
        return x

    def synthesize(self, x: Tensor) -> Tensor:
        """[B, C, T] -> [B, T * prod(upsample_rates)] f32 in -1..1."""
        if self.fused is not None:
            return self.fused(x)
        count_fallback("codec vocoder", x)
        for stage in self.vocoder:
            x = stage(x)
        return x[:, 0].float().clamp(-1.0, 1.0)


class TransformerLayer:
    """Pre-norm attention and SwiGLU, each scaled per channel before it is added."""

    def __init__(self, take: Take, name: str, c: DecoderConfig) -> None:
        self.attention = CausalAttention(take, name, c.num_heads, c.num_kv_heads, c.head_dim)
        self.attention_norm = take(f"{name}input_layernorm.weight")
        self.mlp_norm = take(f"{name}post_attention_layernorm.weight")
        self.gate_up = torch.cat([take(f"{name}mlp.{x}_proj.weight") for x in ("gate", "up")])
        self.down = scaled_rows(
            take(f"{name}mlp.down_proj.weight"), take(f"{name}mlp_layer_scale.scale")
        )
        self.eps = c.rms_norm_eps

    def __call__(self, x: Tensor, positions: Positions) -> Tensor:
        x = x + self.attention(rms_norm(x, self.attention_norm, self.eps), positions)
        gate, up = F.linear(rms_norm(x, self.mlp_norm, self.eps), self.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)


class CausalConv:
    """Convolution that sees only the past: [B, C, N] -> [B, C', N].

    It pads both sides inside the convolution and drops the tail, which computes a few samples too
    many and saves a padded copy of the input.
    """

    def __init__(self, take: Take, name: str, dilation: int = 1, groups: int = 1) -> None:
        self.weight, self.bias = take(f"{name}.weight"), take(f"{name}.bias")
        self.dilation, self.groups = dilation, groups
        self.padding = (self.weight.shape[-1] - 1) * dilation

    def __call__(self, x: Tensor) -> Tensor:
        y = F.conv1d(x, self.weight, self.bias, 1, self.padding, self.dilation, self.groups)
        return y[..., : x.shape[-1]]


class CausalUpsampling:
    """Transposed convolution by `stride`, its tail dropped: [B, C, N] -> [B, C', N * stride]."""

    def __init__(self, take: Take, name: str, stride: int) -> None:
        self.weight, self.bias = take(f"{name}.weight"), take(f"{name}.bias")
        self.stride = stride

    def __call__(self, x: Tensor) -> Tensor:
        y = F.conv_transpose1d(x, self.weight, self.bias, self.stride)
        return y[..., : x.shape[-1] * self.stride]


class RowUpsampling:
    """Transposed convolution whose kernel is its stride: [B, C, N] -> [B, C', N * stride].

    Rows don't overlap, so it is one matrix product, and its result is in memory as [B, N', C'],
    which the linear layers after it and the fused vocoder take without a copy.
    """

    def __init__(self, take: Take, name: str, stride: int) -> None:
        weight = take(f"{name}.weight")  # [C, C', stride]
        self.weight = weight.permute(2, 1, 0).flatten(0, 1).contiguous()  # [stride * C', C]
        self.bias = take(f"{name}.bias").repeat(stride)
        self.channels = weight.shape[1]

    def __call__(self, x: Tensor) -> Tensor:
        rows = F.linear(x.transpose(1, 2), self.weight, self.bias)
        return rows.view(len(x), -1, self.channels).transpose(1, 2)


class ConvNeXtBlock:
    """Depthwise convolution, then a channel MLP with GELU: [B, C, N] -> [B, C, N]."""

    def __init__(self, take: Take, name: str) -> None:
        width = take(f"{name}gamma").shape[0]
        self.depthwise = CausalConv(take, f"{name}dwconv.conv", groups=width)
        self.norm = take(f"{name}norm.weight"), take(f"{name}norm.bias")
        self.widen = take(f"{name}pwconv1.weight"), take(f"{name}pwconv1.bias")
        gamma = take(f"{name}gamma")
        self.narrow = (
            scaled_rows(take(f"{name}pwconv2.weight"), gamma),
            scaled_rows(take(f"{name}pwconv2.bias"), gamma),
        )

    def __call__(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).transpose(1, 2)
        y = F.layer_norm(y, y.shape[-1:], *self.norm, eps=1e-6)
        y = F.linear(F.gelu(F.linear(y, *self.widen)), *self.narrow)
        return x + y.transpose(1, 2)


class SnakeBeta:
    """Periodic activation whose two parameters are stored as logarithms."""

    def __init__(self, take_f32: Take, name: str) -> None:
        self.alpha = take_f32(f"{name}alpha").exp()
        self.inv_beta = (take_f32(f"{name}beta").exp() + 1e-9).reciprocal()

    def __call__(self, x: Tensor) -> Tensor:
        return snake_beta(x, self.alpha, self.inv_beta)


class ResidualUnit:
    """Snake, dilated convolution, Snake, 1x1 convolution, plus the input."""

    def __init__(self, take: Take, take_f32: Take, name: str, dilation: int) -> None:
        self.act1 = SnakeBeta(take_f32, f"{name}act1.")
        self.conv1 = CausalConv(take, f"{name}conv1.conv", dilation)
        self.act2 = SnakeBeta(take_f32, f"{name}act2.")
        self.conv2 = CausalConv(take, f"{name}conv2.conv")

    def __call__(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.act2(self.conv1(self.act1(x))))
