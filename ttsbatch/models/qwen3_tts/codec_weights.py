"""Reading the codec's and the speaker encoder's weights, strictly, and random stand-ins.

Names and shapes are those of `codec_specs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ttsbatch.models.qwen3_tts.codec_config import (
    CodecConfig,
    DecoderConfig,
    EncoderConfig,
    SpeakerConfig,
)
from ttsbatch.models.qwen3_tts.codec_specs import (
    DECODER_PREFIX,
    ENCODER_PREFIX,
    SPEAKER_PREFIX,
    decoder_specs,
    encoder_specs,
    speaker_specs,
    unused_codec_specs,
)
from ttsbatch.models.weights import check_tensors, random_weights, read_safetensors

Weights = Mapping[str, Tensor]


def load_codec_weights(
    path: Path, config: CodecConfig
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Read and check speech_tokenizer/model.safetensors.

    Returns:
        Weights of the decoder and of the encoder, on the CPU in the stored dtype.

    Raises:
        ModelError: the file cannot be read, or it lacks tensors, has unknown ones, or has one of
            another shape than the config says; every such name is in the message.
    """
    state = read_safetensors(path)
    for name in unused_codec_specs(config):
        state.pop(name, None)
    used = {DECODER_PREFIX + k: s for k, s in decoder_specs(config.decoder).items()}
    used |= {ENCODER_PREFIX + k: s for k, s in encoder_specs(config.encoder).items()}
    check_tensors(state, used, str(path))
    return strip_prefix(state, DECODER_PREFIX), strip_prefix(state, ENCODER_PREFIX)


def select_speaker_weights(state: Weights, config: SpeakerConfig, source: str) -> dict[str, Tensor]:
    """Take the speaker encoder's tensors out of the main checkpoint's.

    Raises:
        ModelError: as `load_codec_weights`, for names under `speaker_encoder.`.
    """
    own = {k: v for k, v in state.items() if k.startswith(SPEAKER_PREFIX)}
    check_tensors(own, {SPEAKER_PREFIX + k: s for k, s in speaker_specs(config).items()}, source)
    return strip_prefix(own, SPEAKER_PREFIX)


def strip_prefix(state: Weights, prefix: str) -> dict[str, Tensor]:
    """The tensors under a prefix, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def random_decoder_weights(
    config: DecoderConfig, generator: torch.Generator, device: torch.device | str
) -> dict[str, Tensor]:
    """Random decoder weights whose output is noise, neither silent nor clipped."""
    return random_weights(decoder_specs(config), generator, device)


def random_encoder_weights(
    config: EncoderConfig, generator: torch.Generator, device: torch.device | str
) -> dict[str, Tensor]:
    """Random encoder weights."""
    return random_weights(encoder_specs(config), generator, device)


def random_speaker_weights(
    config: SpeakerConfig, generator: torch.Generator, device: torch.device | str
) -> dict[str, Tensor]:
    """Random speaker encoder weights."""
    return random_weights(speaker_specs(config), generator, device)
