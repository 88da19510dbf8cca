"""`ttsbatch export`: what goes along, and that PATH is there as a whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.export.conftest import GOOD_IDS, ROWS, as_layout, call, export, manifest
from tests.sinks.fake_run import content
from ttsbatch.export import clips, publish
from ttsbatch.export.run import FORMS

TO = ["hf", "nemo", "lhotse", "webdataset", "ljspeech"]
ARGUMENTS = {name: name.split(" ") for name in FORMS}


def left_at(folder: Path) -> list[str]:
    """What an export left beside OUT."""
    return sorted(p.name for p in folder.iterdir() if p.name not in ("out", "rows.jsonl"))


@pytest.mark.parametrize("form", FORMS)
def test_export_counts_its_rows_and_leaves_out_alone(out: Path, tmp_path: Path, form: str) -> None:
    before = content(out)
    result = call("export", out, "--to", *ARGUMENTS[form], "-o", tmp_path / "x", "--json")
    assert content(out) == before
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    seconds = sum(m["duration"] for m in manifest(out) if m["id"] != "bad")
    assert found.pop("audio_seconds") == pytest.approx(seconds)
    assert found == {
        "to": form,
        "path": str(tmp_path / "x"),
        "rows": len(GOOD_IDS),
        "flagged": 0,
        "flagged_left_out": 1,
        "not_made": 0,
        "left": 0,
    }
    assert "left out: 1 flagged row;" in result.stderr
    assert left_at(tmp_path) == ["x"]


@pytest.mark.parametrize("to", ["nemo", "webdataset"])
def test_flagged_rows_go_along_on_request_and_are_marked(out: Path, to: str) -> None:
    path = export(out, to, "--include-flagged")
    if to == "nemo":
        lines = map(json.loads, (path / "manifest.jsonl").read_text("utf8").splitlines())
        marks = {m["id"]: (m["verdict"], m["reasons"]) for m in lines}
        assert list(marks) == [r["id"] for r in ROWS]
        assert marks["bad"][0] == "flag"
        assert "silent" in marks["bad"][1]
    else:
        data = (path / "shard-000000.tar").read_bytes()
        assert data.count(b'"verdict": "flag"') == 1


def test_numbers_are_printed(out: Path, tmp_path: Path) -> None:
    text = call("export", out, "--to", "nemo", "-o", tmp_path / "x", "--include-flagged").stdout
    assert "rows      8" in text
    assert "1 marked, 0 left out" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "m4b"], "'m4b' is not one of"),
        (["--to", "nemo", "--shar"], "--shar has no use for --to nemo"),
        (["--to", "lhotse", "--audiofolder"], "expected --to hf"),
        (["--to", "webdataset", "--link"], "the audio goes into shards"),
        (["--to", "hf", "--link"], "the audio goes into shards"),
        (["--to", "nemo", "--shard-size", "5"], "it has no shards"),
        (["--to", "hf", "--shard-size", "0"], "shard-size"),
    ],
)
def test_option_without_use_is_refused(out: Path, arguments: list[str], message: str) -> None:
    result = call("export", out, *arguments, "-o", out.parent / "x")
    assert result.exit_code == 2
    assert message in result.stderr
    assert left_at(out.parent) == []


def test_path_inside_of_out_or_on_a_remote_is_refused(out: Path) -> None:
    for path in (out / "x", out, "s3://bucket/x"):
        result = call("export", out, "--to", "nemo", "-o", path)
        assert result.exit_code == 2, path
    assert not (out / "x").exists()


def test_path_that_is_taken_is_refused_and_an_empty_folder_is_used(out: Path) -> None:
    path = out.parent / "x"
    path.mkdir()
    assert call("export", out, "--to", "nemo", "-o", path).exit_code == 0
    before = content(path)
    result = call("export", out, "--to", "ljspeech", "-o", path)
    assert result.exit_code == 6
    assert "expected a new name or an empty folder" in result.stderr
    assert content(path) == before
    file = out.parent / "file"
    file.write_text("mine")
    assert call("export", out, "--to", "nemo", "-o", file).exit_code == 6
    assert file.read_text() == "mine"


@pytest.mark.parametrize("form", FORMS)
def test_row_without_its_audio_ends_the_export(out: Path, tmp_path: Path, form: str) -> None:
    (out / manifest(out)[6]["audio_filepath"]).unlink()
    result = call("export", out, "--to", *ARGUMENTS[form], "-o", tmp_path / "x")
    assert result.exit_code == 6
    assert "row '2020-01-01': audio/shard-00002/sub/day.wav: is not there" in result.stderr
    assert left_at(tmp_path) == []


@pytest.mark.parametrize("more", [[], ["--link"]])
def test_row_with_torn_audio_ends_the_export(out: Path, tmp_path: Path, more: list[str]) -> None:
    path = out / manifest(out)[3]["audio_filepath"]
    os.truncate(path, path.stat().st_size - 2)
    result = call("export", out, "--to", "nemo", "-o", tmp_path / "x", *more)
    assert result.exit_code == 6
    assert "row 'Ünïcode'" in result.stderr
    assert "samples at 24,000 Hz; the manifest says" in result.stderr
    path.write_bytes(b"no audio")
    result = call("export", out, "--to", "nemo", "-o", tmp_path / "x", *more)
    assert "is no audio file" in result.stderr
    assert left_at(tmp_path) == []


@pytest.mark.parametrize("form", FORMS)
def test_full_disk_ends_in_exit_6_and_leaves_nothing(
    out: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(publish, "sync_tree", full)
    result = call("export", out, "--to", *ARGUMENTS[form], "-o", tmp_path / "x")
    assert result.exit_code == 6
    assert "No space left on device; free some space" in result.stderr
    assert left_at(tmp_path) == []
    if FORMS[form].has_files:
        monkeypatch.setattr(clips, "write_file", full)
        monkeypatch.setattr(publish, "sync_tree", lambda folder: None)
        assert call("export", out, "--to", *ARGUMENTS[form], "-o", tmp_path / "x").exit_code == 6
        assert left_at(tmp_path) == []


def test_write_that_fails_within_a_shard_ends_in_exit_6(out: Path, tmp_path: Path) -> None:
    # A limit on the size of files: the system itself refuses the write.
    script = (
        "import resource, signal, sys; from ttsbatch.cli.app import app\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        f"app(['export', {str(out)!r}, '--to', sys.argv[1], '-o', {str(tmp_path / 'x')!r}])"
    )
    for to in ("webdataset", "hf"):
        done = subprocess.run([sys.executable, "-c", script, to], capture_output=True, text=True)
        assert done.returncode == 6, done.stderr
        assert "cannot write" in done.stderr
        assert left_at(tmp_path) == []


def test_killed_export_leaves_no_name_and_the_next_one_works(out: Path, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from ttsbatch.export import publish; "
        "from ttsbatch.cli.app import app\n"
        "publish.sync_tree = lambda folder: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"app(['export', {str(out)!r}, '--to', 'nemo', '-o', {str(tmp_path / 'x')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert done.returncode == -9
    assert left_at(tmp_path) == [".x.ttsbatch-export"]
    assert call("export", out, "--to", "ljspeech", "-o", tmp_path / "x").exit_code == 0
    assert sorted(p.name for p in (tmp_path / "x").iterdir()) == ["metadata.csv", "wavs"]
    assert left_at(tmp_path) == ["x"]


def test_two_exports_to_one_path_do_not_mix(out: Path, tmp_path: Path) -> None:
    temp = tmp_path / ".x.ttsbatch-export"
    temp.mkdir()
    (temp / "theirs").write_text("half")
    fd = os.open(temp, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    result = call("export", out, "--to", "nemo", "-o", tmp_path / "x")
    os.close(fd)
    assert result.exit_code == 6
    assert "another export" in result.stderr
    assert (temp / "theirs").read_text() == "half"


def test_unfinished_run_is_exported_as_far_as_it_is_and_exits_7(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    out = make(stop_after=3)
    result = call("export", out, "--to", "nemo", "-o", tmp_path / "x", "--json")
    assert result.exit_code == 7
    found = json.loads(result.stdout)
    assert (found["rows"], found["left"]) == (3, 5)
    assert "5 rows still to be made" in result.stderr
    (out / "ledger/session.json").write_text("{}")
    result = call("export", out, "--to", "nemo", "-o", tmp_path / "y", "--json")
    assert result.exit_code == 7
    assert json.loads(result.stdout)["left"] is None


def test_rejected_and_failed_rows_are_said(make: Callable[..., Path], tmp_path: Path) -> None:
    out = make([*ROWS[:2], {"id": "no", "text": "refuse"}, {"id": "none"}])
    result = call("export", out, "--to", "nemo", "-o", tmp_path / "x", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["not_made"] == 2


def test_run_in_progress_is_not_exported(out: Path, tmp_path: Path) -> None:
    with (out / "ledger/lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = call("export", out, "--to", "nemo", "-o", tmp_path / "x")
    assert result.exit_code == 6
    assert "in use" in result.stderr
    assert left_at(tmp_path) == []


def test_nothing_to_export_is_an_error(make: Callable[..., Path], tmp_path: Path) -> None:
    out = make([{"id": "bad", "text": "mumble 9 times"}])
    result = call("export", out, "--to", "nemo", "-o", tmp_path / "x")
    assert result.exit_code == 6
    assert "--include-flagged takes them" in result.stderr
    assert left_at(tmp_path) == []
    (tmp_path / "other").mkdir()
    result = call("export", tmp_path / "other", "--to", "nemo", "-o", tmp_path / "x")
    assert result.exit_code == 6
    assert "expected the output of a run" in result.stderr


def test_links_need_a_file_per_row(out: Path, tmp_path: Path) -> None:
    as_layout(out, "tar")
    result = call("export", out, "--to", "nemo", "--link", "-o", tmp_path / "x")
    assert result.exit_code == 2
    assert "audio/shard-00000.tar holds many" in result.stderr
    assert left_at(tmp_path) == []


def test_links_across_file_systems_are_refused(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    result = call("export", out, "--to", "nemo", "--link", "-o", tmp_path / "x")
    assert result.exit_code == 6
    assert "leave out --link" in result.stderr
    assert left_at(tmp_path) == []


def test_copy_of_an_output_without_its_lock_is_exported(out: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    (copy / "ledger/lock").unlink()
    assert call("export", copy, "--to", "nemo", "-o", tmp_path / "x").exit_code == 0


def test_export_needs_neither_torch_nor_the_other_libraries(out: Path) -> None:
    script = (
        "import sys; from ttsbatch.cli.app import app\n"
        f"for to in {TO}:\n"
        f"    to_ = {str(out.parent)!r} + '/' + to\n"
        f"    try: app(['export', {str(out)!r}, '--to', to, '-o', to_])\n"
        "    except SystemExit: pass\n"
        "print(sorted({'torch', 'lhotse', 'datasets', 'webdataset'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert left_at(out.parent) == sorted(TO)
