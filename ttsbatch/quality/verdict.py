"""All checks of one take, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ttsbatch.quality.clipping import clipped_share
from ttsbatch.quality.duration import judge_duration, pace_of
from ttsbatch.quality.frames import measure_frames
from ttsbatch.quality.level import FLOOR_DB, measure_level
from ttsbatch.quality.loops import NO_LOOP, find_loops, is_unasked
from ttsbatch.quality.silence import measure_silence
from ttsbatch.quality.spectrum import measure_spectrum
from ttsbatch.quality.steady import steady_seconds
from ttsbatch.quality.voice import distance_db, is_wrong_speed
from ttsbatch.types import VoiceProfile, Waveform

# 419 rows of the embedded default: tail at most 0.5 s, silent share at most 0.57 (a clip of one
# word), speech level -30 to -23 dBFS, no DC, steady for at most 0.74 s, last 20 ms at -19 dB or
# less against the speech.
MAX_TAIL_S = 1.5
MAX_SILENT_SHARE = 0.7
MIN_SPEECH_DBFS = -50.0
MAX_CLIPPED_SHARE = 0.001
MAX_DC_OFFSET = 0.02
MAX_STEADY_S = 1.2
MAX_END_DB = -10.0


def check(
    samples: npt.NDArray[np.int16],
    waves: Sequence[Waveform],
    *,
    profile: VoiceProfile | None = None,
    trimmed_s: Sequence[float] = (),
) -> dict[str, Any]:
    """Measure a take and judge it.

    Args:
        samples: [N] int16, the whole utterance.
        waves: the segments that it was joined from, all of one row, at the samples' rate.
        profile: what is known of the voice.
        trimmed_s: silence that was cut off each segment's end, seconds.

    Returns:
        Every measured value, `reasons` (what is wrong, may be empty) and `verdict`: "pass" or
        "flag". Plain JSON values.
    """
    num_nonfinite = sum(w.num_nonfinite for w in waves)
    if len(samples) == 0:
        reasons = ["nonfinite", "empty"] if num_nonfinite else ["empty"]
        return {"verdict": "flag", "reasons": reasons, "duration_s": 0.0, "expected_s": 0.0}
    utterance, rate_hz = waves[0].segment.utterance, waves[0].sample_rate_hz
    expected_s = sum(w.segment.expected_s for w in waves)
    duration_s = len(samples) / rate_hz
    level = measure_level(samples)
    frames = measure_frames(samples, rate_hz)
    silence = measure_silence(samples, rate_hz, frames)
    clipped = clipped_share(samples)
    steady_s = steady_seconds(frames)
    is_silent = frames.speech_dbfs < MIN_SPEECH_DBFS
    spectrum = measure_spectrum(samples[:0] if is_silent else samples, rate_hz)
    loops = find_loops(spectrum)
    loop = max(loops, key=lambda found: found.excess_s, default=NO_LOOP)
    distance = None if profile is None else distance_db(spectrum, profile)
    length_faults = _length_faults(duration_s, waves, profile, trimmed_s)
    ends_db = [silence.end_db] if len(waves) == 1 else [_end_db(w) for w in waves]
    asked_to_stop = _has_run_on(waves) and utterance.max_seconds is not None
    found = {
        "nonfinite": num_nonfinite > 0,
        "silent": is_silent,
        "silent_tail": not is_silent and silence.tail_s > MAX_TAIL_S,
        "mostly_silent": not is_silent and silence.share > MAX_SILENT_SHARE,
        "clipped": clipped > MAX_CLIPPED_SHARE,
        "dc_offset": abs(level.dc_offset) > MAX_DC_OFFSET,
        "steady": not is_silent and steady_s > MAX_STEADY_S,
        "loop": any(is_unasked(x, utterance.spoken_text, utterance.language) for x in loops),
        "cut_off": not is_silent and not asked_to_stop and max(ends_db) > MAX_END_DB,
        **{name: name in length_faults for name in ("run_on", "too_long", "too_short")},
        "wrong_speed": profile is not None
        and distance is not None
        and is_wrong_speed(distance, duration_s, expected_s, profile),
    }
    reasons = [name for name, is_wrong in found.items() if is_wrong]
    return {
        "verdict": "flag" if reasons else "pass",
        "reasons": reasons,
        "duration_s": round(duration_s, 4),
        "expected_s": round(expected_s, 4),
        "seconds_per_char": round(duration_s / max(len(utterance.spoken_text), 1), 5),
        "silent_tail_s": round(silence.tail_s, 3),
        "trimmed_s": round(sum(trimmed_s), 4),
        "silent_share": round(silence.share, 4),
        "speech_dbfs": round(frames.speech_dbfs, 2),
        "peak_dbfs": round(level.peak_dbfs, 2),
        "rms_dbfs": round(level.rms_dbfs, 2),
        "end_db": round(max(ends_db), 1),
        "dc_offset": round(level.dc_offset, 6),
        "clipped_share": round(clipped, 6),
        "steady_s": round(steady_s, 3),
        "loop_s": round(loop.seconds, 3),
        "loop_lag_s": round(loop.lag_s, 3),
        "loop_excess_s": round(loop.excess_s, 4),
        "voice_distance_db": None if distance is None else round(distance, 2),
        "num_nonfinite": num_nonfinite,
    }


def _length_faults(
    duration_s: float,
    waves: Sequence[Waveform],
    profile: VoiceProfile | None,
    trimmed_s: Sequence[float],
) -> set[str]:
    """What is wrong with the length of a take: the whole of it, and each of its segments.

    A take that its row's own `max_seconds` stopped is as long as it was told to be.
    """
    utterance = waves[0].segment.utterance
    if _has_run_on(waves) and utterance.max_seconds is not None:
        return set()
    pace = pace_of(utterance, profile)
    parts = [(w.duration_s, w.segment.expected_s) for w in waves] if len(waves) > 1 else []
    whole = (duration_s, sum(w.segment.expected_s for w in waves))
    faults: set[str] = {
        judge_duration(s, expected_s, pace) or "" for s, expected_s in [whole, *parts]
    }
    for i, wave in enumerate(waves):
        was_trimmed = i < len(trimmed_s) and trimmed_s[i] > 0
        if wave.finish_reason == "length" and not was_trimmed:
            faults.add("run_on")
    return faults


def _has_run_on(waves: Sequence[Waveform]) -> bool:
    return any(w.finish_reason == "length" for w in waves)


def _end_db(wave: Waveform) -> float:
    """Level of a segment's end against its own speech; nothing ends in nothing."""
    if not len(wave.samples):
        return FLOOR_DB
    frames = measure_frames(wave.samples, wave.sample_rate_hz)
    if frames.speech_dbfs < MIN_SPEECH_DBFS:
        return FLOOR_DB
    return measure_silence(wave.samples, wave.sample_rate_hz, frames).end_db
