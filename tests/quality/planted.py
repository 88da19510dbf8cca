"""Faults planted into real speech of the embedded default, and how the gates see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soxr

from ttsbatch.audio.join import join_segments
from ttsbatch.corpus.scan import scan
from ttsbatch.engine.budget import CAP_FACTOR, CAP_SLACK_S
from ttsbatch.judging import trim_run_ons
from ttsbatch.loading import open_speaker
from ttsbatch.models import open_card
from ttsbatch.models.hibari.model import to_int16
from ttsbatch.plan import make_plan
from ttsbatch.production import cut
from ttsbatch.quality import check
from ttsbatch.text.segment import pauses_s
from ttsbatch.types import Demand, Utterance, VoiceProfile, Waveform

RATE_HZ = 24_000
LEAD_S, TAIL_S = 0.3, 0.4  # quiet at the edges of the default's clips

Floats = npt.NDArray[np.float32]
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Spoken:
    """A row and its good take."""

    utterance: Utterance
    waves: tuple[Waveform, ...]

    @property
    def is_whole(self) -> bool:
        return len(self.waves) == 1


def speak(corpus: Path, limit: int | None = None) -> list[Spoken]:
    """The rows of a corpus as `synth` speaks them, first attempts."""
    plan = make_plan({"corpus": [str(corpus)], "limit": limit})
    card = open_card(None)
    rows = [u for u in scan(plan.corpus, plan.rows, card) if isinstance(u, Utterance)]
    speaker = open_speaker(card, plan.engine, False, Demand(len(rows)))
    waves: dict[str, list[Waveform]] = {u.id: [] for u in rows}
    for wave in speaker.speak([s for u in rows for s in cut(u)]):
        assert isinstance(wave, Waveform), wave
        waves[wave.segment.utterance.id].append(wave)
    speaker.close()
    by_index = {k: tuple(sorted(w, key=lambda x: x.segment.index)) for k, w in waves.items()}
    return [Spoken(u, by_index[u.id]) for u in rows]


def judge(waves: Sequence[Waveform], calibrated: bool = True) -> dict[str, Any]:
    """What production records of a take; uncalibrated: as if the voice had not been measured."""
    utterance = waves[0].segment.utterance
    profile = _profiles()[utterance.voice or ""] if calibrated else None
    kept, trimmed_s = trim_run_ons(waves)
    pauses = pauses_s(utterance.spoken_text, [w.segment.text for w in kept])
    return check(join_segments(kept, pauses), kept, profile=profile, trimmed_s=trimmed_s)


@cache
def _profiles() -> Mapping[str, VoiceProfile]:
    return open_card(None).profiles


def planted(spoken: Spoken, fault: str, rng: Rng) -> Waveform:
    """The take of one segment with a fault in it."""
    (wave,) = spoken.waves
    good = wave.samples.astype(np.float32) / 32767
    made = FAULTS[fault](good, wave.segment.expected_s, rng)
    samples, num_nonfinite = to_int16(made)
    finish_reason = "length" if fault.startswith("run-on to the cap") else "stop"
    return replace(wave, samples=samples, num_nonfinite=num_nonfinite, finish_reason=finish_reason)


def _silent(good: Floats, _expected_s: float, rng: Rng) -> Floats:
    """Digital silence, faint noise, or the speech at a thousandth."""
    kind = rng.integers(3)
    if kind == 0:
        return np.zeros_like(good)
    return good * 1e-3 if kind == 1 else _noise(len(good), rng) * 3e-4


def _clipped(good: Floats, _expected_s: float, rng: Rng) -> Floats:
    """Amplified into the end of the scale; every other one made quieter afterwards."""
    loud = np.clip(good * rng.uniform(2.5, 10) / np.abs(good).max(), -1, 1)
    return loud * np.float32(rng.choice([1.0, 0.6]))


def _cut(good: Floats, _expected_s: float, rng: Rng) -> Floats:
    """Ends in the middle of the speech."""
    first, last = round(LEAD_S * RATE_HZ), len(good) - round(TAIL_S * RATE_HZ)
    return good[: first + round(rng.uniform(0.3, 0.6) * (last - first))]


def _looped(good: Floats, _expected_s: float, rng: Rng) -> Floats:
    """A part of 0.5 to 1 s, most of it speech, comes two to four times."""
    first, last = round(LEAD_S * RATE_HZ), len(good) - round(TAIL_S * RATE_HZ)
    size = min(round(rng.uniform(0.5, 1.0) * RATE_HZ), (last - first) * 3 // 4)
    for _ in range(100):
        start = int(rng.integers(first, last - size + 1))
        part = good[start : start + size]
        if np.mean(np.abs(part) > 0.01) > 0.3:  # samples near zero are half of any speech
            break
    return np.concatenate([good[:start], *[part] * int(rng.integers(2, 5)), good[start + size :]])


def _run_on(good: Floats, expected_s: float, rng: Rng) -> Floats:
    """Speech, then noise, hum or babble up to the cap that its text has."""
    cap = round((CAP_FACTOR * expected_s + CAP_SLACK_S) * RATE_HZ)
    return np.concatenate([good, _sound(cap - len(good), good, rng)])


def _run_on_unmarked(good: Floats, _expected_s: float, rng: Rng) -> Floats:
    """Speech, then 3 to 6 s of noise, hum or babble; the model says that it ended by itself."""
    return np.concatenate([good, _sound(round(rng.uniform(3, 6) * RATE_HZ), good, rng)])


def _run_on_silent(good: Floats, expected_s: float, _rng: Rng) -> Floats:
    cap = round((CAP_FACTOR * expected_s + CAP_SLACK_S) * RATE_HZ)
    return np.concatenate([good, np.zeros(cap - len(good), np.float32)])


def _sound(size: int, good: Floats, rng: Rng) -> Floats:
    kind, level = rng.integers(3), float(rng.uniform(0.02, 0.2))
    if kind == 0:
        return level * _noise(size, rng)
    time_s = np.arange(size, dtype=np.float32) / RATE_HZ
    if kind == 1:
        hum = sum(np.sin(2 * np.pi * 50 * n * time_s) / n for n in range(1, 6))
        return (level * hum).astype(np.float32)
    backwards = np.tile(good[::-1], size // len(good) + 2)  # sounds of the voice, no words
    return backwards[:size] + np.roll(backwards, RATE_HZ // 3)[:size]


def _noise(size: int, rng: Rng) -> Floats:
    return rng.standard_normal(size).astype(np.float32)


def _at_speed(factor: float) -> Callable[[Floats, float, Rng], Floats]:
    def change(good: Floats, _expected_s: float, _rng: Rng) -> Floats:
        return soxr.resample(good, RATE_HZ * factor, RATE_HZ).astype(np.float32)

    return change


def _nan(good: Floats, _expected_s: float, rng: Rng) -> Floats:
    """One to 2,000 samples are not a number, or infinite."""
    broken, size = good.copy(), int(rng.integers(1, 2_000))
    start = int(rng.integers(0, len(good) - size))
    broken[start : start + size] = rng.choice([np.nan, np.inf, -np.inf])
    return broken


FAULTS: dict[str, Callable[[Floats, float, Rng], Floats]] = {
    "silent": _silent,
    "clipped": _clipped,
    "cut": _cut,
    "looped": _looped,
    "run-on to the cap": _run_on,
    "run-on that ends by itself": _run_on_unmarked,
    "run-on to the cap, silent": _run_on_silent,
    "speed 0.6": _at_speed(0.6),
    "speed 1.6": _at_speed(1.6),
    "not a number": _nan,
}
"""Name -> (good samples in -1..1, expected seconds, rng) -> faulty samples."""

TRIMMED = "run-on to the cap, silent"  # the one fault that is put right in place of a flag
