"""`redo`: one row, or one piece, made again and put in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import ttsbatch.pipeline
from tests.fake_speaker import FakeSpeaker
from tests.test_pipeline import Bench, Watcher, rows
from ttsbatch.cli.app import app
from ttsbatch.errors import CorpusError, PlanError, SinkError
from ttsbatch.redo import Redo, Redone, redo_rows
from ttsbatch.types import Demand, EngineStats, ModelCard, Segment
from ttsbatch.verify import verify_run

Rows = Callable[..., Path]
LONG = " ".join(f"Sentence number {n} is here to be heard by all of us today." for n in range(16))


class Desk(Bench):
    """A bench that also redoes."""

    def redo(
        self, *ids: str, seed: int | None = None, segment: int | None = None, **fake: Any
    ) -> Redone:
        def load(card: ModelCard, plan: object) -> FakeSpeaker:
            self.speaker = FakeSpeaker(card, EngineStats(devices=["cpu"]), **fake)
            return self.speaker

        self.speaker, self.watcher = None, Watcher()
        return redo_rows(self.out, Redo(ids, seed, segment), self.watcher, load=load)

    def audio(self) -> dict[str, bytes]:
        return {i: (self.out / m["audio_filepath"]).read_bytes() for i, m in self.made.items()}

    def found(self) -> dict[str, int]:
        return {k: f.count for k, f in verify_run(self.out).findings.by_kind.items()}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "out")


def test_row_gets_its_next_take_and_the_others_stay(desk: Desk, write_rows: Rows) -> None:
    corpus = write_rows(*rows("one", "two", "three"))
    desk.run(corpus)
    before, audio = desk.made, desk.audio()
    redone = desk.redo("r1")
    assert desk.asked == [("r1", 1)]
    assert redone.problems == {}
    assert redone.lines == [desk.made["r1"]]
    assert {i: a for i, a in desk.audio().items() if i != "r1"} == {
        i: a for i, a in audio.items() if i != "r1"
    }
    assert desk.audio()["r1"] != audio["r1"]
    assert desk.made["r1"]["attempts"] == 2
    assert desk.made["r1"]["seed"] == before["r1"]["seed"]
    assert desk.made["r1"]["segments"][0]["attempt"] == 1
    assert desk.found() == {}
    desk.run(corpus)
    assert desk.speaker is None  # finished, as far as synth is concerned
    desk.redo("r1")
    assert desk.asked == [("r1", 2)]


def test_progress_knows_how_much_there_is_to_redo(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows(*rows("one", "two", "three")))
    desk.redo("r1", "r2")
    tally = desk.watcher.last
    assert tally is not None
    assert (tally.rows, tally.done) == (2, 2)
    assert tally.share == pytest.approx(1.0)
    assert tally.eta_s == pytest.approx(0.0, abs=1e-6)


def test_new_take_is_the_one_that_a_retry_would_have_drawn(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows(*rows("one")))
    desk.redo("r0")
    take = desk.audio()["r0"]
    desk.redo("r0", seed=desk.made["r0"]["seed"])  # back to the first
    desk.redo("r0")
    assert desk.audio()["r0"] == take


def test_seed_is_drawn_from_and_written(desk: Desk, write_rows: Rows) -> None:
    corpus = write_rows(*rows("one", "two"))
    desk.run(corpus)
    desk.redo("r0", seed=77)
    made = desk.made["r0"]
    assert (made["seed"], made["attempts"]) == (77, 1)
    audio = desk.audio()
    desk.run(corpus)
    assert desk.speaker is None
    desk.redo("r0")
    assert (desk.made["r0"]["seed"], desk.made["r0"]["attempts"]) == (77, 2)
    desk.redo("r0", seed=77)
    assert desk.audio() == audio
    assert desk.found() == {}


def test_flagged_take_is_retried_and_all_takes_count(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows(*rows("mumble 3 word")), retries=1)
    assert desk.made["r0"]["attempts"] == 2
    desk.redo("r0")
    assert desk.asked == [("r0", 2), ("r0", 3)]
    assert desk.made["r0"]["attempts"] == 4
    assert desk.made["r0"]["checks"]["verdict"] == "pass"
    assert desk.made["r0"]["segments"][0]["attempt"] == 3


def test_one_piece_is_spoken_anew_and_the_others_sound_as_they_did(
    desk: Desk, write_rows: Rows
) -> None:
    desk.run(write_rows({"id": "a", "text": LONG}, {"id": "b", "text": "short"}))
    old = desk.made["a"]
    assert len(old["segments"]) >= 3
    spoken: list[Segment] = []
    desk.redo("a", segment=1, on_spoken=spoken.append)
    draws = [(s.index, s.attempt, s.utterance.seed) for s in spoken]
    assert sorted(draws) == [(i, int(i == 1), old["seed"]) for i in range(len(old["segments"]))]
    new = desk.made["a"]
    assert [s["attempt"] for s in new["segments"]] == [int(i == 1) for i in range(len(draws))]
    assert new["attempts"] == 2
    assert desk.found() == {}
    desk.redo("a", segment=0)  # keeps the new piece 1
    assert [s["attempt"] for s in desk.made["a"]["segments"]][:2] == [2, 1]


def test_piece_with_a_seed_of_its_own_keeps_it(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows({"id": "a", "text": LONG}))
    row_seed = desk.made["a"]["seed"]
    desk.redo("a", segment=1, seed=5)
    assert desk.made["a"]["seed"] == row_seed
    assert [s.get("seed") for s in desk.made["a"]["segments"]][:3] == [None, 5, None]
    audio = desk.audio()
    spoken: list[Segment] = []
    desk.redo("a", segment=0, on_spoken=spoken.append)
    assert {s.index: s.utterance.seed for s in spoken}[1] == 5
    assert desk.made["a"]["segments"][1]["seed"] == 5
    assert desk.audio() != audio
    desk.redo("a", segment=0, seed=row_seed)
    assert desk.audio() == audio  # take 0 of piece 0, and the others as they were


def test_kept_piece_that_comes_out_otherwise_leaves_the_row_as_it_was(
    desk: Desk, write_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.run(write_rows({"id": "a", "text": LONG}))
    before = desk.audio()
    monkeypatch.setattr("tests.fake_speaker.LENGTH_FACTOR", 1.1)
    redone = desk.redo("a", segment=1)
    assert "piece 0, 2" in redone.problems["a"]
    assert desk.audio() == before
    assert desk.found() == {}


def test_segment_that_a_row_has_not_is_a_bad_option(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows(*rows("one")))
    with pytest.raises(PlanError, match="'r0' has one piece, expected 0 to 0"):
        desk.redo("r0", segment=1)


def test_unknown_id_is_a_bad_option_and_nothing_is_made(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows(*rows("one")))
    before = desk.audio()
    with pytest.raises(PlanError, match="--id 'nobody'"):
        desk.redo("r0", "nobody")
    assert desk.audio() == before


def test_rows_that_were_not_made_are_named_with_their_reason(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows(*rows("one", "", "refuse", "two")), limit=3)
    redone = desk.redo("r0", "r1", "r2", "r3")
    assert "was rejected" in redone.problems["r1"]
    assert "empty_text" in redone.problems["r1"]
    assert "failed" in redone.problems["r2"]
    assert "not made yet" in redone.problems["r3"]
    assert [line["id"] for line in redone.lines] == ["r0"]


def test_moved_row_is_found_by_its_id(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows(*rows("one", "two")))
    write_rows({"id": "new", "text": "first"}, *reversed(rows("one", "two")))
    desk.redo("r0", "r1")
    assert desk.made["r0"]["line"] == 3
    assert desk.made["r1"]["line"] == 2
    assert [m["text"] for m in desk.made.values()] == ["one", "two"]
    assert desk.found() == {"missing": 1}  # the new row, which is synth's


def test_edited_row_is_made_as_it_stands_now(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows(*rows("one", "two")))
    desk.redo("r1")
    corpus = write_rows(*rows("one", "other words"))
    desk.redo("r1")
    assert desk.made["r1"]["text"] == "other words"
    assert desk.made["r1"]["attempts"] == 1
    assert desk.found() == {}
    desk.run(corpus)
    assert desk.speaker is None


@pytest.mark.parametrize(
    ("now", "words"),
    [([], "does not have it any more"), ([{"id": "r1", "text": ""}], "no letter or digit")],
)
def test_row_that_is_no_row_any_more_stays(
    desk: Desk, write_rows: Rows, now: list[Any], words: str
) -> None:
    desk.run(write_rows(*rows("one", "two")))
    before = desk.audio()
    write_rows(*rows("one"), *now)
    assert words in desk.redo("r1").problems["r1"]
    assert desk.audio() == before


def test_piece_of_an_edited_row_stays(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows({"id": "a", "text": LONG}))
    write_rows({"id": "a", "text": LONG + " More."})
    assert "edited since" in desk.redo("a", segment=1).problems["a"]


def test_row_that_fails_stays_as_it_was(desk: Desk, write_rows: Rows) -> None:
    corpus = write_rows(*rows("one", "refuse"))
    desk.run(corpus, {"forgives": "refuse"})
    before = desk.audio()
    redone = desk.redo("r1")
    assert redone.problems["r1"] == "stays as it was: engine_error: refused"
    assert desk.audio() == before
    assert desk.lines("failures.jsonl") == []
    assert desk.found() == {}


def test_report_counts_every_row_once_after_a_redo(desk: Desk, write_rows: Rows) -> None:
    corpus = write_rows(*rows("one", "two", "", "mumble 9 word"))
    first = desk.run(corpus, retries=0).values
    desk.redo("r0")
    report = json.loads((desk.out / "report.json").read_text("utf8"))
    assert report["utterances"] == first["utterances"]
    made = desk.made.values()
    assert report["audio_seconds"] == pytest.approx(sum(m["duration"] for m in made))
    assert sum(b["utterances"] for b in report["length_buckets"].values()) == 3
    assert [s["made"] for s in report["sessions"]] == [3, 1]
    assert desk.run(corpus, retries=0).values == report


def test_flag_that_a_redo_clears_is_counted_no_more(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows(*rows("one", "mumble 1 word")), retries=0)
    desk.redo("r1")
    report = json.loads((desk.out / "report.json").read_text("utf8"))
    assert report["utterances"]["flagged"] == 0
    assert report["utterances"]["made"] == 2


def test_report_of_a_run_that_was_killed_is_built_from_what_is_there(
    desk: Desk, write_rows: Rows
) -> None:
    desk.run(write_rows(*rows("one", "", "refuse", "two")))
    (desk.out / "report.json").unlink()
    desk.redo("r0")
    report = json.loads((desk.out / "report.json").read_text("utf8"))
    expected = {"in": 4, "made": 2, "rejected": 1, "failed": 1, "flagged": 0}
    assert report["utterances"] == expected


def test_corpus_from_stdin_cannot_be_redone(desk: Desk, write_rows: Rows) -> None:
    desk.run(write_rows(*rows("one")))
    path = desk.out / "run.json"
    run = json.loads(path.read_text("utf8"))
    run["plan"]["corpus"]["sources"] = ["-"]
    path.write_text(json.dumps(run), "utf8")
    with pytest.raises(CorpusError, match="stdin"):
        desk.redo("r0")


def test_folder_that_is_no_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"no run\.json"):
        redo_rows(tmp_path, Redo(("a",)), Watcher())


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    def open_speaker(
        card: Any, plan: Any, keep_codes: bool, demand: Demand, standby: None
    ) -> FakeSpeaker:
        return FakeSpeaker(card)

    monkeypatch.setattr(ttsbatch.pipeline, "open_speaker", open_speaker)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments])

    return run


def test_command_prints_what_it_made_and_exits_0(cli: Any, write_rows: Rows) -> None:
    cli("synth", write_rows(*rows("one", "two")), "-o", "out")
    result = cli("redo", "out", "--id", "r1", "--id", "r0", "--id", "r1", "--seed", "9")
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert {first[:4], second[:4]} == {"'r0'", "'r1'"}
    assert "audio/shard-00001/r" in first
    assert "seed 9, take 1, pass" in first
    assert cli("verify", "out").exit_code == 0
    assert cli("synth", "rows.jsonl", "-o", "out").exit_code == 0


def test_command_in_json(cli: Any, write_rows: Rows) -> None:
    cli("synth", write_rows(*rows("one", "")), "-o", "out")
    result = cli("redo", "out", "--id", "r0", "--id", "r1", "--json", "--quiet", "--slots", "2")
    assert result.exit_code == 7
    values = json.loads(result.stdout)
    assert [line["id"] for line in values["made"]] == ["r0"]
    assert list(values["problems"]) == ["r1"]
    assert "'r1' was rejected" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["out"], 2, "--id"),
        (["out", "--id", "nobody"], 2, "'nobody'"),
        (["out", "--id", "r0", "--seed", "-1"], 2, "--seed"),
        (["out", "--id", "r0", "--segment", "3"], 2, "--segment"),
        (["out", "--id", "r0", "--slots", "x"], 2, "--slots"),
        (["nowhere", "--id", "r0"], 6, "run.json"),
    ],
)
def test_bad_arguments_have_their_codes(
    cli: Any, write_rows: Rows, arguments: list[str], code: int, words: str
) -> None:
    cli("synth", write_rows(*rows("one")), "-o", "out")
    result = cli("redo", *arguments)
    assert result.exit_code == code
    assert words in result.stderr
