"""What speech_tokenizer/config.json and `speaker_encoder_config` say, as frozen dataclasses.

The codec's two halves are parsed apart, since only in-context cloning needs the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ttsbatch.errors import ModelError
from ttsbatch.models.section import Section


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes of the codec decoder: codes to samples."""

    codebook_size: int
    num_quantizers: int
    codebook_dim: int  # width of the sum of all codebooks; a codebook row has half of it
    latent_dim: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    sliding_window: int  # frames that a query sees, itself included
    rope_theta: float
    rms_norm_eps: float
    upsampling_ratios: tuple[int, ...]  # of the ConvNeXt stages
    upsample_rates: tuple[int, ...]  # of the SnakeBeta blocks; each halves the width
    decoder_dim: int

    @property
    def samples_per_frame(self) -> int:
        """Output samples of one frame of codes."""
        return math.prod(self.upsampling_ratios) * math.prod(self.upsample_rates)


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Sizes of the codec encoder: samples to codes (Mimi)."""

    num_filters: int
    kernel_size: int
    last_kernel_size: int
    residual_kernel_size: int
    dilation_growth_rate: int
    num_residual_layers: int
    compress: int
    upsampling_ratios: tuple[int, ...]  # decoder order; the encoder strides run the other way
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    num_quantizers: int  # in the checkpoint
    num_semantic_quantizers: int
    valid_quantizers: int  # in use: semantic first, then acoustic
    codebook_size: int
    codebook_dim: int
    samples_per_frame: int

    @property
    def downsampling(self) -> int:
        """Transformer positions per frame of codes."""
        return self.samples_per_frame // math.prod(self.upsampling_ratios)


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """speech_tokenizer/config.json."""

    input_sample_rate_hz: int
    output_sample_rate_hz: int
    decoder: DecoderConfig
    encoder: EncoderConfig

    @property
    def frame_rate_hz(self) -> float:
        """Frames of codes per second of output."""
        return self.output_sample_rate_hz / self.decoder.samples_per_frame


@dataclass(frozen=True, slots=True)
class SpeakerConfig:
    """Sizes of the speaker encoder; the defaults are the published architecture's."""

    enc_dim: int
    sample_rate_hz: int = 24000
    mel_dim: int = 128
    channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    kernel_sizes: tuple[int, ...] = (5, 3, 3, 3, 1)
    dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    attention_channels: int = 128
    res2net_scale: int = 8
    se_channels: int = 128


FFT_SAMPLES = 1024  # window and transform of the speaker encoder's mel, at 24 kHz
HOP_SAMPLES = 256


def parse_codec_config(raw: Mapping[str, Any], where: str) -> CodecConfig:
    """Read the codec's config.

    Args:
        raw: the parsed JSON.
        where: its place, which begins every message.

    Raises:
        ModelError: a key that is missing or of the wrong type, sizes that contradict each
            other, or an architecture switch that this implementation does not have.
    """
    top = Section(raw, where)
    decoder = _parse_decoder(Section(top.get("decoder_config", dict), f"{where}: decoder_config"))
    encoder = _parse_encoder(
        Section(top.get("encoder_config", dict), f"{where}: encoder_config"),
        valid_quantizers=top.integer("encoder_valid_num_quantizers"),
        samples_per_frame=top.integer("encode_downsample_rate"),
    )
    upsample_rate = top.integer("decode_upsample_rate")
    if upsample_rate != decoder.samples_per_frame:
        raise ModelError(
            f"{where}: decode_upsample_rate is {upsample_rate}, but upsample_rates and "
            f"upsampling_ratios multiply to {decoder.samples_per_frame}"
        )
    return CodecConfig(
        input_sample_rate_hz=top.integer("input_sample_rate"),
        output_sample_rate_hz=top.integer("output_sample_rate"),
        decoder=decoder,
        encoder=encoder,
    )


def parse_speaker_config(raw: Mapping[str, Any], where: str) -> SpeakerConfig:
    """Read `speaker_encoder_config`; the published files hold `enc_dim` and `sample_rate` only.

    Raises:
        ModelError: as `parse_codec_config`.
    """
    where = f"{where}: speaker_encoder_config"
    section = Section(raw, where)
    default = SpeakerConfig(enc_dim=section.integer("enc_dim"))
    config = SpeakerConfig(
        enc_dim=default.enc_dim,
        sample_rate_hz=section.integer("sample_rate", default.sample_rate_hz),
        mel_dim=section.integer("mel_dim", default.mel_dim),
        channels=section.integers("enc_channels", default.channels),
        kernel_sizes=section.integers("enc_kernel_sizes", default.kernel_sizes),
        dilations=section.integers("enc_dilations", default.dilations),
        attention_channels=section.integer("enc_attention_channels", default.attention_channels),
        res2net_scale=section.integer("enc_res2net_scale", default.res2net_scale),
        se_channels=section.integer("enc_se_channels", default.se_channels),
    )
    depth = len(config.channels)
    if depth < 3 or len(config.kernel_sizes) != depth or len(config.dilations) != depth:
        raise ModelError(
            f"{where}: enc_channels, enc_kernel_sizes and enc_dilations have {depth}, "
            f"{len(config.kernel_sizes)} and {len(config.dilations)} entries; expected the "
            "same number, 3 or more"
        )
    blocks = config.channels[:-1]
    if len(set(blocks)) != 1 or config.channels[-1] != sum(blocks[1:]):
        raise ModelError(
            f"{where}: enc_channels is {list(config.channels)}; expected equal widths, then "
            "their sum without the first"
        )
    if config.res2net_scale < 2 or blocks[0] % config.res2net_scale:
        raise ModelError(
            f"{where}: enc_res2net_scale is {config.res2net_scale}; expected 2 or more, a "
            f"divisor of {blocks[0]}"
        )
    return config


def _parse_decoder(section: Section) -> DecoderConfig:
    section.expect("attention_bias", False)
    section.expect("hidden_act", "silu")
    config = DecoderConfig(
        codebook_size=section.integer("codebook_size"),
        num_quantizers=section.integer("num_quantizers"),
        codebook_dim=section.integer("codebook_dim"),
        latent_dim=section.integer("latent_dim"),
        hidden_size=section.integer("hidden_size"),
        intermediate_size=section.integer("intermediate_size"),
        num_layers=section.integer("num_hidden_layers"),
        num_heads=section.integer("num_attention_heads"),
        num_kv_heads=section.integer("num_key_value_heads"),
        head_dim=section.integer("head_dim"),
        sliding_window=section.integer("sliding_window"),
        rope_theta=section.number("rope_theta", 10000.0),
        rms_norm_eps=section.number("rms_norm_eps", 1e-5),
        upsampling_ratios=section.integers("upsampling_ratios"),
        upsample_rates=section.integers("upsample_rates"),
        decoder_dim=section.integer("decoder_dim"),
    )
    section.divides("codebook_dim", config.codebook_dim, 2)
    section.divides("num_attention_heads", config.num_heads, config.num_kv_heads)
    section.divides("decoder_dim", config.decoder_dim, 2 ** len(config.upsample_rates))
    if config.num_quantizers < 2:
        raise ModelError(f"{section.where}.num_quantizers is 1; expected 2 or more")
    return config


def _parse_encoder(
    section: Section, valid_quantizers: int, samples_per_frame: int
) -> EncoderConfig:
    # An absent key means the value of the Mimi class, which is what the published file relies on.
    section.expect("audio_channels", 1)
    section.expect("use_causal_conv", True)
    section.expect("use_conv_shortcut", False)
    section.expect("pad_mode", "constant")
    section.expect("attention_bias", False)
    section.expect("hidden_act", "gelu")
    heads = section.integer("num_attention_heads", 8)
    hidden = section.integer("hidden_size", 512)
    codebook_dim = section.integer("codebook_dim", 256)
    config = EncoderConfig(
        num_filters=section.integer("num_filters", 64),
        kernel_size=section.integer("kernel_size", 7),
        last_kernel_size=section.integer("last_kernel_size", 3),
        residual_kernel_size=section.integer("residual_kernel_size", 3),
        dilation_growth_rate=section.integer("dilation_growth_rate", 2),
        num_residual_layers=section.integer("num_residual_layers", 1),
        compress=section.integer("compress", 2),
        upsampling_ratios=section.integers("upsampling_ratios", (8, 6, 5, 4)),
        hidden_size=hidden,
        intermediate_size=section.integer("intermediate_size", 2048),
        num_layers=section.integer("num_hidden_layers", 8),
        num_heads=heads,
        num_kv_heads=section.integer("num_key_value_heads", heads),
        head_dim=section.integer("head_dim", hidden // heads),
        norm_eps=section.number("norm_eps", 1e-5),
        rope_theta=section.number("rope_theta", 10000.0),
        num_quantizers=section.integer("num_quantizers", 32),
        num_semantic_quantizers=section.integer("num_semantic_quantizers", 1),
        valid_quantizers=valid_quantizers,
        codebook_size=section.integer("codebook_size", 2048),
        codebook_dim=codebook_dim,
        samples_per_frame=samples_per_frame,
    )
    section.divides(
        "encode_downsample_rate", samples_per_frame, math.prod(config.upsampling_ratios)
    )
    section.divides("num_attention_heads", heads, config.num_kv_heads)
    projection = section.integer("vector_quantization_hidden_dimension", codebook_dim)
    if projection != codebook_dim:
        raise ModelError(
            f"{section.where}.vector_quantization_hidden_dimension is {projection}; "
            f"expected codebook_dim, {codebook_dim}"
        )
    if not config.num_semantic_quantizers <= valid_quantizers <= config.num_quantizers:
        raise ModelError(
            f"{section.where}: encoder_valid_num_quantizers is {valid_quantizers}; expected "
            f"{config.num_semantic_quantizers} to {config.num_quantizers} (num_quantizers)"
        )
    return config
