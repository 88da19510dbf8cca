"""The models that `ttsbatch models` lists. Any other checkpoint of a known family works too."""

from __future__ import annotations

from dataclasses import dataclass

from ttsbatch.models.hibari import card as hibari


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A published model, as `--model` takes it."""

    name: str
    licence: str
    num_parameters: int
    sample_rate_hz: int
    what: str


def _qwen3(name: str, num_parameters: int, what: str) -> KnownModel:
    return KnownModel(f"Qwen/Qwen3-TTS-12Hz-{name}", "Apache-2.0", num_parameters, 24_000, what)


KNOWN_MODELS = (
    KnownModel(
        hibari.NAME,
        hibari.LICENCE,
        hibari.NUM_PARAMETERS,
        hibari.SAMPLE_RATE_HZ,
        "embedded default: English, one voice, no GPU",
    ),
    _qwen3("0.6B-CustomVoice", 905_788_672, "10 languages, named voices"),
    _qwen3("0.6B-Base", 914_643_008, "10 languages, clones a reference"),
    _qwen3("1.7B-CustomVoice", 1_916_676_352, "10 languages, named voices, instructions"),
    _qwen3("1.7B-VoiceDesign", 1_916_676_352, "10 languages, a voice from its description"),
    _qwen3("1.7B-Base", 1_928_677_440, "10 languages, clones a reference"),
    KnownModel(
        "openbmb/VoxCPM2",
        "Apache-2.0",
        2_290_004_544,
        48_000,
        "30 languages, a voice from its description or a reference",
    ),
)
"""Numbers of parameters as published, codec not counted."""
