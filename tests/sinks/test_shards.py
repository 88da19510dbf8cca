"""The sink on good days: what a run leaves in OUT, and what a rerun does."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.sinks.fake_run import CARD, audio, content, failure, manifest, plan, record, redo, run
from tests.sinks.fake_run import utterance as row
from ttsbatch.errors import PlanError, SinkError
from ttsbatch.sinks.shards import ShardSink
from ttsbatch.types import Failure

ROWS = [row(f"r{i}") for i in range(8)]


def test_run_leaves_every_row_once_with_the_contract_fields(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(out, ROWS, [failure(9)], codes=True) == [u.id for u in ROWS]
    lines = manifest(out)
    assert [m["id"] for m in lines] == [u.id for u in ROWS]
    assert [m["audio_filepath"] for m in lines[:4]] == [
        "audio/shard-00000/r0.wav",
        "audio/shard-00000/r1.wav",
        "audio/shard-00000/r2.wav",
        "audio/shard-00001/r3.wav",
    ]
    for m in lines:
        samples, rate = soundfile.read(out / m["audio_filepath"], dtype="int16")
        assert (len(samples), rate) == (m["num_samples"], m["sample_rate"])
        assert m["duration"] == m["num_samples"] / m["sample_rate"]
        codes = np.load(out / m["codes_filepath"])
        assert (codes.dtype, codes.shape) == (np.int16, (3, 2))
    assert set(lines[0]) == {
        *("id", "audio_filepath", "file_name", "text", "spoken_text", "duration", "num_samples"),
        *("sample_rate", "model", "voice", "language", "seed", "attempts", "finish_reason"),
        *(
            "num_bytes",
            "num_frames",
            "segments",
            "checks",
            "source",
            "line",
            "extra",
            "codes_filepath",
        ),
    }
    assert lines[0]["segments"] == [
        {"text": "text of r0", "finish_reason": "stop", "num_samples": 0, "attempt": 0}
    ]
    bad = json.loads((out / "failures.jsonl").read_text("utf8"))
    assert set(bad) == {"source", "line", "id", "stage", "reason", "message", "row"}
    info = json.loads((out / "run.json").read_text("utf8"))
    assert info["model"]["content_hash"] == "0123"
    assert info["versions"]["numpy"] == np.__version__
    assert info["plan"]["corpus"]["sources"] == ["c.jsonl"]


def test_rerun_with_nothing_to_do_changes_no_byte_and_no_time(tmp_path: Path) -> None:
    run(tmp_path, ROWS, [failure(9)])
    before = content(tmp_path)
    assert run(tmp_path, ROWS, [failure(9)]) == []
    assert run(tmp_path, reversed(ROWS), [failure(9)], shard_size=100, slots=4) == []
    assert content(tmp_path) == before


def test_moved_line_and_other_extra_are_the_same_row(tmp_path: Path) -> None:
    run(tmp_path, ROWS)
    moved = [replace(u, line=99, source="d.jsonl", extra={"a": 1}) for u in ROWS]
    assert run(tmp_path, moved) == []


def test_added_rows_continue_in_the_last_shard(tmp_path: Path) -> None:
    run(tmp_path, ROWS[:4])
    old = content(tmp_path)
    assert run(tmp_path, ROWS) == [u.id for u in ROWS[4:]]
    assert [m["audio_filepath"][6:17] for m in manifest(tmp_path)] == [
        f"shard-0000{i // 3}" for i in range(8)
    ]
    assert all(content(tmp_path)[p] == c for p, c in old.items() if p.startswith("audio/"))
    audio(tmp_path)


@pytest.mark.parametrize("edited", [0, 5, 7])
def test_edited_row_replaces_the_old_one(tmp_path: Path, edited: int) -> None:
    rows = list(ROWS)
    run(tmp_path / "a", rows, codes=True)
    before = audio(tmp_path / "a")
    rows[edited] = row(rows[edited].id, "another text")
    assert run(tmp_path / "a", rows, codes=True) == [rows[edited].id]
    run(tmp_path / "b", rows, codes=True)
    after = audio(tmp_path / "a")
    assert after == audio(tmp_path / "b")
    assert after[rows[edited].id] != before[rows[edited].id]
    codes = [p for p in (tmp_path / "a/codes").rglob("*") if p.is_file()]
    assert len(codes) == len(rows)
    again = content(tmp_path / "a")
    assert run(tmp_path / "a", rows, codes=True) == []
    assert content(tmp_path / "a") == again


def test_edit_and_back_ends_where_it_began(tmp_path: Path) -> None:
    run(tmp_path, ROWS)
    first = audio(tmp_path)
    edited = [row(u.id, "x " + u.text) for u in ROWS[:5]] + ROWS[5:]
    assert len(run(tmp_path, edited)) == 5
    assert len(run(tmp_path, ROWS)) == 5
    assert audio(tmp_path) == first


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperature": 0.5}, "temperature was not given, now 0.5"),
        ({"voice": "two"}, 'voice was not given, now "two"'),
        ({"seed": 3}, "seed was 0, now 3"),
        ({"retries": 0}, "retries was 2, now 0"),
        ({"codes": True}, "save-codes was false, now true"),
    ],
)
def test_changed_setting_is_refused_and_no_byte_changes(tmp_path, change, words) -> None:
    run(tmp_path, ROWS)
    # leftovers of a killed run must be left alone too
    (tmp_path / "ledger/tmp/00000001.part").write_bytes(b"torn")
    (tmp_path / "ledger/session.json").write_bytes(b"{}")
    before = content(tmp_path)
    with pytest.raises(PlanError, match=words) as e:
        run(tmp_path, ROWS, **change)
    assert e.value.exit_code == 2
    assert "another folder" in str(e.value)
    assert content(tmp_path) == before


def test_changed_model_content_is_refused(tmp_path: Path) -> None:
    run(tmp_path, ROWS)
    with pytest.raises(PlanError, match='content of model "fake" was 0123, now 4567'):
        ShardSink(tmp_path, plan(), replace(CARD, content_hash="4567"))


def test_settings_may_change_while_nothing_is_made(tmp_path: Path) -> None:
    run(tmp_path, [], [failure(1)])
    assert len(run(tmp_path, ROWS, seed=5)) == len(ROWS)
    assert json.loads((tmp_path / "run.json").read_text("utf8"))["settings"]["seed"] == 5


def test_run_json_takes_the_plan_of_the_last_session_that_wrote(tmp_path: Path) -> None:
    def kept() -> dict[str, Any]:
        return json.loads((tmp_path / "run.json").read_text("utf8"))["plan"]

    run(tmp_path, ROWS)
    first = content(tmp_path)
    run(tmp_path, ROWS, device="cuda", shard_size=9)  # nothing to do
    with pytest.raises(OSError, match="gone"):
        run(tmp_path, ROWS, _unreadable(), map=["text=said"])
    redo(tmp_path, ROWS[:1], device="cuda")
    assert content(tmp_path)["run.json"] == first["run.json"]
    run(tmp_path, ROWS, map=["text=said"], device="cuda")
    assert (kept()["corpus"]["mapping"], kept()["engine"]["device"]) == ({"text": "said"}, "cuda")
    run(tmp_path, [*ROWS, row("later")], map=["text=said"], device="cpu")
    assert kept()["engine"]["device"] == "cpu"


def _unreadable() -> Iterator[Failure]:
    yield failure(1)
    raise OSError("gone")


def test_second_writer_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with (
        ShardSink(tmp_path, plan(), CARD),
        pytest.raises(SinkError, match=f"in use by process {os.getpid()} ") as e,
    ):
        ShardSink(tmp_path, plan(), CARD)
    assert e.value.exit_code == 6
    assert len(run(tmp_path, ROWS)) == len(ROWS)  # freed


def test_folder_of_somebody_else_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(SinkError, match="no run of ttsbatch wrote"):
        run(tmp_path, ROWS)
    (tmp_path / "run.json").write_text('{"mine": 1}')
    with pytest.raises(SinkError, match=r"run\.json"):
        run(tmp_path, ROWS)
    (tmp_path / "run.json").unlink()
    assert content(tmp_path) == before
    with pytest.raises(SinkError, match="is a file"):
        run(tmp_path / "thesis.txt", ROWS)
    with pytest.raises(SinkError, match="cannot write: Not a directory"):
        run(tmp_path / "thesis.txt" / "out", ROWS)


def test_manifest_changed_by_hand_is_refused_before_anything_is_cut(tmp_path: Path) -> None:
    run(tmp_path, ROWS)
    path = tmp_path / "manifest.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b"text of", b"my own text of")]))
    before = content(tmp_path)
    with pytest.raises(SinkError, match="was changed since it was written"):
        run(tmp_path, ROWS)
    assert content(tmp_path)["manifest.jsonl"] == before["manifest.jsonl"]


def test_failed_rows_are_tried_again_and_the_same_failure_changes_nothing(tmp_path: Path) -> None:
    def session(*failed: int) -> None:
        with ShardSink(tmp_path, plan(), CARD) as sink:
            sink.reject([failure(1), failure(2)])
            for line in failed:
                sink.fail(failure(line, "engine_error", "engine"))

    path = tmp_path / "failures.jsonl"
    session(5, 6)
    first = content(tmp_path)
    session(5, 6)
    assert content(tmp_path) == first
    session(6)
    lines = [json.loads(x)["line"] for x in path.read_text("utf8").splitlines()]
    assert lines == [1, 2, 6]
    session()
    assert len(path.read_text("utf8").splitlines()) == 2


def test_manifest_is_strict_json_whatever_a_row_carries(tmp_path: Path) -> None:
    odd = {"nan": float("nan"), "sep": "a\u2028b\x85c", "half": "\ud800", "raw": b"\xff", "t": (1,)}
    run(tmp_path, [row("r", extra=odd)])
    data = (tmp_path / "manifest.jsonl").read_bytes()
    text = data.decode("utf8", "strict")
    assert len(text.splitlines()) == data.count(b"\n") == 1
    extra = json.loads(text, parse_constant=pytest.fail)["extra"]
    assert extra == {**odd, "nan": None, "raw": "/w==", "t": [1]}


def test_error_of_the_writer_reaches_the_caller_and_what_was_committed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, ROWS[:4])
    before = audio(tmp_path)
    real_write = os.write

    def full_disk(fd: int, data: bytes) -> int:
        if bytes(data[:4]) == b"RIFF":
            real_write(fd, bytes(data[:20]))
            raise OSError(28, "No space left on device")
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(SinkError, match=r"\.part: cannot write: No space left.*run the same"):
        run(tmp_path, ROWS)
    monkeypatch.undo()
    assert audio(tmp_path) == before
    assert run(tmp_path, ROWS) == [u.id for u in ROWS[4:]]
    assert set(audio(tmp_path)) == {u.id for u in ROWS}


def test_unwritable_folder_is_a_sink_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, ROWS[:1])
    real_open = os.open

    def read_only(path: object, flags: int, *more: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(30, "Read-only file system", str(path))
        return real_open(path, flags, *more)  # type: ignore[arg-type]

    before = content(tmp_path)
    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(SinkError, match="Read-only file system") as e:
        run(tmp_path, ROWS)
    assert e.value.exit_code == 6
    monkeypatch.undo()
    assert content(tmp_path) == before


def test_rows_done_before_an_exception_are_committed(tmp_path: Path) -> None:
    def interrupted() -> None:
        with ShardSink(tmp_path, plan(), CARD) as sink:
            for u in ROWS[:5]:
                sink.write(record(sink, u))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert set(audio(tmp_path)) == {u.id for u in ROWS[:5]}


def test_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    from ttsbatch.sinks import lock

    path = tmp_path / "lock"
    held = lock.OutLock(tmp_path)
    lock_fds = set(lock._held_fds)
    try:
        lock._close_in_child()  # what a forked child does first
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        assert lock_fds
        held._fd = -1


def test_error_of_the_corpus_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    def rejects():
        yield failure(1)
        raise OSError(5, "Input/output error", "corpus.jsonl")

    with ShardSink(tmp_path, plan(), CARD) as sink, pytest.raises(OSError, match=r"corpus\.jsonl"):
        sink.reject(rejects())
    assert (tmp_path / "failures.jsonl").read_bytes() == b""
