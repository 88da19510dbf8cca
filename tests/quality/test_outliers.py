"""A run's own measure: flags by check, and rows that are far from the pace of their voice."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.sinks.fake_run import utterance
from ttsbatch.quality.outliers import NUM_NAMED, RunSurvey
from ttsbatch.sinks.manifest import manifest_line
from ttsbatch.types import ShardRecord


def line(
    row_id: str,
    duration_s: float = 4.0,
    reasons: tuple[str, ...] = (),
    expected_s: float = 4.0,
    **row: Any,
) -> bytes:
    u = replace(utterance(row_id), **row)
    checks = {
        "verdict": "flag" if reasons else "pass",
        "reasons": list(reasons),
        "duration_s": duration_s,
        "expected_s": expected_s,
    }
    record = ShardRecord(u, "0" * 32, np.zeros(1, np.int16), 24_000, "stop", 0, 1, (), checks)
    return manifest_line(record, "m", "audio/shard-00000/a.wav", None, 46)


def survey(lines: list[bytes]) -> dict[str, Any]:
    found = RunSurvey()
    found.add_lines(lines)
    return found.result()


def usual(count: int, voice: str, pace: float = 1.0) -> list[bytes]:
    rng = random.Random(voice)
    lines = []
    for i in range(count):
        duration_s = round(4 * pace * rng.gauss(1, 0.06), 4)
        lines.append(line(f"{voice}{i}", duration_s, voice=voice, language="de"))
    return lines


def test_flags_are_counted_by_check_most_first() -> None:
    lines = [line("a", reasons=("loop", "too_long")), line("b", reasons=("loop",)), line("c")]
    assert list(survey(lines)["flags"].items()) == [("loop", 2), ("too_long", 1)]


def test_a_row_far_from_its_own_voice_is_named() -> None:
    lines = [
        *usual(200, "slow", pace=1.4),
        *usual(200, "fast", pace=0.8),
        line("dragging", 5.6, voice="fast", language="de"),
        line("hasty", 3.2, voice="slow", language="de"),
    ]
    fast, slow = survey(lines)["paces"]
    assert (fast["language"], fast["voice"], fast["rows"]) == ("de", "fast", 201)
    assert fast["pace"] == pytest.approx(0.8, rel=0.02)
    assert fast["spread"] == pytest.approx(0.06, rel=0.35)
    assert [x["id"] for x in fast["examples"]] == ["dragging"]
    assert fast["examples"][0]["times_the_pace"] == pytest.approx(1.75, rel=0.02)
    assert (slow["outliers"], [x["id"] for x in slow["examples"]]) == (1, ["hasty"])


def test_the_result_does_not_depend_on_the_order_of_rows() -> None:
    lines = usual(300, "one") + [line(f"x{i}", 12.0, voice="one", language="de") for i in range(30)]
    first = survey(lines)
    random.Random(1).shuffle(lines)
    assert survey(lines) == first
    assert first["paces"][0]["outliers"] == 30
    assert len(first["paces"][0]["examples"]) == NUM_NAMED


def test_a_few_rows_say_nothing_about_a_voice() -> None:
    few = survey([*usual(10, "few"), line("x", 40.0, voice="few", language="de")])["paces"][0]
    assert (few["rows"], few["outliers"], few["examples"]) == (11, 0, [])


def test_short_texts_and_rows_without_a_voice_are_read_right() -> None:
    lines = [
        line("short", expected_s=0.8),
        line("none", voice=None),
        line("empty", 0.0, ("empty",)),
    ]
    found = survey(lines)
    assert [(p["voice"], p["rows"]) for p in found["paces"]] == [("-", 1)]
    assert found["flags"] == {"empty": 1}


def test_a_text_that_looks_like_checks_is_no_checks() -> None:
    trap = '", "voice": "x", "language": "xx", "checks": {"verdict": "flag", "reasons": ["loop"], '
    found = survey([line("trap", text=trap, spoken_text=trap, voice='a"b')])
    assert found["flags"] == {}
    assert [(p["language"], p["voice"]) for p in found["paces"]] == [("en", 'a"b')]
