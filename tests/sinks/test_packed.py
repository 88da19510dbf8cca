"""The tar and parquet layouts: what is where, and when; sessions, torn ends, full disks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.sinks.fake_run import CARD, audio, content, manifest, plan, record, run
from tests.sinks.fake_run import utterance as row
from ttsbatch.errors import SinkError
from ttsbatch.sinks import durable, tar
from ttsbatch.sinks.names import NameBook
from ttsbatch.sinks.packed import packed_name, split_packed
from ttsbatch.sinks.shards import ShardSink

ROWS = [row(f"r{i}") for i in range(8)]
LAYOUTS = ["tar", "parquet"]


def shards(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((out / "audio").iterdir())}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cuts", [(1,), (4,), (3, 6), (1, 2, 3, 4, 5, 6, 7)])
def test_sessions_end_in_the_files_of_one_session(tmp_path: Path, layout: str, cuts) -> None:
    run(tmp_path / "whole", ROWS, codes=True, layout=layout)
    for end in (*cuts, len(ROWS)):
        before = shards(tmp_path / "out") if (tmp_path / "out").exists() else {}
        full = list(before)[: len(audio(tmp_path / "out")) // 3] if before else []
        run(tmp_path / "out", ROWS[:end], codes=True, layout=layout)
        assert all(shards(tmp_path / "out")[n] == before[n] for n in full)
        assert len(audio(tmp_path / "out")) == end
    assert shards(tmp_path / "out") == shards(tmp_path / "whole")
    assert len(shards(tmp_path / "out")) == 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_full_shards_have_their_names_during_the_session_and_the_last_at_its_end(
    tmp_path: Path, layout: str
) -> None:
    with ShardSink(tmp_path, plan(layout=layout), CARD, group_seconds=0.01) as sink:
        for u in ROWS[:5]:
            sink.write(record(sink, u))
        sink.flush()
        assert list(shards(tmp_path)) == [f"shard-00000.{layout}"]
        assert len(manifest(tmp_path)) == 5
        waiting = tar.read_index(tmp_path / "ledger/open/shard-00001.tar")
        assert [r.key for r in waiting.rows] == ["r3", "r4"]
    assert list(shards(tmp_path)) == [f"shard-00000.{layout}", f"shard-00001.{layout}"]
    assert list((tmp_path / "ledger/open").iterdir()) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_wait_survive_a_tear_at_any_byte_behind_them(tmp_path: Path, layout: str) -> None:
    """What a kill leaves: two committed rows wait, and a third is half written."""
    start = tmp_path / "start"
    with ShardSink(start, plan(layout=layout), CARD, group_seconds=0.01) as sink:
        for u in ROWS[:2]:
            sink.write(record(sink, u))
        sink.flush()
        shutil.copytree(start, tmp_path / "killed")
    spool = Path("ledger/open/shard-00000.tar")
    good = (tmp_path / "killed" / spool).read_bytes()
    third = tar.member("r2.wav", b"x" * 700) + tar.member("r2.json", b"{}")
    run(tmp_path / "whole", ROWS[:3], layout=layout)
    for length in (0, 1, 300, 512, 513, 1_300, len(third) - 1, len(third)):
        out = tmp_path / f"{length}"
        shutil.copytree(tmp_path / "killed", out)
        (out / spool).write_bytes(good + third[:length])
        assert run(out, ROWS[:3], layout=layout) == ["r2"]
        assert shards(out) == shards(tmp_path / "whole")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["ledger/commits.bin", "manifest.jsonl"])
def test_run_resumes_after_a_torn_record_of_what_is_published(
    tmp_path: Path, layout: str, name: str
) -> None:
    run(tmp_path / "start", ROWS[:5], layout=layout)
    size = (tmp_path / "start" / name).stat().st_size
    for length in range(0, size, size // 9):
        out = tmp_path / f"{length}"
        shutil.copytree(tmp_path / "start", out)
        os.truncate(out / name, length)
        run(out, ROWS[:5], layout=layout)
        assert shards(out) == shards(tmp_path / "start"), f"torn at byte {length}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_full_disk_while_a_shard_is_published_ends_in_a_state_that_resumes(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "out", ROWS[:2], layout=layout)  # a shard to be merged
    before = shards(tmp_path / "out")
    real_write, real_open = os.write, os.open
    temps: set[int] = set()

    def watched_open(path, *more):
        fd = real_open(path, *more)
        if Path(path).name == f"shard-00000.{layout}.part" and Path(path).parent.name == "tmp":
            temps.add(fd)
        return fd

    def full_disk(fd: int, data: bytes) -> int:
        if fd in temps:
            real_write(fd, bytes(data[: len(data) // 2]))
            raise OSError(28, "No space left on device")
        return real_write(fd, data)

    for piece_bytes in (10, 1 << 20):  # in the middle of the file, and at its end
        monkeypatch.setattr(durable, "_PIECE_BYTES", piece_bytes)
        monkeypatch.setattr(os, "open", watched_open)
        monkeypatch.setattr(os, "write", full_disk)
        with pytest.raises(SinkError, match=r"cannot write: No space left.*run the same") as e:
            run(tmp_path / "out", ROWS[:6], layout=layout)
        assert e.value.exit_code == 6
        monkeypatch.undo()
        temps.clear()
        assert shards(tmp_path / "out")[f"shard-00000.{layout}"] == next(iter(before.values()))
    run(tmp_path / "out", ROWS, layout=layout)
    assert {u.id for u in ROWS} == set(audio(tmp_path / "out"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_edited_rows_are_out_of_their_shards_and_nothing_else_is_touched(
    tmp_path: Path, layout: str
) -> None:
    run(tmp_path, ROWS, codes=True, layout=layout)
    old, before = audio(tmp_path), shards(tmp_path)
    edited = [row("r1", "another text"), *ROWS[:1], *ROWS[2:7], row("r7", "another text")]
    assert sorted(run(tmp_path, edited, codes=True, layout=layout)) == ["r1", "r7"]
    new = audio(tmp_path)  # each once
    assert {i for i in new if new[i] != old[i]} == {"r1", "r7"}
    assert shards(tmp_path)[f"shard-00001.{layout}"] == before[f"shard-00001.{layout}"]
    again = content(tmp_path)
    assert run(tmp_path, edited, codes=True, layout=layout) == []
    assert content(tmp_path) == again


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shard_that_loses_all_its_rows_goes(tmp_path: Path, layout: str) -> None:
    run(tmp_path, ROWS[:6], layout=layout)
    edited = [row(u.id, "another text") for u in ROWS[:3]]
    run(tmp_path, edited, layout=layout)
    assert list(shards(tmp_path)) == [f"shard-0000{i}.{layout}" for i in (1, 2)]
    assert len(audio(tmp_path)) == 6


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize("size", [0, 600, -1, -600, -3_500, None])
def test_rows_that_a_damaged_shard_lost_are_made_again(
    tmp_path: Path, layout: str, shard: int, size: int | None
) -> None:
    run(tmp_path, ROWS[:5], layout=layout)
    expected = audio(tmp_path)
    path = tmp_path / f"audio/shard-{shard:05d}.{layout}"
    if size is None:
        path.unlink()
    else:
        os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    with ShardSink(tmp_path, plan(layout=layout), CARD, group_rows=2) as sink:
        lost = sink.find_lost()
        again = [u for u in ROWS[:5] if not sink.is_finished(u)]
        assert len(lost) == len(again)
        for u in again:
            sink.write(record(sink, u))
    whole = {"r0", "r1", "r2"} if shard else {"r3", "r4"}
    assert not whole.intersection(u.id for u in again)
    assert audio(tmp_path) == expected  # each once
    assert run(tmp_path, ROWS[:5], layout=layout) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_odd_names_are_kept_apart_and_long_ones_come_back(tmp_path: Path, layout: str) -> None:
    ids = ["a.b", "a_b", "A.B", "ß" * 120, "x" * 240, "a#b", "..", "speech.wav"]
    rows = [row(i) for i in ids] + [row("f", file_name="a.d/b.c.wav")]
    run(tmp_path, rows, layout=layout, shard_size=100)
    assert len(audio(tmp_path)) == len(rows)
    members = [split_packed(m["audio_filepath"]) for m in manifest(tmp_path)]
    names = [m[1] for m in members if m is not None]
    assert all(n.rpartition("/")[2].count(".") == 1 for n in names)
    assert len({n.casefold() for n in names}) == len(rows)
    assert run(tmp_path, rows, layout=layout, shard_size=100) == []


def test_name_without_a_dot_stays_as_it_is() -> None:
    names = NameBook()
    assert packed_name(names, row("plain-name_7")) == "plain-name_7"
    assert packed_name(names, row("x", file_name="v1.2/take.wav")) == "v1.2/take"
    assert packed_name(names, row("v1.2")).startswith("v1_2-")


def test_path_of_a_file_of_its_own_is_not_taken_for_one_in_a_shard() -> None:
    assert split_packed("audio/shard-00000/a.tar#b.wav") is None
    assert split_packed("audio/shard-00000.tar#a/b#c.wav") == ("audio/shard-00000.tar", "a/b#c.wav")


def test_tar_of_another_program_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(tar.member("a.wav", b"1") + tar.member("a.json", b"22") + tar.END)
    index = tar.read_index(path)
    assert [(r.key, sorted(r.members)) for r in index.rows] == [("a", [".json", ".wav"])]
    assert index.is_closed
    whole = path.read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        assert not tar.read_index(path).is_closed
