"""Long rows are spoken in pieces: the outer loop, driven by a fake speaker."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fake_speaker import FakeSpeaker
from tests.sinks.fake_run import utterance
from ttsbatch.cli.options import plan_from
from ttsbatch.errors import PlanError
from ttsbatch.pipeline import synthesize
from ttsbatch.plan import make_plan
from ttsbatch.production import cut
from ttsbatch.progress import Quiet
from ttsbatch.report import RunReport
from ttsbatch.text.segment import SENTENCE_PAUSE_S, pauses_s
from ttsbatch.types import Failure, ModelCard, Segment, Waveform

Rows = Callable[..., Path]
SENTENCE = "The green canoe slid under the low stone bridge. "
LONG = (SENTENCE * 16).strip()  # three pieces


@dataclass
class Result:
    report: RunReport
    speaker: FakeSpeaker
    out: Path

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / name).read_text("utf8").splitlines()]

    @property
    def made(self) -> dict[str, dict[str, Any]]:
        return {m["id"]: m for m in self.lines("manifest.jsonl")}


def run(corpus: Path, out: Path, kind: type[FakeSpeaker] = FakeSpeaker, **values: Any) -> Result:
    speakers: list[FakeSpeaker] = []

    def load(card: ModelCard, plan: object) -> FakeSpeaker:
        speakers.append(kind(card, lookahead=3))
        return speakers[0]

    plan = make_plan({"corpus": [str(corpus)], **values})
    report = synthesize(plan, out, Quiet(sys.stderr), load=load)
    return Result(report, speakers[0], out)


def test_a_long_row_is_spoken_in_pieces_and_joined(write_rows: Rows, tmp_path: Path) -> None:
    corpus = write_rows({"id": "a", "text": LONG}, {"id": "b", "text": "Short."})
    result = run(corpus, tmp_path / "out")
    made = result.made["a"]
    assert len(made["segments"]) == 3
    assert " ".join(s["text"] for s in made["segments"]) == made["spoken_text"] == LONG
    pieces_s = sum(s.expected_s for s in cut(utterance("a", LONG)))
    assert made["duration"] == pytest.approx(pieces_s + 2 * SENTENCE_PAUSE_S, abs=0.001)
    audio, _ = soundfile.read(result.out / made["audio_filepath"])
    assert len(audio) == made["num_samples"]
    assert len(result.made["b"]["segments"]) == 1


def test_a_row_that_is_not_split_has_the_audio_of_one_piece(
    write_rows: Rows, tmp_path: Path
) -> None:
    own = run(write_rows({"id": "a", "text": LONG, "split": False}), tmp_path / "1")
    by_option = run(write_rows({"id": "a", "text": LONG}), tmp_path / "2", split=False)
    for result in (own, by_option):
        assert len(result.made["a"]["segments"]) == 1
        assert result.speaker.asked == [("a", 0)]
    first, second = (r.out / r.made["a"]["audio_filepath"] for r in (own, by_option))
    assert first.read_bytes() == second.read_bytes()


def test_a_row_may_ask_for_splitting_that_the_run_has_off(write_rows: Rows, tmp_path: Path) -> None:
    corpus = write_rows({"id": "a", "text": LONG, "split": True})
    assert len(run(corpus, tmp_path / "out", split=False).made["a"]["segments"]) == 3


class RefusesTheSecond(FakeSpeaker):
    """Fails at the second piece of a row."""

    def _speak(self, segment: Segment) -> Waveform | tuple[Segment, Failure]:
        if segment.index != 1:
            return super()._speak(segment)
        return segment, Failure("c", 1, segment.utterance.id, "engine", "engine_error", "refused")


class MumblesFirst(FakeSpeaker):
    """Says nothing in its first attempt at a row."""

    def _speak(self, segment: Segment) -> Waveform | tuple[Segment, Failure]:
        wave = super()._speak(segment)
        assert isinstance(wave, Waveform)
        return wave if segment.attempt else replace(wave, samples=wave.samples * 0)


def test_one_failed_piece_fails_the_row_once_and_leaves_no_audio(
    write_rows: Rows, tmp_path: Path
) -> None:
    corpus = write_rows({"id": "a", "text": LONG}, {"id": "b", "text": "Short."})
    result = run(corpus, tmp_path / "out", RefusesTheSecond)
    assert list(result.made) == ["b"]
    (failure,) = result.lines("failures.jsonl")
    assert (failure["id"], failure["reason"]) == ("a", "engine_error")
    assert len(list((result.out / "audio").rglob("*.wav"))) == 1
    assert result.report.values["utterances"]["failed"] == 1


def test_a_flagged_row_is_spoken_again_in_all_its_pieces(write_rows: Rows, tmp_path: Path) -> None:
    result = run(write_rows({"id": "a", "text": LONG}), tmp_path / "out", MumblesFirst)
    assert result.speaker.asked == [("a", 0)] * 3 + [("a", 1)] * 3
    made = result.made["a"]
    assert (made["attempts"], made["checks"]["verdict"], len(made["segments"])) == (2, "pass", 3)


def test_the_draws_of_each_piece_have_a_key_of_their_own() -> None:
    keys = [s.key for s in cut(utterance("a", LONG), attempt=1)]
    assert keys == [("a", 0, 1), ("a", 1, 1), ("a", 2, 1)]


@given(st.integers(2, 60), st.floats(0.05, 900.0))
@settings(max_examples=100, deadline=None)
def test_max_seconds_bounds_the_row_with_all_its_pieces_and_pauses(
    num_sentences: int, max_seconds: float
) -> None:
    text = (SENTENCE * num_sentences).strip()
    segments = cut(utterance("a", text, max_seconds=max_seconds))
    rate_hz = 12.5
    frames = [math.floor(max_seconds * s.max_share * rate_hz + 1e-9) for s in segments]
    quiet_s = sum(pauses_s(text, [s.text for s in segments]))
    assert sum(frames) / rate_hz + quiet_s <= max_seconds + 1e-6
    if len(segments) > 1:
        # A share is more than its piece is expected to take.
        assert all(max_seconds * s.max_share > 1.4 * s.expected_s for s in segments)


def test_a_row_whose_bound_leaves_little_room_stays_whole() -> None:
    (whole,) = cut(utterance("a", LONG, max_seconds=30.0))
    assert (whole.text, whole.max_share) == (LONG, 1.0)


def test_no_split_is_a_setting_that_a_resume_must_keep(write_rows: Rows, tmp_path: Path) -> None:
    corpus = write_rows({"id": "a", "text": LONG})
    run(corpus, tmp_path / "out")
    with pytest.raises(PlanError, match="split"):
        run(corpus, tmp_path / "out", split=False)


def test_a_recipe_may_say_split_and_the_option_wins(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('corpus = ["c.jsonl"]\nsplit = false\n')
    assert plan_from({"recipe": recipe, "split": None})[0].rows.split is False
    assert plan_from({"recipe": recipe, "split": True})[0].rows.split is True
