"""A look at OUT before a run: it says what the run then does, and changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.sinks.fake_run import (
    CARD,
    content,
    failure,
    manifest,
    plan,
    record,
    redo,
    run,
    utterance,
)
from ttsbatch.errors import PlanError, SinkError
from ttsbatch.sinks.peek import peek
from ttsbatch.sinks.shards import ShardSink

ROWS = [utterance(f"r{i}") for i in range(7)]
LAYOUTS = pytest.mark.parametrize("layout", ["dir", "tar", "parquet"])


def foretold(out: Path, layout: str) -> list[str]:
    """The ids that a run would make, as a look says; checks that it changes no byte."""
    before = content(out)
    found = peek(out, plan(layout=layout), CARD)
    to_make = [u.id for u in ROWS if not found.is_finished(u)]
    assert content(out) == before
    return to_make


@LAYOUTS
def test_rows_that_are_lost_edited_or_taken_out_are_foretold(tmp_path: Path, layout: str) -> None:
    edited = [utterance("r0", "as it was before"), *ROWS[1:5]]
    run(tmp_path, edited, layout=layout)
    redo(tmp_path, ROWS[1:2], layout=layout)
    assert foretold(tmp_path, layout) == ["r0", "r5", "r6"]
    audio = tmp_path / manifest(tmp_path)[-1]["audio_filepath"].partition("#")[0]
    audio.unlink()
    to_make = foretold(tmp_path, layout)
    assert set(to_make) > {"r0", "r5", "r6"}
    assert run(tmp_path, ROWS, layout=layout) == to_make
    assert foretold(tmp_path, layout) == []
    run(tmp_path, ROWS[1:], [failure(1)], layout=layout)
    assert foretold(tmp_path, layout) == []
    assert peek(tmp_path, plan(layout=layout), CARD).has("r0")


@LAYOUTS
def test_rows_that_a_killed_session_left_waiting_are_finished(tmp_path: Path, layout: str) -> None:
    out, killed = tmp_path / "out", tmp_path / "killed"
    with ShardSink(out, plan(layout=layout), CARD, group_rows=2) as sink:
        for u in ROWS[:5]:
            sink.write(record(sink, u))
        sink.flush()
        shutil.copytree(out, killed)
    for name in ("manifest.jsonl", "ledger/commits.bin"):
        with (killed / name).open("ab") as file:
            file.write(b'{"id": "torn')
    assert foretold(killed, layout) == ["r5", "r6"]
    assert run(killed, ROWS, layout=layout) == ["r5", "r6"]


def test_what_refuses_a_run_refuses_a_look(tmp_path: Path) -> None:
    out, foreign = tmp_path / "out", tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    with pytest.raises(SinkError, match="holds files that no run"):
        peek(foreign, plan(), CARD)
    with pytest.raises(SinkError, match=r"thesis\.txt: is a file"):
        peek(foreign / "thesis.txt/out", plan(), CARD)
    run(out, ROWS)
    with pytest.raises(PlanError, match="seed was 0, now 1"):
        peek(out, plan(seed=1), CARD)
    with ShardSink(out, plan(), CARD), pytest.raises(SinkError, match="in use by process"):
        peek(out, plan(), CARD)
    assert [p.name for p in foreign.iterdir()] == ["thesis.txt"]


def test_look_at_an_out_that_is_not_there_makes_none(tmp_path: Path) -> None:
    out = tmp_path / "new/out"
    assert not peek(out, plan(), CARD).is_finished(ROWS[0])
    assert list(tmp_path.iterdir()) == []


def test_settings_of_an_out_without_rows_may_change(tmp_path: Path) -> None:
    run(tmp_path, [])
    assert not peek(tmp_path, plan(seed=1), CARD).is_finished(ROWS[0])
