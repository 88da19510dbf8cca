"""What the benches speak: rows whose lengths are drawn beforehand. Needs no torch.

Lengths are log-normal with a mean of 5 s, cut at 20 s; a text is as long as what is spoken in that
time, and `max_seconds` holds a model of random weights, which never ends by itself, to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from ttsbatch.errors import PlanError
from ttsbatch.types import ModelCard

Variant = Literal["named", "cloning", "embedding"]
"""A named, described or made up voice; clones in context; clones without the clip's text."""

MEAN_S, SIGMA, LONGEST_S, SHORTEST_S = 5.0, 0.6, 20.0, 0.5
CHARS_PER_S = 14.0
REFERENCE_S = 6.0
REFERENCE_RATE_HZ = 24_000
REFERENCE_TEXT = "The reference says a sentence of about this length, and a second one after it."
DESCRIPTION = "A calm, low voice that speaks clearly and without haste."
TEXT = (
    "the a river light under stone quiet morning paper window garden north slow bread copper "
    "harbour little weather answer yellow market carry evening between wooden letter"
)
WORDS = TEXT.split()


def lengths_s(count: int, seed: int = 0) -> np.ndarray:
    """[count] float64 seconds of the workload."""
    rng = np.random.default_rng(seed)
    mu = np.log(MEAN_S) - SIGMA**2 / 2
    return np.clip(rng.lognormal(mu, SIGMA, count), SHORTEST_S, LONGEST_S)


def workload(
    count: int, seed: int = 0, voices: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Corpus rows: `id`, `text`, `max_seconds`, and the fields of one of `voices` in turn."""
    rng = np.random.default_rng(seed + 1)
    voices = voices or [{}]
    rows = []
    for i, seconds in enumerate(lengths_s(count, seed)):
        words: list[str] = []
        while sum(map(len, words)) + len(words) < seconds * CHARS_PER_S:
            words.append(WORDS[rng.integers(len(WORDS))])
        row: dict[str, Any] = {"id": f"bench-{i:05d}", "text": " ".join(words).capitalize() + "."}
        rows.append(row | {"max_seconds": round(float(seconds), 2)} | voices[i % len(voices)])
    return rows


def voices_of(
    card: ModelCard, variant: Variant | None, num_references: int, folder: Path
) -> list[dict[str, Any]]:
    """What the rows of a workload say of the voice, to be used in turn.

    Args:
        card: whose voices.
        variant: None: cloning if the model clones, else named.
        num_references: clips to make, where the model clones.
        folder: where they go.

    Raises:
        PlanError: a variant that the model has no use for.
    """
    if variant is None:
        variant = "cloning" if card.needs_reference else "named"
    expected: list[Variant] = [] if card.needs_reference else ["named"]
    if "ref_audio" in card.options:
        expected += ["cloning", "embedding"]
    if variant not in expected:
        choices = " or ".join(expected)
        raise PlanError(f"--variant is {variant!r}; expected {choices} for {card.name}")
    if variant == "named":
        if card.voices:
            return [{"voice": card.voices[0]}]
        # What could clone a voice and has none makes up one by itself.
        is_described = "instruct" in card.options and "ref_audio" not in card.options
        return [{"instruct": DESCRIPTION}] if is_described else [{}]
    text = {"ref_text": REFERENCE_TEXT} if variant == "cloning" else {}
    clips = [write_clip(folder / f"ref-{n:03d}.wav", n) for n in range(num_references)]
    return [{"ref_audio": str(clip), **text} for clip in clips]


def write_clip(path: Path, seed: int, seconds: float = REFERENCE_S) -> Path:
    """A WAV file of noise whose loudness comes and goes a few times a second."""
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, clip(seed, seconds), REFERENCE_RATE_HZ)
    return path.resolve()


def clip(
    seed: int, seconds: float = REFERENCE_S, sample_rate_hz: int = REFERENCE_RATE_HZ
) -> np.ndarray:
    """[N] float32 samples in -1..1 of such noise, different for each seed."""
    rng = np.random.default_rng(seed)
    samples = round(seconds * sample_rate_hz)
    knots = max(2, round(5 * seconds))
    envelope = np.interp(np.arange(samples), np.linspace(0, samples, knots), rng.random(knots))
    noise = 0.3 * envelope * rng.standard_normal(samples)
    return np.clip(noise, -1, 1).astype(np.float32)
