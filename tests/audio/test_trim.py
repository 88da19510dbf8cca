"""Trimming keeps samples, frames and codes consistent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttsbatch.audio.trim import KEPT_S, trim_tail
from ttsbatch.judging import MIN_TRIM_TAIL_S, trim_run_ons
from ttsbatch.types import FinishReason, Segment, Utterance, Waveform

RATE_HZ, FRAME = 1_000, 80


def wave(
    num_samples: int,
    num_frames: int = 0,
    finish_reason: FinishReason = "length",
    max_seconds: float | None = None,
) -> Waveform:
    row = Utterance("a", "a", "a", "rows", 1, None, "en", 0, max_seconds=max_seconds)
    samples = np.arange(num_samples, dtype=np.int16)
    codes = np.arange(num_frames * 2, dtype=np.int16).reshape(-1, 2) if num_frames else None
    return Waveform(Segment(row, 0, "a"), samples, RATE_HZ, finish_reason, num_frames, 0, codes)


@given(st.integers(1, 60), st.floats(0, 10))
def test_what_is_cut_is_whole_frames_of_the_tail(num_frames: int, tail_s: float) -> None:
    before = wave(num_frames * FRAME, num_frames)
    after, trimmed_s = trim_tail(before, tail_s)
    assert 1 <= after.num_frames <= num_frames
    assert len(after.samples) == after.num_frames * FRAME
    assert after.codes is not None
    assert np.array_equal(after.codes, before.codes[: after.num_frames])
    assert np.array_equal(after.samples, before.samples[: len(after.samples)])
    assert trimmed_s == pytest.approx((len(before.samples) - len(after.samples)) / RATE_HZ)
    assert trimmed_s <= max(0.0, tail_s - KEPT_S)
    if after.num_frames > 1:
        assert trimmed_s > tail_s - KEPT_S - FRAME / RATE_HZ - 1e-9


def test_a_model_without_frames_is_cut_at_a_sample() -> None:
    after, trimmed_s = trim_tail(wave(2_000), 1.0)
    assert (len(after.samples), trimmed_s) == (1_300, 0.7)


def test_only_a_run_on_that_nobody_asked_for_is_trimmed() -> None:
    def cut_off(**given: object) -> float:
        one = wave(3 * 24_000, **given)  # type: ignore[arg-type]
        samples = np.zeros(3 * 24_000, np.int16)
        samples[:24_000] = 8_000 * np.sin(np.arange(24_000) / 20)
        loud = Waveform(one.segment, samples, 24_000, one.finish_reason, 0)
        (kept,), (trimmed_s,) = trim_run_ons([loud])
        assert kept.duration_s == pytest.approx(3 - trimmed_s)
        return trimmed_s

    assert cut_off() == pytest.approx(2 - KEPT_S, abs=0.02)
    assert cut_off(finish_reason="stop") == 0
    assert cut_off(max_seconds=3.0) == 0


def test_silence_alone_is_left_as_it_is() -> None:
    silent = Waveform(wave(1).segment, np.zeros(24_000 * 4, np.int16), 24_000, "length", 0)
    assert trim_run_ons([silent]) == ([silent], [0.0])
    assert MIN_TRIM_TAIL_S > KEPT_S
