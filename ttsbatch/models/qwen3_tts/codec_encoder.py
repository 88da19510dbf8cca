"""The codec encoder: reference audio to codes, for in-context cloning.

Always float32: a code is the nearest of thousands of centroids, and neighbours are close.

Source: the 12 Hz tokenizer of the official package qwen-tts 0.1.1, encoder half (Mimi of
transformers 4.57.3: full causal attention, without the window of 250 that transformers 5 applies).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.models.layers import full_float32, to_device
from ttsbatch.models.qwen3_tts.clip_batches import Lengths, clip_batches
from ttsbatch.models.qwen3_tts.codec_config import EncoderConfig
from ttsbatch.models.qwen3_tts.codec_layers import (
    CausalAttention,
    Positions,
    PositionTables,
    Take,
    scaled_rows,
    taker,
)
from ttsbatch.models.qwen3_tts.codec_specs import encoder_quantizers, encoder_stages

PAD_SAMPLES = 24_000  # see `clip_batches.padded_batches`
BATCH_SAMPLES = 96 * 24_000  # padding included: 0.6 GB an activation of 64 channels, three at once


class CodecEncoder:
    """Samples in, codes out. Weights are prepared once and not changed afterwards."""

    def __init__(
        self, config: EncoderConfig, weights: Mapping[str, Tensor], device: torch.device | str
    ) -> None:
        """Prepare the weights, named as in `codec_specs.encoder_specs`, on any device."""
        device = torch.device(device)
        self.config, self.device = config, device
        c = config
        with torch.inference_mode():
            take = taker(weights, device, torch.float32)
            self.first = StridedConv(take, "encoder.layers.0.conv")
            self.stages: list[tuple[list[ResidualUnit], StridedConv]] = []
            for stage in encoder_stages(c):
                units = [
                    ResidualUnit(take, f"encoder.layers.{index}.block.", dilation)
                    for index, dilation in stage.residuals
                ]
                name = f"encoder.layers.{stage.conv_index}.conv"
                self.stages.append((units, StridedConv(take, name, stage.stride)))
            self._hop = math.prod(conv.stride for _, conv in self.stages)
            self._samples_per_frame = self._hop * c.downsampling
            self.last = StridedConv(take, f"encoder.layers.{stage.conv_index + 2}.conv")
            self.layers = [
                TransformerLayer(take, f"encoder_transformer.layers.{i}.", c)
                for i in range(c.num_layers)
            ]
            self.positions = PositionTables(c.head_dim, c.rope_theta, None, device, torch.float32)
            self.downsampling = None
            if c.downsampling > 1:
                self.downsampling = StridedConv(
                    take, "downsample.conv", c.downsampling, bias=False, pad_mode="replicate"
                )
            self.quantizers = [
                ResidualQuantizer(take, part, used) for part, used, _ in encoder_quantizers(c)
            ]

    @torch.inference_mode()
    def encode(self, samples: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Encode clips.

        Every convolution with a stride fills up the end of a clip in its own way, so what lies
        behind a shorter clip is made to look like the end of a batch before each of them.

        Args:
            samples: [B, N] f32 at the codec's input rate, on the device; N >= 1.
            lengths: [B] int64 of the clips' own samples, on the device; None: N each.

        Returns:
            [B, ceil(N / samples_per_frame), Q] int64; behind a shorter clip's own frames anything.
        """
        own = None if lengths is None else Lengths(lengths, samples.shape[1])
        with full_float32(self.device):
            x = self.transform(self.convolve(samples, own))
            return self.quantize(self.downsample(x, own))

    def encode_clips(self, clips: Sequence[Tensor], pad: bool | None = None) -> list[Tensor]:
        """Encode clips of any lengths, each as if alone.

        Args:
            clips: [N_i] f32 each, on any device.
            pad: shorter clips to the length of others, so that they share a pass; None: on a GPU.

        Returns:
            [F_i, Q] int64 codes per clip, in order.
        """
        lengths = [len(clip) for clip in clips]
        pad = self.device.type == "cuda" if pad is None else pad
        codes: dict[int, Tensor] = {}
        for batch in clip_batches(lengths, PAD_SAMPLES, BATCH_SAMPLES, pad):
            samples = torch.zeros(batch.size, batch.length, device=self.device)
            for row, i in enumerate(batch.members):
                samples[row, : lengths[i]] = clips[i]
            own = to_device(batch.lengths(lengths), self.device) if pad else None
            for i, row_codes in zip(batch.members, self.encode(samples, own), strict=False):
                codes[i] = row_codes[: -(-lengths[i] // self._samples_per_frame)]
        return [codes[i] for i in range(len(clips))]

    def convolve(self, samples: Tensor, own: Lengths | None = None) -> Tensor:
        """[B, N] -> [B, E, T]."""
        x = self.first(samples[:, None])
        for units, conv in self.stages:
            for unit in units:
                x = unit(x)
            if own is not None:
                x, own = own.silenced(x), own.divided(conv.stride)
            x = conv(F.elu(x))
        return self.last(F.elu(x))

    def transform(self, x: Tensor) -> Tensor:
        """[B, E, T] -> [B, E, T] through the causal transformer."""
        positions = self.positions(x.shape[-1])
        hidden = x.transpose(1, 2)  # [B, T, E]
        for layer in self.layers:
            hidden = layer(hidden, positions)
        return hidden.transpose(1, 2)

    def downsample(self, x: Tensor, own: Lengths | None = None) -> Tensor:
        """[B, E, T] -> [B, E, F]; `own` of the samples."""
        if self.downsampling is None:
            return x
        return self.downsampling(x if own is None else own.divided(self._hop).held(x))

    def quantize(self, x: Tensor) -> Tensor:
        """[B, E, F] -> [B, F, Q]; both quantisers see the same latent."""
        latent = x.transpose(1, 2)
        return torch.cat([quantizer(latent) for quantizer in self.quantizers], dim=-1)


class StridedConv:
    """Causal convolution: k - stride positions on the left, the last stride filled up on the right.

    [B, C, N] -> [B, C', ceil(N / stride)].
    """

    def __init__(
        self,
        take: Take,
        name: str,
        stride: int = 1,
        dilation: int = 1,
        bias: bool = True,
        pad_mode: str = "constant",
    ) -> None:
        self.weight = take(f"{name}.weight")
        self.bias = take(f"{name}.bias") if bias else None
        self.stride, self.dilation, self.pad_mode = stride, dilation, pad_mode
        self.left = (self.weight.shape[-1] - 1) * dilation + 1 - stride

    def __call__(self, x: Tensor) -> Tensor:
        x = F.pad(x, (self.left, -x.shape[-1] % self.stride), mode=self.pad_mode)
        return F.conv1d(x, self.weight, self.bias, self.stride, 0, self.dilation)


class ResidualUnit:
    """ELU, narrowing convolution, ELU, 1x1 convolution, plus the input."""

    def __init__(self, take: Take, name: str, dilation: int) -> None:
        self.narrow = StridedConv(take, f"{name}1.conv", dilation=dilation)
        self.widen = StridedConv(take, f"{name}3.conv")

    def __call__(self, x: Tensor) -> Tensor:
        return x + self.widen(F.elu(self.narrow(F.elu(x))))


class TransformerLayer:
    """Pre-norm attention and GELU MLP, each scaled per channel before it is added."""

    def __init__(self, take: Take, name: str, c: EncoderConfig) -> None:
        self.attention = CausalAttention(take, name, c.num_heads, c.num_kv_heads, c.head_dim)
        self.attention_norm = _layer_norm(take, f"{name}input_layernorm")
        self.mlp_norm = _layer_norm(take, f"{name}post_attention_layernorm")
        self.widen = take(f"{name}mlp.fc1.weight")
        self.narrow = scaled_rows(
            take(f"{name}mlp.fc2.weight"), take(f"{name}mlp_layer_scale.scale")
        )
        self.eps = c.norm_eps

    def __call__(self, x: Tensor, positions: Positions) -> Tensor:
        x = x + self.attention(self._norm(x, self.attention_norm), positions)
        return x + F.linear(F.gelu(F.linear(self._norm(x, self.mlp_norm), self.widen)), self.narrow)

    def _norm(self, x: Tensor, parameters: tuple[Tensor, Tensor]) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], *parameters, eps=self.eps)


def _layer_norm(take: Take, name: str) -> tuple[Tensor, Tensor]:
    return take(f"{name}.weight"), take(f"{name}.bias")


class ResidualQuantizer:
    """Nearest centroid of what the stages before left over: [B, F, E] -> [B, F, stages]."""

    def __init__(self, take: Take, name: str, num_stages: int) -> None:
        self.proj = take(f"{name}input_proj.weight")[:, :, 0]
        self.tables, self.half_norms = [], []
        for i in range(num_stages):
            book = f"{name}layers.{i}.codebook."
            table = take(f"{book}embed_sum") / take(f"{book}cluster_usage").clamp(min=1e-5)[:, None]
            self.tables.append(table)
            self.half_norms.append(table.square().sum(-1) / 2)

    def __call__(self, latent: Tensor) -> Tensor:
        residual = F.linear(latent, self.proj)
        codes = []
        for table, half_norm in zip(self.tables, self.half_norms, strict=True):
            # |x - c|^2 / 2 without |x|^2 / 2, which is the same for every centroid.
            code = (half_norm - residual @ table.T).argmin(-1)
            residual = residual - F.embedding(code, table)
            codes.append(code)
        return torch.stack(codes, dim=-1)
