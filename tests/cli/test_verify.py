"""`ttsbatch verify`: a clean run passes, and every planted fault is found and named."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tests.fake_speaker import FakeSpeaker
from tests.resume.test_kills import killed
from tests.sinks.fake_run import content, failure, run, utterance
from ttsbatch.cli.app import app
from ttsbatch.errors import CorpusError
from ttsbatch.pipeline import synthesize
from ttsbatch.plan import make_plan
from ttsbatch.progress import make_progress
from ttsbatch.sinks import verify as sink_verify
from ttsbatch.sinks.failures import failure_line
from ttsbatch.stop import Stop
from ttsbatch.types import ModelCard

Rows = Callable[..., Path]
SPOKEN = [{"id": f"r{i}", "text": f"Number {i} of the rows."} for i in range(8)]
ALL = [*SPOKEN, {"id": "bad"}, {"id": "r1", "text": "Twice."}, {"id": "no", "text": "refuse"}]


def call(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["verify", *(str(a) for a in arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def look(out: Path, exit_code: int) -> dict[str, Any]:
    """The JSON of `verify`; checks its exit code, and that it changes nothing."""
    before = content(out)
    result = call(out, "--json")
    assert content(out) == before
    assert result.exit_code == exit_code, result.stdout + result.stderr
    assert ("damaged" in result.stderr) == (exit_code == 6)
    return json.loads(result.stdout)


def look_inside(out: Path, exit_code: int) -> dict[str, Any]:
    """As `look`, of an output whose corpus never was a file: what else is found."""
    found = look(out, exit_code or 7)
    assert "c.jsonl: no such file" in str(found["findings"].pop("not_compared"))
    assert exit_code or not found["findings"]
    return found


def named(found: dict[str, Any], kind: str) -> list[str | None]:
    return [e["id"] for e in found["findings"].get(kind, {}).get("examples", [])]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Runs the pipeline with a fake speaker into `out`."""

    def make(corpus: Path | str, stop_after: int | None = None, **values: Any) -> Path:
        stop = Stop()
        spoken: list[object] = []

        def on_spoken(segment: object) -> None:
            spoken.append(segment)
            if len(spoken) == stop_after:
                stop.request()

        def load(card: ModelCard, plan: object) -> FakeSpeaker:
            return FakeSpeaker(card, on_spoken=on_spoken)

        plan = make_plan({"corpus": [str(corpus)], "shard_size": 3, **values})
        out = tmp_path / "out"
        with open(os.devnull, "w") as quiet:
            synthesize(plan, out, make_progress(quiet, True), stop, load)
        return out

    return make


@pytest.fixture
def out(make: Callable[..., Path], write_rows: Rows) -> Path:
    return make(write_rows(*ALL))


def edit_manifest(out: Path, edit: Callable[[list[bytes]], list[bytes]]) -> None:
    path = out / "manifest.jsonl"
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))


def wav(out: Path, id: str) -> Path:
    return next((out / "audio").rglob(f"{id}.wav"))


def test_clean_run_passes_with_every_row_accounted_for(out: Path) -> None:
    found = look(out, 0)
    assert found["ok"] is True
    assert found["utterances"] == {"in": 11, "made": 8, "rejected": 2, "failed": 1, "missing": 0}
    assert (found["findings"], found["notes"]) == ({}, [])
    text = call(out).stdout
    assert "all good" in text
    assert "rows in   11" in text


def test_missing_file_is_named(out: Path) -> None:
    wav(out, "r4").unlink()
    found = look(out, 6)
    assert named(found, "file_missing") == ["r4"]
    assert list(found["findings"]) == ["file_missing"]
    assert "'r4' manifest.jsonl:5: audio/shard-00001/r4.wav: is not there" in call(out).stdout


@pytest.mark.parametrize("size", [-2, -1, 44, 43, 20, 0])
def test_truncated_file_is_named(out: Path, size: int) -> None:
    path = wav(out, "r2")
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    found = look(out, 6)
    assert named(found, "torn_file") == ["r2"]
    assert list(found["findings"]) == ["torn_file"]


def test_appended_bytes_are_found(out: Path) -> None:
    with wav(out, "r3").open("ab") as file:
        file.write(b"\0\0")
    assert named(look(out, 6), "torn_file") == ["r3"]


def test_file_of_another_row_has_the_wrong_samples(out: Path) -> None:
    short = wav(out, "r6").read_bytes()[:1044]
    size = (1000).to_bytes(4, "little")
    whole = short[:4] + (1036).to_bytes(4, "little") + short[8:40] + size + short[44:]
    wav(out, "r6").write_bytes(whole)
    assert named(look(out, 6), "wrong_samples") == ["r6"]


@pytest.mark.parametrize(
    ("field", "value"), [("num_samples", 7), ("sample_rate", 8000), ("duration", 0.25)]
)
def test_wrong_number_in_the_manifest_is_named(out: Path, field: str, value: float) -> None:
    def edit(lines: list[bytes]) -> list[bytes]:
        lines[1] = json.dumps(json.loads(lines[1]) | {field: value}).encode() + b"\n"
        return lines

    edit_manifest(out, edit)
    assert set(named(look(out, 6), "wrong_samples")) == {"r1"}


@pytest.mark.parametrize("at", [3, 8])
def test_doubled_line_is_named(out: Path, at: int) -> None:
    edit_manifest(out, lambda lines: [*lines[:at], lines[2], *lines[at:]])
    found = look(out, 6)
    assert named(found, "doubled") == ["r2"]
    assert found["utterances"]["made"] == 8


def test_two_rows_of_one_file_are_found(out: Path) -> None:
    edit_manifest(
        out, lambda lines: [*lines[:7], lines[7].replace(b"shard-00002/r7", b"shard-00002/r6")]
    )
    found = look(out, 6)
    assert named(found, "doubled") == ["r7"]
    assert found["findings"]["orphan_file"]["count"] == 1


def test_orphan_file_is_named(out: Path) -> None:
    shutil.copy(wav(out, "r0"), out / "audio/shard-00000/stray.wav")
    examples = look(out, 6)["findings"]["orphan_file"]["examples"]
    assert [e["message"] for e in examples] == ["audio/shard-00000/stray.wav: no line names it"]


def test_torn_manifest_tail_is_named(out: Path) -> None:
    path = out / "manifest.jsonl"
    os.truncate(path, path.stat().st_size - 9)
    assert named(look(out, 6), "manifest_line") == ["r7"]


def test_lost_line_is_known_to_the_ledger_and_named_by_the_input(out: Path) -> None:
    edit_manifest(out, lambda lines: lines[:-1])
    found = look(out, 6)
    assert named(found, "missing") == ["r7"]
    assert found["findings"]["ledger"]["count"] == 1
    assert found["findings"]["orphan_file"]["count"] == 1


@pytest.mark.parametrize("junk", [b"\n", b"[1]\n", b'{"id": "x\xff"}\n', b'{"id": NaN}\n'])
def test_line_that_is_no_row_is_found(out: Path, junk: bytes) -> None:
    edit_manifest(out, lambda lines: [*lines, junk])
    assert look(out, 6)["findings"]["manifest_line"]["count"] == 1


def test_line_that_leads_out_of_the_folder_is_refused(out: Path) -> None:
    edit_manifest(
        out, lambda lines: [lines[0].replace(b"audio/shard-00000/", b"audio/../../"), *lines[1:]]
    )
    assert named(look(out, 6), "manifest_line") == ["r0"]


def test_row_that_the_ledger_lacks_is_named(out: Path) -> None:
    path = out / "ledger/commits.bin"
    os.truncate(path, path.stat().st_size - 96)
    assert named(look(out, 6), "ledger") == ["r7"]
    path.unlink()
    found = look(out, 6)
    assert found["findings"]["ledger"]["count"] == 1
    assert found["utterances"]["in"] == 11


def test_damaged_failures_are_found(out: Path) -> None:
    path = out / "failures.jsonl"
    good = path.read_bytes()
    path.write_bytes(good[:-5])
    assert look(out, 6)["findings"]["failures_line"]["count"] == 1
    last = json.loads(good.splitlines()[-1])
    path.write_bytes(good + json.dumps(last | {"id": "r5"}).encode() + b"\n")
    assert named(look(out, 6), "doubled") == ["r5"]
    path.write_bytes(good + good.splitlines(keepends=True)[-1])
    assert named(look(out, 6), "doubled") == ["no"]
    path.unlink()
    assert look(out, 6)["findings"]["failures_line"]["count"] == 1


def test_edited_corpus_is_found_row_by_row(out: Path, write_rows: Rows) -> None:
    edited = [dict(r) for r in ALL]
    edited[3]["text"] = "Another text."
    edited[5] = {"id": "new", "text": "A new row."}
    write_rows(*edited)
    found = look(out, 7)
    assert named(found, "changed") == ["r3"]
    assert named(found, "missing") == ["new"]
    assert named(found, "not_in_input") == ["r5"]


def test_moved_rows_are_the_same_rows(make: Callable[..., Path], write_rows: Rows) -> None:
    out = make(write_rows(*SPOKEN))
    write_rows(*reversed(SPOKEN))
    assert look(out, 0)["ok"] is True


def test_row_that_became_a_reject_is_found(out: Path, write_rows: Rows) -> None:
    write_rows(ALL[0], {"id": "r1", "text": ""}, *ALL[2:])
    assert named(look(out, 7), "changed") == ["r1"]


def test_unfinished_run_misses_rows_and_is_not_damaged(
    make: Callable[..., Path], write_rows: Rows
) -> None:
    corpus = write_rows(*ALL)
    out = make(corpus, stop_after=3)
    found = look(out, 7)
    assert named(found, "missing") == ["r3", "r4", "r5", "r6", "r7", "no"]
    assert list(found["findings"]) == ["missing"]
    make(corpus)
    assert look(out, 0)["ok"] is True


def test_rows_beyond_a_first_limit_count_where_a_later_session_made_them(
    make: Callable[..., Path], write_rows: Rows
) -> None:
    corpus = write_rows(*ALL)
    assert look(make(corpus, limit=2), 0)["utterances"]["in"] == 2
    out = make(corpus)
    assert look(out, 0)["utterances"]["in"] == 11
    wav(out, "r7").unlink()
    assert named(look(out, 6), "file_missing") == ["r7"]


def test_rows_of_an_interrupted_run_that_has_no_limit_any_more_are_missing(
    make: Callable[..., Path], write_rows: Rows
) -> None:
    corpus = write_rows(*SPOKEN)
    make(corpus, limit=2)
    found = look(make(corpus, stop_after=3), 7)
    assert found["utterances"] == {"in": 8, "made": 5, "rejected": 0, "failed": 0, "missing": 3}
    assert named(found, "missing") == ["r5", "r6", "r7"]
    assert look(make(corpus), 0)["utterances"]["in"] == 8


@pytest.fixture
def pipe(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Runs rows that come from stdin."""

    def pipe(rows: list[dict[str, Any]], **values: Any) -> Path:
        lines = io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(lines))
        return make("-", **values)

    return pipe


def test_rows_from_stdin_that_an_interrupted_run_left_are_missing(
    pipe: Callable[..., Path],
) -> None:
    found = look(pipe(ALL, stop_after=3), 7)
    assert found["utterances"] == {"in": 11, "made": 3, "rejected": 2, "failed": 0, "missing": 6}
    text = call(pipe(ALL, stop_after=2)).stdout
    assert "missing   4" in text
    assert "not all of the input" in text
    found = look(pipe(ALL), 0)
    assert found["utterances"] == {"in": 11, "made": 8, "rejected": 2, "failed": 1, "missing": 0}
    assert ["not row by row" in note for note in found["notes"]] == [True]


def test_rows_from_stdin_that_nothing_counts_are_not_called_good(pipe: Callable[..., Path]) -> None:
    out = pipe(SPOKEN)
    (out / "failures.jsonl").write_bytes(failure_line(failure(9)))
    assert "counted 0 and 0" in str(look(out, 7)["findings"]["not_compared"])
    (out / "failures.jsonl").write_text("")
    (out / "ledger/session.json").write_text("{}")
    found = look(out, 7)
    assert list(found["findings"]) == ["not_compared"]
    assert "not compared with the input" in call(out).stdout


def test_input_that_is_gone_is_said_and_not_called_good(out: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").unlink()
    found = look(out, 7)
    assert (found["ok"], found["utterances"]["in"]) == (False, None)
    assert list(found["findings"]) == ["not_compared"]
    assert "no such file" in str(found["findings"]["not_compared"]["examples"])
    text = call(out).stdout
    assert "rows in   not known" in text
    assert "not compared with the input" in text
    assert "all good" not in text
    wav(out, "r4").unlink()
    assert named(look(out, 6), "file_missing") == ["r4"]


def test_input_named_relative_to_the_runs_folder_is_found_from_another(
    make: Callable[..., Path], write_rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, elsewhere = write_rows(*ALL), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(corpus.parent)
    whole = make(corpus.name)
    monkeypatch.chdir(elsewhere)
    assert look(Path("..") / whole.name, 0)["utterances"]["in"] == 11
    assert Path.cwd() == elsewhere
    corpus.rename(tmp_path / "rows2.jsonl")
    assert list(look(whole, 7)["findings"]) == ["not_compared"]


def test_rows_left_of_an_input_that_is_gone_are_counted(
    make: Callable[..., Path], write_rows: Rows
) -> None:
    corpus = write_rows(*SPOKEN)
    out = make(corpus, stop_after=3)
    corpus.unlink()
    assert look(out, 7)["utterances"]["missing"] == 5


def test_plan_of_another_version_is_said_and_not_called_good(out: Path) -> None:
    run_json = json.loads((out / "run.json").read_text("utf8"))
    run_json["plan"]["corpus"]["later"] = 1
    (out / "run.json").write_text(json.dumps(run_json))
    assert "later" in str(look(out, 7)["findings"]["not_compared"])


def test_rows_of_a_file_that_run_json_does_not_name_are_said(
    make: Callable[..., Path], write_rows: Rows
) -> None:
    make(write_rows(*SPOKEN[:3]))
    out = make(write_rows(*SPOKEN[3:], name="more.jsonl"))
    found = look(out, 0)
    assert found["utterances"]["in"] == 5
    assert ["rows.jsonl" in note for note in found["notes"]] == [True]


def test_run_json_names_the_corpus_and_the_columns_of_the_last_run_that_could_read_them(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    corpus, renamed = tmp_path / "rows.csv", tmp_path / "renamed.csv"
    corpus.write_text("id,sentence\na,One row.\nb,Another row.\n")
    with pytest.raises(CorpusError, match="text"):
        make(corpus)
    out = make(corpus, map=["text=sentence"])
    assert look(out, 0)["utterances"]["in"] == 2
    before = content(out)
    with pytest.raises(CorpusError, match="text"):
        make(corpus)
    assert content(out)["run.json"] == before["run.json"]
    make(corpus, map=["text=sentence"], slots=3)
    assert content(out) == before
    corpus.rename(renamed)
    make(renamed, map=["text=sentence"])
    assert look(out, 0)["utterances"]["in"] == 2
    plan, created = (
        json.loads((out / "run.json").read_text("utf8"))[name] for name in ("plan", "created")
    )
    assert plan["corpus"]["sources"] == [str(renamed)]
    assert created == json.loads(before["run.json"][0])["created"]
    renamed.write_text(renamed.read_text("utf8") + "c,A third row.\n")
    make(renamed, map=["text=sentence"], slots=3)
    plan = json.loads((out / "run.json").read_text("utf8"))["plan"]
    assert plan["engine"]["slots"] == 3


def test_codes_are_checked_against_the_manifest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out, [utterance(f"r{i}") for i in range(4)], codes=True)
    assert look_inside(out, 0)["utterances"]["made"] == 4
    codes = out / "codes/shard-00000"
    np.save(codes / "r0.npy", np.zeros((2, 2), np.int16))
    np.save(codes / "r1.npy", np.zeros((3, 2), np.int32))
    os.truncate(codes / "r2.npy", 130)
    (out / "codes/shard-00001/r3.npy").unlink()
    (codes / "stray.npy").write_bytes(b"x")
    found = look_inside(out, 6)
    assert named(found, "wrong_codes") == ["r0", "r1"]
    assert named(found, "torn_file") == ["r2"]
    assert named(found, "file_missing") == ["r3"]
    assert found["findings"]["orphan_file"]["count"] == 1


@pytest.mark.parametrize("layout", ["dir", "tar", "parquet"])
def test_what_a_killed_session_leaves_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    rows = [utterance(f"r{i}") for i in range(5)]
    edited = [utterance("r0", "edited"), *rows[1:], utterance("r5")]
    start = tmp_path / "start"
    run(start, rows, [failure(90)], codes=True, layout=layout)
    kinds: set[str] = set()
    for at in range(1, 200, 2 if layout == "dir" else 3):
        out = tmp_path / f"{at}"
        shutil.copytree(start, out)
        if not killed(
            lambda out=out: run(out, edited, [failure(90)], codes=True, layout=layout), at
        ):
            break
        is_signed = (out / "ledger/session.json").exists()
        found = look_inside(out, 7)
        assert not any(f["damage"] for f in found["findings"].values()), f"killed at write {at}"
        assert is_signed == any("killed" in note for note in found["notes"])
        kinds |= set(found["findings"])
        run(out, edited, [failure(90)], codes=True, layout=layout)
        assert look_inside(out, 0)["utterances"]["made"] == 6
        shutil.rmtree(out)
    assert at > 30
    assert kinds == {"leftover"} | (set() if layout == "dir" else {"unpublished"})


def test_first_session_killed_at_its_start_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    exit_codes = []
    for at in range(2, 30, 3):
        out = tmp_path / f"{at}"
        assert killed(lambda out=out: run(out, [utterance("r0"), utterance("r1")]), at)
        result = call(out, "--json")
        exit_codes.append(result.exit_code)
        if "no run.json" in result.stderr:
            continue
        found = json.loads(result.stdout)
        assert not any(f["damage"] for f in found["findings"].values()), f"killed at write {at}"
    assert 7 in exit_codes


def test_run_in_progress_is_said_and_not_disturbed(out: Path) -> None:
    (out / "ledger/session.json").write_text('{"pid": 5, "host": "h", "started": "now"}')
    with (out / "ledger/lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "in progress (process 5 on h, since now)" in look(out, 0)["notes"][0]


def test_other_folders_are_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        result = call(folder)
        assert result.exit_code == 6
        assert "expected the output of a run" in result.stderr


def test_a_block_boundary_loses_no_line(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for lines in (1, 3, 8):
        monkeypatch.setattr(sink_verify, "_BLOCK_LINES", lines)
        assert look(out, 0)["utterances"]["made"] == 8
