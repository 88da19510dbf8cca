"""Finished rows and their audio read back, in every layout and after every kind of end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.export.conftest import as_layout, rewrite
from tests.sinks.fake_run import audio, manifest, run, utterance
from ttsbatch.errors import SinkError
from ttsbatch.sinks import ledger
from ttsbatch.sinks.stored import AudioReader, FinishedRows, read_audio, split_audio_path

IDS = ["r0", "a#b", "x.tar#y", "ü", "r4", "r5", "r6"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    out = tmp_path / "out"
    run(out, [utterance(id) for id in IDS])
    return out


def ids(out: Path) -> list[str]:
    rows = FinishedRows(out)
    found = [r["id"] for r in rows]
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("layout", ["dir", "tar", "parquet"])
def test_rows_come_in_manifest_order_with_their_bytes(out: Path, layout: str) -> None:
    expected = audio(out)
    if layout != "dir":
        as_layout(out, layout)
    with AudioReader(out) as reader:
        found = {r["id"]: reader.read(r) for r in FinishedRows(out)}
    assert list(found) == IDS
    assert found == expected
    for record in reversed(list(FinishedRows(out))):
        assert read_audio(out, record) == expected[record["id"]]


@pytest.mark.parametrize("layout", ["tar", "parquet"])
def test_a_shard_is_opened_once_for_its_rows(
    out: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ttsbatch.sinks import stored

    as_layout(out, layout)
    opened = []
    name = "_TarShard" if layout == "tar" else "_ParquetShard"
    kind = getattr(stored, name)
    monkeypatch.setattr(stored, name, lambda path: opened.append(path.name) or kind(path))
    with AudioReader(out) as reader:
        for record in FinishedRows(out):
            reader.read(record)
    assert opened == [f"shard-{i:05d}.{layout}" for i in range(3)]


@pytest.mark.parametrize("layout", ["dir", "tar", "parquet"])
def test_missing_audio_is_named(out: Path, layout: str) -> None:
    if layout != "dir":
        as_layout(out, layout)
    record = manifest(out)[4]
    gone = record | {"audio_filepath": record["audio_filepath"].replace("r4", "r9")}
    with pytest.raises(SinkError, match=r"row 'r4': audio/shard-00001.*r9\.wav: (is not|has no)"):
        read_audio(out, gone)
    if layout != "dir":
        (out / f"audio/shard-00001.{layout}").unlink()
        with pytest.raises(SinkError, match=r"row 'r4'.*is not there"):
            read_audio(out, record)


@pytest.mark.parametrize("layout", ["tar", "parquet"])
@pytest.mark.parametrize("size", [0, 300, 1100])
def test_a_torn_shard_is_named(out: Path, layout: str, size: int) -> None:
    as_layout(out, layout)
    os.truncate(out / f"audio/shard-00001.{layout}", size)
    with pytest.raises(SinkError, match="row 'r5': audio/shard-00001"):
        read_audio(out, manifest(out)[5])


def test_members_before_a_torn_end_of_a_tar_are_read(out: Path) -> None:
    expected = audio(out)
    as_layout(out, "tar")
    path = out / "audio/shard-00000.tar"
    with path.open("r+b") as file:
        file.truncate(path.read_bytes().rindex(b"x.tar#y") + 200)
    assert read_audio(out, manifest(out)[0]) == expected["r0"]
    assert read_audio(out, manifest(out)[1]) == expected["a#b"]


@pytest.mark.parametrize("path", ["audio", "x/y.wav", "audio/../run.json", "/etc/passwd", "", None])
def test_a_path_out_of_the_folder_is_refused(path: str | None) -> None:
    with pytest.raises(SinkError, match=r"row 'a': names .* expected a path in audio/"):
        split_audio_path({"id": "a", "audio_filepath": path})


def test_replaced_rows_come_once(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ttsbatch.sinks.shards import ShardSink

    # As a kill before the compaction leaves it: both lines are there, and the ledger says which.
    monkeypatch.setattr(ShardSink, "_compact", lambda *_: None)
    run(out, [utterance(IDS[0], "edited"), *map(utterance, IDS[1:])])
    lines = (out / "manifest.jsonl").read_text("utf8").splitlines()
    assert len(lines) == len(IDS) + 1
    assert ids(out) == [*IDS[1:], "r0"]
    assert [r["text"] for r in FinishedRows(out) if r["id"] == "r0"] == ["edited"]


def test_line_that_the_ledger_lacks_is_no_finished_row(out: Path) -> None:
    commits = out / "ledger/commits.bin"
    os.truncate(commits, commits.stat().st_size - ledger.RECORD.itemsize - 5)
    assert ids(out) == IDS[:-2]


def lose_the_last_line(out: Path) -> None:
    path = out / "manifest.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def swap_two_lines(out: Path) -> None:
    path = out / "manifest.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"id": "r5"', b'"id": "r4"'))


def edit_a_line(out: Path) -> None:
    path = out / "manifest.jsonl"
    path.write_bytes(path.read_bytes().replace(b"text of r4", b"something longer"))


def lose_the_ledger(out: Path) -> None:
    (out / "ledger/commits.bin").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lose_the_last_line, "before rows that the ledger has"),
        (swap_two_lines, "holds 'r4', not its row"),
        (edit_a_line, "was changed since it was written"),
        (lose_the_ledger, "expected the ledger of the run"),
    ],
)
def test_damage_is_said(out: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(out)
    with pytest.raises(SinkError, match=message):
        ids(out)


def test_rewritten_manifest_is_read_where_the_ledger_points(out: Path) -> None:
    rewrite(out, lambda m: m | {"extra": {"long": "x" * 1000}})
    assert ids(out) == IDS
    assert json.loads((out / "manifest.jsonl").read_text("utf8").splitlines()[0])["id"] == "r0"


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="expected the output of a run"):
        FinishedRows(tmp_path)
