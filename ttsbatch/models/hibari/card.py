"""What is known of the embedded model without loading it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
from pathlib import Path

from ttsbatch.errors import ModelError, PlanError
from ttsbatch.models.hibari.speakable import CannotRead
from ttsbatch.plan import EnginePlan
from ttsbatch.types import ModelCard, VoiceProfile

NAME = "hibari"
VOICE = "heart"  # the one voice whose weights are inside the wheel
SAMPLE_RATE_HZ = 24_000
NUM_PARAMETERS = 6_150_000  # as published with the package
LICENCE = "Apache-2.0"
AUDIO_S_PER_CORE_S = 50  # measured on one core of a server CPU, 54 on short sentences

# Of 326 rows of 2 to 12 s; `recipes/quality/measure_voice.py` measures a run's voices.
PROFILE = VoiceProfile(
    pace=1.02,
    spectrum_db=(
        *(3.2, 13.3, 8.0, 6.0, 4.4, 2.6, 1.5, -1.0),
        *(-3.3, -4.0, -3.7, -4.2, -3.8, -5.5, -6.1, -7.5),
    ),
)


def open_card() -> ModelCard:
    """The card of the embedded model; reads its weights file once, to hash it, and its letters.

    Raises:
        ModelError: the package hibari-tts is not installed, or is incomplete.
    """
    weights = weights_path()
    digest = hashlib.sha256(importlib.metadata.version("hibari-tts").encode())
    digest.update(weights.read_bytes())
    return ModelCard(
        name=NAME,
        family=NAME,
        path=None,
        sample_rate_hz=SAMPLE_RATE_HZ,
        frame_rate_hz=None,
        num_codebooks=0,
        max_frames=None,
        languages=("en",),
        speaks_auto=True,
        voices=(VOICE,),
        default_voice=VOICE,
        # It has no sampling, no instruction, no cloning; and it cannot be told to stop early, so
        # a `max_seconds` could only be met by cutting words off.
        options=frozenset(),
        needs_reference=False,
        licence=LICENCE,
        num_parameters=NUM_PARAMETERS,
        content_hash=digest.hexdigest(),
        profiles={VOICE: PROFILE},
        cannot_read=CannotRead(_alphabet(weights.parent)),
    )


def weights_path() -> Path:
    """The ONNX file inside the installed package, found without importing it.

    Raises:
        ModelError: not installed, or the file is not there.
    """
    spec = importlib.util.find_spec("hibari")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise ModelError(
            "the embedded model needs the package hibari-tts, which is not installed; "
            "expected: pip install hibari-tts"
        )
    weights = Path(folders[0]) / "assets" / "hibari.onnx"
    if not weights.is_file():
        raise ModelError(f"{weights}: not there; the package hibari-tts is incomplete")
    return weights


def _alphabet(assets: Path) -> frozenset[str]:
    """The letters that its phonemizer spells words by that are in no lexicon."""
    path = assets / "oov.json"
    try:
        return frozenset(json.loads(path.read_text("utf8"))["in"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ModelError(
            f"{path}: cannot be read ({e}); the package hibari-tts is incomplete, or a release "
            "that is not known here"
        ) from e


def available_cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def num_workers(plan: EnginePlan) -> int:
    """Rows that are spoken at once."""
    return plan.slots or available_cores()


def typical_speed(plan: EnginePlan) -> float:
    """Audio seconds per second to expect."""
    return AUDIO_S_PER_CORE_S * min(num_workers(plan), available_cores())


def check_engine_plan(plan: EnginePlan) -> None:
    """Refuse what the embedded model has no use for.

    Raises:
        PlanError: `--device cuda` or a `--dtype`.
    """
    if plan.device not in ("auto", "cpu"):
        raise PlanError(f"--device is {plan.device!r}; the embedded model runs on cpu only")
    if plan.dtype != "auto":
        raise PlanError(
            f"--dtype is {plan.dtype!r}; the embedded model has fixed int8 weights: expected auto"
        )
