"""The gates: good speech passes, each planted fault is named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ttsbatch.quality import check
from ttsbatch.quality.clipping import clipped_share
from ttsbatch.text.duration import expected_seconds

RATE = 24000
SENTENCES = (
    "The harbour was quiet when the first boats came back.",
    "Please send the signed form before Friday afternoon.",
    "No.",
)

Samples = npt.NDArray[np.int16]


@pytest.fixture(scope="module")
def speech() -> list[tuple[str, Samples]]:
    import hibari

    tts = hibari.Hibari()
    waves = [(text, tts(text, seed=i)) for i, text in enumerate(SENTENCES)]
    return [(t, np.clip(np.rint(w * 32767), -32768, 32767).astype(np.int16)) for t, w in waves]


def judge(text: str, samples: Samples, **given: Any) -> dict[str, Any]:
    options = {"finish_reason": "stop", "capped_by_row": False} | given
    expected = expected_seconds(text, "en")
    return check(samples, RATE, num_chars=len(text), expected_seconds=expected, **options)


def test_good_speech_passes_and_every_value_is_json(speech) -> None:
    for text, samples in speech:
        result = judge(text, samples)
        assert (result["verdict"], result["reasons"]) == ("pass", [])
        assert json.loads(json.dumps(result, allow_nan=False)) == result
        assert result["duration_s"] == round(len(samples) / RATE, 4)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda s: s * 0, "silent"),
        (lambda s: np.clip(s.astype(np.int32) * 12, -32768, 32767).astype(np.int16), "clipped"),
        (lambda s: np.concatenate([s, np.zeros(RATE * 2, np.int16)]), "silent_tail"),
        (lambda s: np.concatenate([s[:9600], np.zeros(len(s) * 4, np.int16)]), "mostly_silent"),
        (lambda s: s + np.int16(1500), "dc_offset"),
        (lambda s: np.tile(s, 4), "too_long"),
        (lambda s: s[: len(s) // 7], "too_short"),
        (lambda s: s[:0], "empty"),
    ],
)
def test_planted_fault_is_named(speech, fault, reason: str) -> None:
    for text, samples in speech[:2]:
        result = judge(text, fault(samples))
        assert result["verdict"] == "flag"
        assert reason in result["reasons"]


def test_length_from_the_text_is_a_run_on_and_from_the_row_is_not(speech) -> None:
    text, samples = speech[0]
    assert judge(text, samples, finish_reason="length")["reasons"] == ["run_on"]
    cut = samples[RATE // 2 : RATE * 3 // 4]
    asked = {"finish_reason": "length", "capped_by_row": True}
    assert judge(text, cut, **asked)["verdict"] == "pass"
    assert judge(text, np.tile(samples, 5), **asked)["verdict"] == "pass"
    assert judge(text, cut, capped_by_row=True)["reasons"] == ["too_short"]


def test_nonfinite_samples_are_flagged(speech) -> None:
    text, samples = speech[0]
    result = judge(text, samples, num_nonfinite=1)
    assert (result["reasons"], result["num_nonfinite"]) == (["nonfinite"], 1)


def test_quiet_speech_is_still_speech(speech) -> None:
    for text, samples in speech:
        assert judge(text, (samples // 8).astype(np.int16))["verdict"] == "pass"


def test_silent_tail_is_measured_to_a_frame(speech) -> None:
    text, samples = speech[0]
    base = judge(text, samples)["silent_tail_s"]
    longer = np.concatenate([samples, np.zeros(RATE, np.int16)])
    assert judge(text, longer)["silent_tail_s"] == pytest.approx(base + 1, abs=0.021)


def test_one_sample_clip_is_judged_without_error() -> None:
    assert judge("a", np.array([100], np.int16))["verdict"] in ("pass", "flag")


def test_single_peak_is_not_clipping() -> None:
    samples = np.zeros(10, np.int16)
    samples[4] = 32767
    assert clipped_share(samples) == 0
    samples[5] = 32767
    assert clipped_share(samples) == 0.2
