"""A checkpoint's ModelCard: read from its JSON files, without weights and without torch."""

from __future__ import annotations

from pathlib import Path

from ttsbatch.errors import ModelError
from ttsbatch.models.content import content_hash
from ttsbatch.models.tensor_specs import num_parameters
from ttsbatch.models.voxcpm2.config import VoxCPM2Config, read_config
from ttsbatch.models.voxcpm2.official import RANDOM_NAMES, random_config
from ttsbatch.models.voxcpm2.specs import main_specs
from ttsbatch.types import ModelCard

LANGUAGES = (
    "ar",
    "da",
    "de",
    "el",
    "en",
    "es",
    "fi",
    "fr",
    "he",
    "hi",
    "id",
    "it",
    "ja",
    "km",
    "ko",
    "lo",
    "ms",
    "my",
    "nl",
    "no",
    "pl",
    "pt",
    "ru",
    "sv",
    "sw",
    "th",
    "tl",
    "tr",
    "vi",
    "zh",
)
"""As published; there is no language tag: the model hears it from the text."""

MAX_PATCHES = 4096  # official `max_len`
OPTIONS = frozenset({"instruct", "ref_audio", "ref_text", "guidance", "steps", "max_seconds"})
EXCLUSIVE = (("instruct", "ref_text", "a clip that is continued keeps its own style"),)


def open_card(model: str) -> ModelCard:
    """The card of a checkpoint folder or of `random:voxcpm2`.

    Raises:
        ModelError: unknown random name; files missing or damaged.
    """
    if model.startswith("random:"):
        key = model.removeprefix("random:").lower()
        if key not in RANDOM_NAMES:
            raise ModelError(f"{model}: unknown; known random models: {', '.join(RANDOM_NAMES)}")
        return _card(model, None, random_config(), f"random:{key}:0")
    folder = Path(model)
    config = read_config(folder)
    return _card(folder.resolve().name, str(folder), config, content_hash(folder))


def _card(name: str, path: str | None, config: VoxCPM2Config, content: str) -> ModelCard:
    return ModelCard(
        name=name,
        family="voxcpm2",
        path=path,
        sample_rate_hz=config.vae.output_sample_rate_hz,
        frame_rate_hz=config.patch_rate_hz,
        num_codebooks=0,
        max_frames=MAX_PATCHES,
        languages=LANGUAGES,
        speaks_auto=True,
        voices=(),
        default_voice=None,
        options=OPTIONS,
        needs_reference=False,
        licence="Apache-2.0",
        num_parameters=num_parameters(main_specs(config)),
        content_hash=content,
        config=config,
        exclusive=EXCLUSIVE,
    )
