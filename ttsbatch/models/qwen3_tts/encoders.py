"""The two encoders of reference clips, without the rest of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ttsbatch.errors import ModelError
from ttsbatch.models.qwen3_tts.codec_encoder import CodecEncoder
from ttsbatch.models.qwen3_tts.codec_weights import (
    load_codec_weights,
    random_encoder_weights,
    random_speaker_weights,
    select_speaker_weights,
)
from ttsbatch.models.qwen3_tts.config import Qwen3TTSConfig
from ttsbatch.models.qwen3_tts.speaker import SpeakerEncoder
from ttsbatch.models.weights import read_safetensors
from ttsbatch.types import ModelCard


@dataclass(slots=True)
class Encoders:
    """The speaker encoder and the codec's encoder, both in float32."""

    device: torch.device
    speaker: SpeakerEncoder
    codec: CodecEncoder
    sample_rate_hz: int = 24_000

    def embed(self, clips: list[Tensor]) -> Tensor:
        """[N_i] f32 mono clips to their voice vectors [len(clips), E]."""
        return self.speaker.embed_clips(clips)

    def encode(self, clips: list[Tensor]) -> list[Tensor]:
        """[N_i] f32 mono clips to their codes, [R_i, Q] int64 each."""
        return self.codec.encode_clips(clips)

    def parts(self) -> dict[str, Callable[[list[Tensor]], object]]:
        """See `models.protocol.ReferenceEncoders`."""
        return {"speaker": self.embed, "codec encoder": self.encode}


def load_encoders(card: ModelCard, device: torch.device) -> Encoders:
    """The encoders of a Base card alone.

    Raises:
        ModelError: a model without them; tensors missing, misshapen or unreadable.
    """
    config: Qwen3TTSConfig = card.config
    if config.speaker is None:
        raise ModelError(f"{card.name}: has no speaker encoder; expected a Base model")
    if card.path is None:
        return random_encoders(config, torch.Generator(device=device).manual_seed(0), device)
    folder = Path(card.path)
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= read_safetensors(file)
    speaker = select_speaker_weights(tensors, config.speaker, str(folder))
    codec_file = folder / "speech_tokenizer" / "model.safetensors"
    _, codec = load_codec_weights(codec_file, config.codec)
    return make_encoders(config, speaker, codec, device)


def make_encoders(
    config: Qwen3TTSConfig,
    speaker: Mapping[str, Tensor],
    codec: Mapping[str, Tensor],
    device: torch.device,
) -> Encoders:
    """The encoders of a Base config, from weights on any device."""
    assert config.speaker is not None
    return Encoders(
        device,
        SpeakerEncoder(config.speaker, speaker, device),
        CodecEncoder(config.codec.encoder, codec, device),
    )


def random_encoders(config: Qwen3TTSConfig, g: torch.Generator, device: torch.device) -> Encoders:
    """The encoders of a Base config, of random weights."""
    assert config.speaker is not None
    speaker = random_speaker_weights(config.speaker, g, device)
    codec = random_encoder_weights(config.codec.encoder, g, device)
    return make_encoders(config, speaker, codec, device)
