"""Name, shape and random scale of every tensor of codec and speaker encoder; no torch.

Names are the checkpoint's without the leading `decoder.`, `encoder.` or `speaker_encoder.`.

Source: tensor names and shapes of the published Qwen3-TTS-Tokenizer-12Hz checkpoint layout
(package qwen-tts 0.1.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ttsbatch.models.qwen3_tts.codec_config import (
    CodecConfig,
    DecoderConfig,
    EncoderConfig,
    SpeakerConfig,
)
from ttsbatch.models.tensor_specs import Specs, TensorSpec

DECODER_PREFIX = "decoder."
ENCODER_PREFIX = "encoder."
SPEAKER_PREFIX = "speaker_encoder."


def decoder_specs(config: DecoderConfig) -> Specs:
    """Every tensor that the codec decoder uses."""
    c = config
    specs: Specs = {}
    for part, count in (("rvq_first", 1), ("rvq_rest", c.num_quantizers - 1)):
        for i in range(count):
            book = f"quantizer.{part}.vq.layers.{i}._codebook."
            specs[book + "embedding_sum"] = TensorSpec(
                (c.codebook_size, c.codebook_dim // 2), std=1
            )
            specs[book + "cluster_usage"] = TensorSpec((c.codebook_size,), mean=1)
        specs[f"quantizer.{part}.output_proj.weight"] = _weight(
            c.codebook_dim, c.codebook_dim // 2, 1, gain=count**-0.5
        )
    specs |= _conv("pre_conv.conv", c.latent_dim, c.codebook_dim, 3)
    specs |= _transformer_specs(c)
    for i, ratio in enumerate(c.upsampling_ratios):
        specs |= _upsampling_conv(f"upsample.{i}.0.conv", c.latent_dim, c.latent_dim, ratio, ratio)
        block = f"upsample.{i}.1."
        specs |= _conv(block + "dwconv.conv", c.latent_dim, 1, 7)
        specs |= _norm(block + "norm", c.latent_dim, bias=True)
        specs[block + "pwconv1.weight"] = _weight(4 * c.latent_dim, c.latent_dim)
        specs[block + "pwconv1.bias"] = TensorSpec((4 * c.latent_dim,))
        specs[block + "pwconv2.weight"] = _weight(c.latent_dim, 4 * c.latent_dim)
        specs[block + "pwconv2.bias"] = TensorSpec((c.latent_dim,))
        specs[block + "gamma"] = TensorSpec((c.latent_dim,), mean=0.1)
    specs |= _conv("decoder.0.conv", c.decoder_dim, c.latent_dim, 7)
    width = c.decoder_dim
    for b, rate in enumerate(c.upsample_rates, start=1):
        block = f"decoder.{b}.block."
        specs |= _snake(block + "0", width)
        specs |= _upsampling_conv(block + "1.conv", width, width // 2, 2 * rate, rate, gain=0.8)
        width //= 2
        for unit in (2, 3, 4):
            specs |= _snake(f"{block}{unit}.act1", width)
            specs |= _conv(f"{block}{unit}.conv1.conv", width, width, 7)
            specs |= _snake(f"{block}{unit}.act2", width)
            specs |= _conv(f"{block}{unit}.conv2.conv", width, width, 1, gain=0.3)
    last = len(c.upsample_rates) + 1
    specs |= _snake(f"decoder.{last}", width)
    specs |= _conv(f"decoder.{last + 1}.conv", 1, width, 7, gain=0.2)
    return specs


def _transformer_specs(c: DecoderConfig) -> Specs:
    specs: Specs = {}
    for name, rows, cols in (
        ("input_proj", c.hidden_size, c.latent_dim),
        ("output_proj", c.latent_dim, c.hidden_size),
    ):
        specs[f"pre_transformer.{name}.weight"] = _weight(rows, cols)
        specs[f"pre_transformer.{name}.bias"] = TensorSpec((rows,))
    for i in range(c.num_layers):
        layer = f"pre_transformer.layers.{i}."
        specs |= _attention(layer, c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim)
        specs[layer + "mlp.gate_proj.weight"] = _weight(c.intermediate_size, c.hidden_size)
        specs[layer + "mlp.up_proj.weight"] = _weight(c.intermediate_size, c.hidden_size)
        specs[layer + "mlp.down_proj.weight"] = _weight(c.hidden_size, c.intermediate_size)
        specs |= _norm(layer + "input_layernorm", c.hidden_size)
        specs |= _norm(layer + "post_attention_layernorm", c.hidden_size)
    return specs | _norm("pre_transformer.norm", c.hidden_size)


def encoder_specs(config: EncoderConfig) -> Specs:
    """Every tensor that the codec encoder uses."""
    c = config
    specs = _conv("encoder.layers.0.conv", c.num_filters, 1, c.kernel_size)
    for stage in encoder_stages(c):
        for index, _ in stage.residuals:
            block = f"encoder.layers.{index}.block."
            inner = stage.width // c.compress
            specs |= _conv(block + "1.conv", inner, stage.width, c.residual_kernel_size)
            specs |= _conv(block + "3.conv", stage.width, inner, 1)
        specs |= _conv(
            f"encoder.layers.{stage.conv_index}.conv",
            2 * stage.width,
            stage.width,
            2 * stage.stride,
        )
    last = encoder_stages(c)[-1]
    specs |= _conv(
        f"encoder.layers.{last.conv_index + 2}.conv",
        c.hidden_size,
        2 * last.width,
        c.last_kernel_size,
    )
    for i in range(c.num_layers):
        layer = f"encoder_transformer.layers.{i}."
        specs |= _attention(layer, c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim)
        specs[layer + "mlp.fc1.weight"] = _weight(c.intermediate_size, c.hidden_size)
        specs[layer + "mlp.fc2.weight"] = _weight(c.hidden_size, c.intermediate_size)
        specs |= _norm(layer + "input_layernorm", c.hidden_size, bias=True)
        specs |= _norm(layer + "post_attention_layernorm", c.hidden_size, bias=True)
    if c.downsampling > 1:
        specs["downsample.conv.weight"] = _weight(c.hidden_size, c.hidden_size, 2 * c.downsampling)
    for part, count, _ in encoder_quantizers(c):
        specs[part + "input_proj.weight"] = _weight(c.codebook_dim, c.hidden_size, 1)
        for i in range(count):
            specs |= _encoder_codebook(part, i, c)
    return specs


def encoder_quantizers(config: EncoderConfig) -> list[tuple[str, int, int]]:
    """(name prefix, stages in use, stages in the checkpoint) of the two residual quantisers."""
    semantic = config.num_semantic_quantizers
    return [
        ("quantizer.semantic_residual_vector_quantizer.", semantic, semantic),
        (
            "quantizer.acoustic_residual_vector_quantizer.",
            config.valid_quantizers - semantic,
            config.num_quantizers - semantic,
        ),
    ]


@dataclass(frozen=True, slots=True)
class EncoderStage:
    """Residual units, then a strided convolution that doubles the width."""

    width: int
    residuals: tuple[tuple[int, int], ...]  # (layer index, dilation)
    conv_index: int
    stride: int


def encoder_stages(config: EncoderConfig) -> list[EncoderStage]:
    """The convolutional stages with their layer numbers; an activation counts as a layer."""
    stages = []
    index, width = 1, config.num_filters
    for stride in reversed(config.upsampling_ratios):
        residuals = tuple(
            (index + j, config.dilation_growth_rate**j) for j in range(config.num_residual_layers)
        )
        conv_index = index + config.num_residual_layers + 1
        stages.append(EncoderStage(width, residuals, conv_index, stride))
        index, width = conv_index + 1, 2 * width
    return stages


def speaker_specs(config: SpeakerConfig) -> Specs:
    """Every tensor of the speaker encoder."""
    c = config
    width, last = c.channels[0], c.channels[-1]
    specs = _conv("blocks.0.conv", width, c.mel_dim, c.kernel_sizes[0], gain=2**0.5)
    for i in range(1, len(c.channels) - 1):
        block = f"blocks.{i}."
        specs |= _conv(block + "tdnn1.conv", width, width, 1, gain=2**0.5)
        slice_width = width // c.res2net_scale
        for j in range(c.res2net_scale - 1):
            name = f"{block}res2net_block.blocks.{j}.conv"
            specs |= _conv(name, slice_width, slice_width, c.kernel_sizes[i])
        specs |= _conv(block + "tdnn2.conv", width, width, 1, gain=2**0.5)
        specs |= _conv(block + "se_block.conv1", c.se_channels, width, 1)
        specs |= _conv(block + "se_block.conv2", width, c.se_channels, 1)
    specs |= _conv("mfa.conv", last, last, c.kernel_sizes[-1], gain=2**0.5)
    specs |= _conv("asp.tdnn.conv", c.attention_channels, 3 * last, 1)
    specs |= _conv("asp.conv", last, c.attention_channels, 1)
    return specs | _conv("fc", c.enc_dim, 2 * last, 1)


def unused_codec_specs(config: CodecConfig) -> Specs:
    """Tensors of the codec file that synthesis has no use for, by their full names."""
    d, e = config.decoder, config.encoder
    specs: Specs = {}
    for part in ("rvq_first", "rvq_rest"):
        specs[f"{DECODER_PREFIX}quantizer.{part}.input_proj.weight"] = TensorSpec(
            (d.codebook_dim // 2, d.codebook_dim, 1)
        )
    for part, used, stored in encoder_quantizers(e):
        part = ENCODER_PREFIX + part
        specs[part + "output_proj.weight"] = TensorSpec((e.hidden_size, e.codebook_dim, 1))
        for i in range(stored):
            specs[f"{part}layers.{i}.codebook.initialized"] = TensorSpec((1,))
            if i >= used:
                specs |= _encoder_codebook(part, i, e)
    return specs


def _weight(rows: int, cols: int, kernel: int | None = None, gain: float = 1.0) -> TensorSpec:
    shape = (rows, cols) if kernel is None else (rows, cols, kernel)
    return TensorSpec(shape, std=gain / math.sqrt(math.prod(shape[1:])))


def _conv(name: str, out: int, inner: int, kernel: int, gain: float = 1.0) -> Specs:
    weight = _weight(out, inner, kernel, gain)
    return {f"{name}.weight": weight, f"{name}.bias": TensorSpec((out,))}


def _upsampling_conv(
    name: str, inner: int, out: int, kernel: int, stride: int, gain: float = 1.0
) -> Specs:
    # An output sample sums kernel / stride taps of each input channel.
    std = gain / math.sqrt(inner * kernel / stride)
    return {
        f"{name}.weight": TensorSpec((inner, out, kernel), std=std),
        f"{name}.bias": TensorSpec((out,)),
    }


def _snake(name: str, width: int) -> Specs:
    return {f"{name}.alpha": TensorSpec((width,)), f"{name}.beta": TensorSpec((width,))}


def _norm(name: str, width: int, bias: bool = False) -> Specs:
    specs = {f"{name}.weight": TensorSpec((width,), mean=1)}
    return specs | ({f"{name}.bias": TensorSpec((width,))} if bias else {})


def _attention(layer: str, hidden: int, heads: int, kv_heads: int, head_dim: int) -> Specs:
    return {
        f"{layer}self_attn.q_proj.weight": _weight(heads * head_dim, hidden),
        f"{layer}self_attn.k_proj.weight": _weight(kv_heads * head_dim, hidden),
        f"{layer}self_attn.v_proj.weight": _weight(kv_heads * head_dim, hidden),
        f"{layer}self_attn.o_proj.weight": _weight(hidden, heads * head_dim),
        f"{layer}self_attn_layer_scale.scale": TensorSpec((hidden,), mean=0.1),
        f"{layer}mlp_layer_scale.scale": TensorSpec((hidden,), mean=0.1),
    }


def _encoder_codebook(part: str, index: int, c: EncoderConfig) -> Specs:
    book = f"{part}layers.{index}.codebook."
    # Later stages quantise what earlier ones left over, so their centroids are closer.
    std = 0.9 ** min(index, 32)
    return {
        book + "embed_sum": TensorSpec((c.codebook_size, c.codebook_dim), std=std),
        book + "cluster_usage": TensorSpec((c.codebook_size,), mean=1),
    }
