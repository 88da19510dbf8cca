"""The gates: good speech passes, each planted fault is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ttsbatch.models import open_card
from ttsbatch.quality import check
from ttsbatch.quality.clipping import clipped_share
from ttsbatch.text.duration import expected_seconds
from ttsbatch.types import FinishReason, Segment, Utterance, VoiceProfile, Waveform

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


def wave(
    text: str,
    samples: Samples,
    finish_reason: FinishReason = "stop",
    num_nonfinite: int = 0,
    index: int = 0,
    **row: Any,
) -> Waveform:
    fields: dict[str, Any] = {"language": "en", "voice": None, "seed": 0} | row
    utterance = Utterance("a", text, text, "rows", 1, **fields)
    segment = Segment(utterance, index, text, 0, expected_seconds(text, utterance.language))
    return Waveform(segment, samples, RATE, finish_reason, 0, num_nonfinite)


def judge(text: str, samples: Samples, **given: Any) -> dict[str, Any]:
    profile = given.pop("profile", None)
    return check(samples, [wave(text, samples, **given)], profile=profile)


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
        (lambda s: np.tile(s, 4), "loop"),
        (lambda s: np.concatenate([s[:36000], s[21600:36000], s[36000:]]), "loop"),
        (lambda s: np.concatenate([s, np.tile(np.int16([900, -900]), RATE)]), "steady"),
        (lambda s: s[: len(s) // 7], "too_short"),
        (lambda s: s[:32000], "cut_off"),
        (lambda s: s[:0], "empty"),
    ],
)
def test_planted_fault_is_named(speech, fault: Callable[[Samples], Samples], reason: str) -> None:
    for text, samples in speech[:2]:
        result = judge(text, fault(samples))
        assert result["verdict"] == "flag"
        assert reason in result["reasons"]


def test_length_from_the_text_is_a_run_on_and_from_the_row_is_not(speech) -> None:
    text, samples = speech[0]
    assert judge(text, samples, finish_reason="length")["reasons"] == ["run_on"]
    cut = samples[RATE // 2 : RATE * 3 // 4]
    asked = {"finish_reason": "length", "max_seconds": 9.0}
    assert judge(text, cut, **asked)["verdict"] == "pass"
    assert "too_long" not in judge(text, np.tile(samples, 5), **asked)["reasons"]
    assert judge(text, cut, max_seconds=9.0)["reasons"] == ["cut_off", "too_short"]


def test_a_trimmed_run_on_is_none_but_its_neighbour_is(speech) -> None:
    text, samples = speech[0]
    waves = [wave(text, samples, "length"), wave(text, samples, "length", index=1)]
    other = speech[1][1]
    waves[1] = replace(waves[1], samples=other)
    both = np.concatenate([samples, other])
    assert check(both, waves, trimmed_s=[2.0, 1.0])["verdict"] == "pass"
    assert check(both, waves, trimmed_s=[2.0, 1.0])["trimmed_s"] == 3.0
    assert check(both, waves, trimmed_s=[2.0, 0.0])["reasons"] == ["run_on"]


def test_a_segment_that_was_cut_shows_in_a_long_row(speech) -> None:
    text, samples = speech[0]
    half = samples[:32000]
    waves = [wave(text, half), *(wave(text, speech[1][1], index=i) for i in range(1, 4))]
    whole = np.concatenate([w.samples for w in waves])
    reasons = check(whole, waves)["reasons"]
    assert {"cut_off", "too_short"} <= set(reasons)
    assert "too_long" not in reasons


def test_what_the_text_repeats_may_sound_alike(speech) -> None:
    text, samples = speech[1]
    refrain = np.concatenate([samples, samples])
    assert judge(f"{text} {text}", refrain)["reasons"] == []
    assert judge(f"{text} It was the last of them all.", refrain)["reasons"] == ["loop"]


def test_a_measured_voice_is_held_to_its_own_pace(speech) -> None:
    text, samples = speech[0]
    slow = VoiceProfile(pace=1.9)
    assert judge(text, samples)["reasons"] == []
    assert judge(text, samples, profile=slow)["reasons"] == ["too_short"]
    # An instruction may ask for any pace.
    assert judge(text, samples, profile=slow, instruct="quickly")["reasons"] == []


def test_a_wrong_speed_shows_in_the_voice_before_it_does_in_the_length(speech) -> None:
    import soxr

    text, samples = speech[0]
    profile = open_card(None).profiles["heart"]
    slow = soxr.resample(samples.astype(np.float32), RATE * 0.7, RATE).astype(np.int16)
    assert judge(text, slow)["reasons"] == []
    assert judge(text, slow, profile=profile)["reasons"] == ["wrong_speed"]
    fast = soxr.resample(samples.astype(np.float32), RATE * 1.3, RATE).astype(np.int16)
    assert judge(text, fast)["reasons"] == []
    assert "wrong_speed" in judge(text, fast, profile=profile)["reasons"]


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


def test_flat_tops_below_full_scale_are_clipping_where_they_are_three_long() -> None:
    samples = (10_000 * np.sin(np.arange(1000) / 7)).astype(np.int16)
    assert clipped_share(samples) == 0
    assert clipped_share(np.clip(samples, -6_000, 6_000)) > 0.3
    assert clipped_share(np.full(100, 5, np.int16)) == 0
    samples[:4] = [-32768, -32767, -32768, -32767]
    assert clipped_share(samples) == 0.004
