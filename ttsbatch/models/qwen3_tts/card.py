"""A checkpoint's ModelCard: read from its JSON files, without weights and without torch."""

from __future__ import annotations

import math
from pathlib import Path

from ttsbatch.errors import ModelError
from ttsbatch.models.content import content_hash
from ttsbatch.models.qwen3_tts.config import Qwen3TTSConfig, read_config
from ttsbatch.models.qwen3_tts.official import RANDOM_NAMES, random_config
from ttsbatch.types import ModelCard

LANGUAGE_CODES = {
    "chinese": "zh",
    "english": "en",
    "french": "fr",
    "german": "de",
    "italian": "it",
    "japanese": "ja",
    "korean": "ko",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
}
"""The names that the published checkpoints use, as ISO 639-1; other names stay as they are."""

SAMPLING = frozenset({"temperature", "top_k", "top_p", "repetition_penalty", "max_seconds"})


def open_card(model: str, name: str | None = None) -> ModelCard:
    """The card of a checkpoint folder or of `random:NAME`.

    Args:
        model: a folder, or `random:` and a name of RANDOM_NAMES.
        name: how the manifest names it; by default the folder's name or `model` itself.

    Raises:
        ModelError: unknown random name; files missing or damaged.
    """
    if model.startswith("random:"):
        key = model.removeprefix("random:").lower()
        if key not in RANDOM_NAMES:
            raise ModelError(f"{model}: unknown; known random models: {', '.join(RANDOM_NAMES)}")
        return _card(name or model, None, random_config(key), content_hash=f"random:{key}:0")
    folder = Path(model)
    config = read_config(folder)
    return _card(name or folder.resolve().name, str(folder), config, content_hash(folder))


def language_name(config: Qwen3TTSConfig, code: str) -> str | None:
    """The checkpoint's name of a language code; None where it has none ("auto" among them)."""
    for name in _languages(config):
        if LANGUAGE_CODES.get(name, name) == code:
            return name
    return None


def _languages(config: Qwen3TTSConfig) -> list[str]:
    return [n for n in config.talker.language_ids if "dialect" not in n]


def _card(name: str, path: str | None, config: Qwen3TTSConfig, content_hash: str) -> ModelCard:
    from ttsbatch.models.qwen3_tts.sizes import num_parameters

    options = set(SAMPLING)
    if config.takes_instruct:
        options.add("instruct")
    if config.kind == "base":
        options |= {"ref_audio", "ref_text"}
    voices = tuple(config.talker.speaker_ids)
    return ModelCard(
        name=name,
        family="qwen3_tts",
        path=path,
        sample_rate_hz=config.codec.output_sample_rate_hz,
        frame_rate_hz=config.codec.frame_rate_hz,
        num_codebooks=config.talker.num_codebooks,
        max_frames=config.generation.max_new_tokens - 1,
        languages=tuple(sorted(LANGUAGE_CODES.get(n, n) for n in _languages(config))),
        speaks_auto=True,
        voices=voices,
        default_voice=voices[0] if len(voices) == 1 else None,
        options=frozenset(options),
        needs_reference=config.kind == "base",
        licence="Apache-2.0",
        num_parameters=num_parameters(config),
        content_hash=content_hash,
        config=config,
    )


def context_frames(config: Qwen3TTSConfig, num_samples: int) -> int:
    """Codec frames of a reference of `num_samples` samples at the codec's input rate."""
    return math.ceil(num_samples / config.codec.encoder.samples_per_frame)
