"""The outer loop, driven by a fake speaker on the embedded model's card."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fake_speaker import FakeSpeaker
from ttsbatch.errors import EngineError, ModelError, PlanError
from ttsbatch.pipeline import synthesize
from ttsbatch.plan import make_plan
from ttsbatch.progress import Tally
from ttsbatch.report import RunReport
from ttsbatch.sinks.shards import ShardSink
from ttsbatch.stop import Stop
from ttsbatch.types import ModelCard

Rows = Callable[..., Path]


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.messages: list[str] = []
        self.last: Tally | None = None

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def update(self, tally: Tally) -> None:
        self.last = tally

    def message(self, text: str) -> None:
        self.messages.append(text)

    def close(self) -> None:
        pass


class Bench:
    """Runs the pipeline into one OUT, each run with a fresh fake."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.speaker: FakeSpeaker | None = None
        self.watcher = Watcher()
        self.stop = Stop()

    def run(self, corpus: Path, fake: dict[str, Any] | None = None, **values: Any) -> RunReport:
        self.speaker, self.watcher = None, Watcher()

        def load(card: ModelCard, plan: object) -> FakeSpeaker:
            self.speaker = FakeSpeaker(card, **(fake or {}))
            return self.speaker

        plan = make_plan({"corpus": [str(corpus)], **values})
        return synthesize(plan, self.out, self.watcher, self.stop, load)

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / name).read_text("utf8").splitlines()]

    @property
    def made(self) -> dict[str, dict[str, Any]]:
        return {m["id"]: m for m in self.lines("manifest.jsonl")}

    @property
    def asked(self) -> list[tuple[str, int]]:
        assert self.speaker is not None
        return self.speaker.asked


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "out")


def rows(*texts: str) -> list[dict[str, Any]]:
    return [{"id": f"r{i}", "text": t} for i, t in enumerate(texts)]


def test_report_of_a_smaller_corpus_says_how_much_of_its_audio_is_of_other_rows(
    bench: Bench, write_rows: Rows
) -> None:
    corpus = write_rows(*rows("one", "mumble 1 word", "three", "mumble 9 word", ""))
    bench.run(corpus, retries=0)
    report = bench.run(corpus, retries=0, limit=2).values
    expected = {"in": 2, "made": 2, "rejected": 0, "failed": 0, "flagged": 1}
    assert report["utterances"] == expected
    assert report["outside_corpus"] == {"made": 2, "flagged": 1}
    assert sum(report["finish_reasons"].values()) == 4
    whole = bench.run(corpus, retries=0).values
    assert whole["utterances"] == expected | {"in": 5, "made": 4, "rejected": 1, "flagged": 2}
    assert whole["outside_corpus"] == {"made": 0, "flagged": 0}


def test_session_that_is_stopped_as_it_checks_rows_leaves_their_counts(
    bench: Bench, write_rows: Rows
) -> None:
    corpus = write_rows(*rows("one", "two", "three"))
    before = bench.run(corpus).values
    bench.stop.request()
    assert bench.run(corpus).values == before


def test_every_row_is_made_rejected_or_failed_once(bench: Bench, write_rows: Rows) -> None:
    corpus = write_rows(*rows("one", "refuse this", "", "two"), "not json")
    report = bench.run(corpus)
    assert report.values["utterances"] == {
        "in": 5,
        "made": 2,
        "rejected": 2,
        "failed": 1,
        "flagged": 0,
    }
    assert list(bench.made) == ["r0", "r3"]
    reasons = {f["line"]: f["reason"] for f in bench.lines("failures.jsonl")}
    assert reasons == {2: "engine_error", 3: "empty_text", 5: "invalid_json"}


def test_a_row_that_never_comes_back_ends_the_run_as_failed(bench: Bench, write_rows: Rows) -> None:
    with pytest.raises(EngineError, match="never came back from the model: 1, the first 'r1'"):
        bench.run(write_rows(*rows("one", "vanish now", "two")))
    assert sorted(bench.made) == ["r0", "r2"]
    assert bench.run(write_rows(*rows("one", "two", "two"))).values["utterances"]["made"] == 3


def test_rows_that_are_not_reached_end_the_run_as_failed(bench: Bench, write_rows: Rows) -> None:
    with pytest.raises(EngineError, match="2 rows of the corpus not reached; the same"):
        bench.run(write_rows(*rows("one", "leave it", "two", "three")))
    assert sorted(bench.made) == ["r0", "r1"]
    assert bench.run(write_rows(*rows("one", "leave it", "two", "three"))).values["utterances"] == {
        "in": 4,
        "made": 4,
        "rejected": 0,
        "failed": 0,
        "flagged": 0,
    }


@pytest.mark.parametrize(
    "row",
    [
        {"text": "refuse this"},
        {"id": 7, "text": " refuse this", "language": "English", "voice": None},
        {"id": "a", "text": "refuse this", "seed": 4.0, "book": {"page": 3}, "split": False},
    ],
)
def test_a_failed_row_is_kept_as_it_was_given_in_the_failures(
    bench: Bench, write_rows: Rows, row: dict[str, Any]
) -> None:
    bench.run(write_rows(row))
    (failure,) = bench.lines("failures.jsonl")
    assert failure["stage"] == "engine"
    assert json.dumps(failure["row"]) == json.dumps(row)


def test_a_session_that_loads_no_model_is_on_no_device(bench: Bench, write_rows: Rows) -> None:
    report = bench.run(write_rows("not json"))
    assert report.values["devices"] == {}
    report = bench.run(write_rows("not json", {"id": "a", "text": "one"}))
    assert list(report.values["devices"]) == ["cpu"]


def test_rejects_are_written_before_the_model_is_loaded(
    bench: Bench, write_rows: Rows, tmp_path: Path
) -> None:
    def load(card: ModelCard, plan: object) -> FakeSpeaker:
        raise ModelError("no weights")

    plan = make_plan({"corpus": [str(write_rows(*rows("one", "")))]})
    with pytest.raises(ModelError):
        synthesize(plan, bench.out, Watcher(), load=load)
    assert [f["id"] for f in bench.lines("failures.jsonl")] == ["r1"]


def test_a_flagged_row_is_retried_with_another_attempt_until_it_passes(
    bench: Bench, write_rows: Rows
) -> None:
    bench.run(write_rows(*rows("one", "mumble 1 word", "two", "three")))
    made = bench.made["r1"]
    assert made["attempts"] == 2
    assert made["checks"]["verdict"] == "pass"
    assert [a for a in bench.asked if a[0] == "r1"] == [("r1", 0), ("r1", 1)]


def test_the_wall_time_lasts_until_the_last_row_is_on_the_disk(
    bench: Bench, write_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ShardSink._commit_group

    def slow_commit(self: ShardSink, group: list[Any]) -> None:
        commit(self, group)
        time.sleep(0.5)

    monkeypatch.setattr(ShardSink, "_commit_group", slow_commit)
    assert bench.run(write_rows(*rows("one"))).values["wall_seconds"] >= 0.5


def test_retries_join_the_running_stream(bench: Bench, write_rows: Rows) -> None:
    bench.run(write_rows(*rows("mumble 1 word", "one", "two", "three", "four")))
    assert bench.asked.index(("r0", 1)) < bench.asked.index(("r4", 0))


def test_a_row_that_never_passes_is_made_and_marked(bench: Bench, write_rows: Rows) -> None:
    report = bench.run(write_rows(*rows("mumble 9 word", "one")), retries=2)
    assert bench.made["r0"]["attempts"] == 3
    assert bench.made["r0"]["checks"]["verdict"] == "flag"
    assert report.values["utterances"]["flagged"] == 1
    assert report.values["utterances"]["failed"] == 0


def test_no_retries_means_one_attempt(bench: Bench, write_rows: Rows) -> None:
    bench.run(write_rows(*rows("mumble 9 word")), retries=0)
    assert bench.asked == [("r0", 0)]


def test_finished_rows_are_skipped_and_failed_ones_tried_again(
    bench: Bench, write_rows: Rows
) -> None:
    corpus = write_rows(*rows("one", "refuse this", "two"))
    bench.run(corpus)
    bench.run(corpus)
    assert bench.asked == [("r1", 0)]


def test_a_rerun_with_nothing_to_do_loads_no_model_and_changes_no_byte(
    bench: Bench, write_rows: Rows
) -> None:
    corpus = write_rows(*rows("one", "", "two"))
    bench.run(corpus)

    def state() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in bench.out.rglob("*") if p.is_file()}

    before = state()
    report = bench.run(corpus)
    assert bench.speaker is None
    assert state() == before
    assert report.values["utterances"]["made"] == 2


def test_a_stop_finishes_what_is_in_flight_and_a_rerun_makes_the_rest(
    bench: Bench, write_rows: Rows
) -> None:
    corpus = write_rows(*rows(*[f"word number {i}" for i in range(20)]))

    def stop_at_third(segment: object) -> None:
        assert bench.speaker is not None
        if len(bench.speaker.asked) == 3:
            bench.stop.request()

    bench.run(corpus, {"lookahead": 4, "on_spoken": stop_at_third})
    first = set(bench.made)
    assert 3 <= len(first) <= 7
    assert bench.lines("failures.jsonl") == []
    bench.stop = Stop()
    bench.run(corpus)
    assert {row_id for row_id, _ in bench.asked} == {f"r{i}" for i in range(20)} - first
    assert len(bench.made) == 20


def test_a_row_waiting_for_a_retry_is_left_to_the_next_session(
    bench: Bench, write_rows: Rows
) -> None:
    corpus = write_rows(*rows("mumble 1 word", "one"))
    bench.run(corpus, {"on_spoken": lambda segment: bench.stop.request()})
    assert bench.made == {}
    bench.stop = Stop()
    bench.run(corpus)
    assert bench.made["r0"]["attempts"] == 2


def test_fail_fast_ends_at_the_first_reject_without_a_model(bench: Bench, write_rows: Rows) -> None:
    report = bench.run(write_rows(*rows("one", "", "")), fail_fast=True)
    assert bench.speaker is None
    assert report.values["utterances"]["rejected"] == 1


def test_fail_fast_ends_at_the_first_failed_row(bench: Bench, write_rows: Rows) -> None:
    bench.run(write_rows(*rows("one", "refuse", "two", "three", "four")), fail_fast=True)
    assert ("r4", 0) not in bench.asked
    assert "r0" in bench.made


def test_a_broken_engine_keeps_what_was_made(bench: Bench, write_rows: Rows) -> None:
    corpus = write_rows(*rows("one", "two", "break"))
    with pytest.raises(EngineError, match="fell off"):
        bench.run(corpus)
    assert list(bench.made) == ["r0", "r1"]
    assert bench.speaker is not None
    assert bench.speaker.closed
    report = json.loads((bench.out / "report.json").read_text("utf8"))
    assert report["sessions"][-1]["ended"] == "failed"


def test_codes_are_refused_where_the_model_has_none(bench: Bench, write_rows: Rows) -> None:
    with pytest.raises(PlanError, match="--save-codes"):
        bench.run(write_rows(*rows("one")), save_codes=True)
    assert not bench.out.exists()


def test_progress_counts_every_row(bench: Bench, write_rows: Rows) -> None:
    bench.run(write_rows(*rows("one", "refuse", "mumble 9 word", "")), retries=1)
    tally = bench.watcher.last
    assert tally is not None
    assert (tally.rows, tally.done, tally.made) == (3, 3, 2)
    assert (tally.rejected, tally.failed, tally.flagged) == (1, 1, 1)
    assert tally.share == pytest.approx(1.0)
    assert tally.eta_s == pytest.approx(0.0, abs=1e-6)
