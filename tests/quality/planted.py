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

LEAD_S, TAIL_S = 0.3, 0.4  # quiet at the edges of the default's clips
IMAGE = 0.3  # of the speech's mirror image above its band, at twice its rate

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


@dataclass(frozen=True, slots=True)
class Clip:
    """The good samples of a take."""

    samples: Floats  # [N] -1..1
    rate_hz: int
    expected_s: float

    def count(self, seconds: float) -> int:
        """Samples of so many seconds."""
        return round(seconds * self.rate_hz)

    @property
    def cap(self) -> int:
        """The most samples that the text may become."""
        return self.count(CAP_FACTOR * self.expected_s + CAP_SLACK_S)

    @property
    def speech(self) -> tuple[int, int]:
        """Where the speech begins and ends."""
        return self.count(LEAD_S), len(self.samples) - self.count(TAIL_S)


def planted(spoken: Spoken, fault: str, rng: Rng) -> Waveform:
    """The take of one segment with a fault in it."""
    (wave,) = spoken.waves
    good = wave.samples.astype(np.float32) / 32767
    made = FAULTS[fault](Clip(good, wave.sample_rate_hz, wave.segment.expected_s), rng)
    samples, num_nonfinite = to_int16(made)
    finish_reason = "length" if fault.startswith("run-on to the cap") else "stop"
    return replace(wave, samples=samples, num_nonfinite=num_nonfinite, finish_reason=finish_reason)


def at_rate(spoken: Spoken, rate_hz: int) -> Spoken:
    """A row as a model of another sample rate would speak it."""
    return replace(spoken, waves=tuple(_at_rate(w, rate_hz) for w in spoken.waves))


def _at_rate(wave: Waveform, rate_hz: int) -> Waveform:
    if rate_hz == wave.sample_rate_hz:
        return wave
    samples = wave.samples.astype(np.float32) / 32768
    made = soxr.resample(samples, wave.sample_rate_hz, rate_hz)
    if rate_hz == 2 * wave.sample_rate_hz:  # so that the upper band is not empty
        made += IMAGE * (np.repeat(samples, 2) - made)
    return replace(wave, samples=to_int16(made * 0.98)[0], sample_rate_hz=rate_hz)


def _silent(clip: Clip, rng: Rng) -> Floats:
    """Digital silence, faint noise, or the speech at a thousandth."""
    kind = rng.integers(3)
    if kind == 0:
        return np.zeros_like(clip.samples)
    return clip.samples * 1e-3 if kind == 1 else _noise(len(clip.samples), rng) * 3e-4


def _clipped(clip: Clip, rng: Rng) -> Floats:
    """Amplified into the end of the scale; every other one made quieter afterwards."""
    peak = np.abs(clip.samples).max()
    loud = np.clip(clip.samples * rng.uniform(2.5, 10) / peak, -1, 1)
    return loud * np.float32(rng.choice([1.0, 0.6]))


def _cut(clip: Clip, rng: Rng) -> Floats:
    """Ends in the middle of the speech."""
    first, last = clip.speech
    return clip.samples[: first + round(rng.uniform(0.3, 0.6) * (last - first))]


def _looped(clip: Clip, rng: Rng) -> Floats:
    """A part of 0.5 to 1 s, most of it speech, comes two to four times."""
    good, (first, last) = clip.samples, clip.speech
    size = min(clip.count(rng.uniform(0.5, 1.0)), (last - first) * 3 // 4)
    for _ in range(100):
        start = int(rng.integers(first, last - size + 1))
        part = good[start : start + size]
        if np.mean(np.abs(part) > 0.01) > 0.3:  # samples near zero are half of any speech
            break
    return np.concatenate([good[:start], *[part] * int(rng.integers(2, 5)), good[start + size :]])


def _run_on(clip: Clip, rng: Rng) -> Floats:
    """Speech, then noise, hum or babble up to the cap that its text has."""
    return np.concatenate([clip.samples, _sound(clip.cap - len(clip.samples), clip, rng)])


def _run_on_unmarked(clip: Clip, rng: Rng) -> Floats:
    """Speech, then 3 to 6 s of noise, hum or babble; the model says that it ended by itself."""
    return np.concatenate([clip.samples, _sound(clip.count(rng.uniform(3, 6)), clip, rng)])


def _run_on_silent(clip: Clip, _rng: Rng) -> Floats:
    return np.concatenate([clip.samples, np.zeros(clip.cap - len(clip.samples), np.float32)])


def _sound(size: int, clip: Clip, rng: Rng) -> Floats:
    kind, level = rng.integers(3), float(rng.uniform(0.02, 0.2))
    if kind == 0:
        return level * _noise(size, rng)
    time_s = np.arange(size, dtype=np.float32) / clip.rate_hz
    if kind == 1:
        hum = sum(np.sin(2 * np.pi * 50 * n * time_s) / n for n in range(1, 6))
        return (level * hum).astype(np.float32)
    good = clip.samples
    backwards = np.tile(good[::-1], size // len(good) + 2)  # sounds of the voice, no words
    return backwards[:size] + np.roll(backwards, clip.rate_hz // 3)[:size]


def _noise(size: int, rng: Rng) -> Floats:
    return rng.standard_normal(size).astype(np.float32)


def _at_speed(factor: float) -> Callable[[Clip, Rng], Floats]:
    def change(clip: Clip, _rng: Rng) -> Floats:
        return soxr.resample(clip.samples, clip.rate_hz * factor, clip.rate_hz).astype(np.float32)

    return change


def _nan(clip: Clip, rng: Rng) -> Floats:
    """One to 2,000 samples are not a number, or infinite."""
    broken, size = clip.samples.copy(), int(rng.integers(1, 2_000))
    start = int(rng.integers(0, len(broken) - size))
    broken[start : start + size] = rng.choice([np.nan, np.inf, -np.inf])
    return broken


FAULTS: dict[str, Callable[[Clip, Rng], Floats]] = {
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
"""Name -> (good take, rng) -> faulty samples, -1..1."""

TRIMMED = "run-on to the cap, silent"  # the one fault that is put right in place of a flag
