"""All checks of one clip, and the verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ttsbatch.quality.clipping import clipped_share
from ttsbatch.quality.duration import judge_duration
from ttsbatch.quality.level import measure_level
from ttsbatch.quality.silence import measure_silence
from ttsbatch.types import FinishReason

# 50 sentences of the embedded default: tail at most 0.48 s, silent share at most 0.56 (a clip of
# one word), speech level -34 to -23 dBFS, no DC.
MAX_TAIL_S = 1.5
MAX_SILENT_SHARE = 0.7
MIN_SPEECH_DBFS = -50.0
MAX_CLIPPED_SHARE = 0.001
MAX_DC_OFFSET = 0.02


def check(
    samples: npt.NDArray[np.int16],
    sample_rate_hz: int,
    *,
    num_chars: int,
    expected_seconds: float,
    finish_reason: FinishReason,
    capped_by_row: bool,
    num_nonfinite: int = 0,
) -> dict[str, Any]:
    """Measure a clip and judge it.

    Args:
        samples: [N] int16, the whole utterance.
        sample_rate_hz: of the samples.
        num_chars: of the spoken text.
        expected_seconds: what the text should take.
        finish_reason: "length" if any segment reached its cap.
        capped_by_row: the cap was asked for (`max_seconds`), not derived from the text. Such a
            clip is as long as it was told to be, so its length is no fault.
        num_nonfinite: samples that were NaN or infinite before they became int16.

    Returns:
        Every measured value, `reasons` (what is wrong, may be empty) and `verdict`: "pass" or
        "flag". Plain JSON values.
    """
    if len(samples) == 0:
        reasons = ["nonfinite", "empty"] if num_nonfinite else ["empty"]
        return {"verdict": "flag", "reasons": reasons, "duration_s": 0.0}
    duration_s = len(samples) / sample_rate_hz
    level = measure_level(samples)
    silence = measure_silence(samples, sample_rate_hz)
    clipped = clipped_share(samples)
    stopped_by_row = finish_reason == "length" and capped_by_row
    wrong_length = None if stopped_by_row else judge_duration(duration_s, expected_seconds)
    silent = silence.speech_dbfs < MIN_SPEECH_DBFS
    found = {
        "nonfinite": num_nonfinite > 0,
        "silent": silent,
        "silent_tail": not silent and silence.tail_s > MAX_TAIL_S,
        "mostly_silent": not silent and silence.share > MAX_SILENT_SHARE,
        "clipped": clipped > MAX_CLIPPED_SHARE,
        "dc_offset": abs(level.dc_offset) > MAX_DC_OFFSET,
        "run_on": finish_reason == "length" and not capped_by_row,
        "too_long": wrong_length == "too_long",
        "too_short": wrong_length == "too_short",
    }
    reasons = [name for name, is_wrong in found.items() if is_wrong]
    return {
        "verdict": "flag" if reasons else "pass",
        "reasons": reasons,
        "duration_s": round(duration_s, 4),
        "expected_s": round(expected_seconds, 4),
        "seconds_per_char": round(duration_s / max(num_chars, 1), 5),
        "silent_tail_s": round(silence.tail_s, 3),
        "silent_share": round(silence.share, 4),
        "speech_dbfs": round(silence.speech_dbfs, 2),
        "peak_dbfs": round(level.peak_dbfs, 2),
        "rms_dbfs": round(level.rms_dbfs, 2),
        "dc_offset": round(level.dc_offset, 6),
        "clipped_share": round(clipped, 6),
        "num_nonfinite": num_nonfinite,
    }
