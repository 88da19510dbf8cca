"""Faults planted into real speech are found, and good speech is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.quality.planted import FAULTS, TRIMMED, Spoken, at_rate, judge, planted, speak

EACH = 6
NAMED = {
    "silent": "silent",
    "clipped": "clipped",
    "cut": "too_short",
    "looped": "loop",
    "run-on to the cap": "run_on",
    "run-on that ends by itself": "too_long",
    "speed 0.6": "too_long",
    "speed 1.6": "too_short",
    "not a number": "nonfinite",
}


@pytest.fixture(scope="module")
def by_voice() -> list[Spoken]:
    return speak(Path(__file__).parent / "data" / "sentences.jsonl")


@pytest.fixture(scope="module", params=[24_000, 48_000])
def spoken(by_voice: list[Spoken], request: pytest.FixtureRequest) -> list[Spoken]:
    """The rows at the sample rate of each kind of model."""
    return [at_rate(row, request.param) for row in by_voice]


def takes(spoken: list[Spoken], fault: str, calibrated: bool = True) -> list[dict[str, Any]]:
    rng = np.random.default_rng(len(fault))
    chosen = rng.choice(len(spoken), EACH, replace=False)
    return [judge([planted(spoken[i], fault, rng)], calibrated) for i in chosen]


def test_no_good_row_is_flagged(spoken: list[Spoken]) -> None:
    assert len(spoken) == 36
    for row in spoken:
        assert judge(row.waves)["reasons"] == [], row.utterance.text
        assert judge(row.waves, calibrated=False)["reasons"] == [], row.utterance.text


@pytest.mark.parametrize("fault", sorted(NAMED))
def test_every_planted_fault_is_flagged(spoken: list[Spoken], fault: str) -> None:
    assert set(NAMED) | {TRIMMED} == set(FAULTS)
    found = takes(spoken, fault)
    assert [v["verdict"] for v in found] == ["flag"] * EACH
    assert all(NAMED[fault] in v["reasons"] for v in found), [v["reasons"] for v in found]


@pytest.mark.parametrize("fault", sorted(set(NAMED) - {"cut", "speed 0.6", "speed 1.6"}))
def test_what_is_no_matter_of_pace_shows_where_the_voice_is_unknown(
    spoken: list[Spoken], fault: str
) -> None:
    assert [v["verdict"] for v in takes(spoken, fault, calibrated=False)] == ["flag"] * EACH


def test_a_run_on_into_silence_is_trimmed(spoken: list[Spoken]) -> None:
    for verdict in takes(spoken, TRIMMED):
        assert (verdict["verdict"], verdict["reasons"]) == ("pass", [])
        assert verdict["trimmed_s"] > 1
        assert 0.2 < verdict["silent_tail_s"] < 0.4
