"""Output on an object store: the promises of a local OUT, over real HTTP."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyarrow import parquet as pq
from typer.testing import CliRunner, Result

from tests.cases.case_run import DATA
from tests.resume.kill_many import command
from tests.resume.s3_server import S3, serving
from tests.sinks.fake_run import CARD, failure, plan, record, utterance
from tests.sinks.fake_run import run as run_locally
from ttsbatch.cli.app import app
from ttsbatch.errors import PlanError, SinkError
from ttsbatch.sinks import durable, store_mirror
from ttsbatch.sinks import owner as owner_module
from ttsbatch.sinks import store as store_module
from ttsbatch.sinks.findings import DAMAGE
from ttsbatch.sinks.parts import growth_part
from ttsbatch.sinks.peek import peek
from ttsbatch.sinks.remote import opened_for_reading, opened_for_writing
from ttsbatch.sinks.shards import ShardSink
from ttsbatch.sinks.stored import AudioReader
from ttsbatch.sinks.verify import OutputCheck
from ttsbatch.types import Failure, Utterance

NUM_ROWS = 40
WAIT_S = 60.0  # more than a loaded machine needs
ROWS = [utterance(f"r{i}") for i in range(7)]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setattr(owner_module, "SETTLE_S", 0.0)
        with serving() as server:
            yield server


@pytest.fixture(autouse=True)
def _quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on the local disk is of no value here."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(durable, "_syncfs", None)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rows.jsonl"
    lines = (DATA / "17_resume_300.jsonl").read_text("utf8").splitlines(keepends=True)
    path.write_text("".join(lines[:NUM_ROWS]), "utf8")
    return path


@pytest.fixture(scope="module")
def local(corpus: Path) -> dict[str, tuple[dict[str, Any], bytes]]:
    """id -> manifest line and audio of a local run of the embedded default."""
    out = corpus.parent / "local"
    assert run("synth", corpus, "-o", out).exit_code == 0
    lines = [json.loads(x) for x in (out / "manifest.jsonl").read_bytes().splitlines()]
    return {m["id"]: (m, (out / m["audio_filepath"]).read_bytes()) for m in lines}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_dry_run_says_what_a_run_would_make_and_writes_nothing(s3: S3) -> None:
    out = s3.new_out()
    assert not peek(out, plan(), CARD).has("r0")
    assert s3.objects(out) == {}
    session(out, ROWS[:5])
    before = s3.objects(out)
    found = peek(out, plan(), CARD)
    assert [found.is_finished(u) for u in ROWS] == [True] * 5 + [False] * 2
    with pytest.raises(PlanError, match="seed was 0, now 1"):
        peek(out, plan(seed=1), CARD)
    assert s3.objects(out) == before


def rows_of(s3: S3, out: str) -> dict[str, tuple[dict[str, Any], bytes]]:
    """id -> manifest line and audio; checks that each id and each file is there once."""
    lines = [json.loads(x) for x in s3.read(out, "manifest.jsonl").splitlines()]
    found = {m["id"]: (m, s3.read(out, m["audio_filepath"])) for m in lines}
    assert len(found) == len(lines), "an id is there twice"
    there = {name for name in s3.objects(out) if name.startswith("audio/")}
    assert there == {m["audio_filepath"] for m in lines}
    return found


def audio_of(rows: dict[str, tuple[dict[str, Any], bytes]]) -> dict[str, bytes]:
    return {row_id: audio for row_id, (_, audio) in rows.items()}


def session(
    out: str,
    rows: Iterable[Utterance],
    rejects: Iterable[Failure] = (),
    codes: bool = False,
    **values: Any,
) -> list[str]:
    """As `fake_run.run`, to a URI."""
    rows, made = list(rows), []
    with (
        opened_for_writing(out) as opened,
        ShardSink(
            opened.folder,
            plan(save_codes=codes, **values),
            CARD,
            mirror=opened.mirror,
            group_seconds=0.01,
            group_rows=2,
        ) as sink,
    ):
        sink.find_lost()
        sink.reject(rejects)
        for u in rows:
            sink.names.note(u)
        for u in rows:
            if not sink.is_finished(u):
                sink.write(record(sink, u, codes))
                made.append(u.id)
    return made


def findings(out: str) -> dict[str, int]:
    with opened_for_reading(out) as (folder, store):
        return {k: f.count for k, f in OutputCheck(folder, store).findings.by_kind.items()}


# -- the real command


def test_run_to_s3_gives_the_rows_and_bytes_of_a_local_one_and_a_rerun_uploads_nothing(
    s3: S3, corpus: Path, local: dict[str, tuple[dict[str, Any], bytes]]
) -> None:
    out = s3.new_out()
    assert run("synth", corpus, "-o", out).exit_code == 0
    made = rows_of(s3, out)
    assert audio_of(made) == audio_of(local)
    timed = ("checks",)
    for row_id, (line, _) in made.items():
        assert {k: v for k, v in line.items() if k not in timed} == {
            k: v for k, v in local[row_id][0].items() if k not in timed
        }
    before = s3.objects(out)
    s3.written(out)
    again = run("synth", corpus, "-o", out, "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["utterances"]["made"] == NUM_ROWS
    assert s3.written(out) == []
    assert s3.objects(out) == before
    assert run("verify", out).exit_code == 0
    shown = run("report", out, "--json")
    assert json.loads(shown.stdout) == json.loads(s3.read(out, "report.json"))


def test_killed_run_goes_on_and_uploads_no_finished_audio_again(
    s3: S3, corpus: Path, local: dict[str, tuple[dict[str, Any], bytes]]
) -> None:
    out = s3.new_out()
    process = subprocess.Popen(command(corpus, out, []))
    while not any(name.startswith("ledger/commits-") for name in s3.objects(out)):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with opened_for_reading(out) as (folder, _):
        lines = (folder / "manifest.jsonl").read_bytes().splitlines()
        finished = [json.loads(line)["audio_filepath"] for line in lines]
    assert 0 < len(finished) < NUM_ROWS
    assert run("verify", out).exit_code == 7  # rows are missing, nothing is damaged
    s3.written(out)
    assert run("synth", corpus, "-o", out).exit_code == 0
    assert set(finished).isdisjoint(s3.written(out))
    assert audio_of(rows_of(s3, out)) == audio_of(local)
    assert run("verify", out).exit_code == 0


def test_store_that_stops_ends_the_run_with_6_and_it_goes_on_once_it_is_back(
    s3: S3,
    corpus: Path,
    local: dict[str, tuple[dict[str, Any], bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = s3.new_out()
    monkeypatch.setattr(store_module, "DEAD_AFTER_S", 0.1)

    def stop_after_a_commit() -> None:
        while not any(name.startswith("ledger/commits-") for name in s3.objects(out)):
            time.sleep(0.02)
        s3.proxy.stop()

    thread = threading.Thread(target=stop_after_a_commit)
    thread.start()
    stopped = run("synth", corpus, "-o", out)
    thread.join()
    assert stopped.exit_code == 6
    assert f"{out.partition('?')[0]}/" in stopped.stderr
    assert "Could not connect" in stopped.stderr
    assert "run the same command again once it answers" in stopped.stderr
    s3.proxy.start()
    assert run("synth", corpus, "-o", out).exit_code == 0
    assert audio_of(rows_of(s3, out)) == audio_of(local)


# -- the sink


def test_rows_of_a_local_run_and_codes_too(s3: S3, tmp_path: Path) -> None:
    out = s3.new_out()
    session(out, ROWS, [failure(90)], codes=True)
    run_locally(tmp_path, ROWS, [failure(90)], codes=True)
    names = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    there = {n for n in s3.objects(out) if not n.startswith("ledger/")}
    assert there == {n for n in names if not n.startswith("ledger/")}
    for name in there - {"run.json"}:
        assert s3.read(out, name) == (tmp_path / name).read_bytes()
    assert findings(out) == {}


def test_edited_and_rejected_rows_are_replaced(s3: S3) -> None:
    out = s3.new_out()
    session(out, ROWS, [failure(90)])
    edited = [utterance("r0", "edited"), *ROWS[1:5], utterance("r6", "edited")]
    rejects = [failure(90), replace(failure(91), utterance_id="r5")]
    assert session(out, edited, rejects) == ["r0", "r6"]
    made = rows_of(s3, out)
    assert {i: m["text"] for i, (m, _) in made.items()} == {u.id: u.text for u in edited}
    assert len(s3.read(out, "failures.jsonl").splitlines()) == 2
    assert findings(out) == {}
    s3.written(out)
    assert session(out, edited, rejects) == []
    assert s3.written(out) == []


def test_ledger_takes_a_row_back_before_failures_jsonl_rejects_it(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = s3.new_out()
    session(out, ROWS)
    put, written = store_module.Store.put, []

    def slow(self: store_module.Store, name: str, content: Any) -> None:
        if name.startswith("ledger/commits-"):
            time.sleep(0.2)
        put(self, name, content)
        written.append(name)

    monkeypatch.setattr(store_module.Store, "put", slow)
    assert session(out, ROWS[:6], [replace(failure(91), utterance_id="r6")]) == []
    ordered = [n for n in written if n.startswith(("ledger/commits-", "failures"))]
    assert [n.partition("-")[0] for n in ordered] == ["ledger/commits", "failures.jsonl"]


def test_shards_are_those_of_a_local_run(s3: S3, tmp_path: Path) -> None:
    out, layout = s3.new_out(), "tar"
    for rows in (ROWS[:4], ROWS):  # the second session goes on in a shard of one row
        session(out, rows, layout=layout)
        run_locally(tmp_path, rows, layout=layout)
        assert findings(out) == {}
    shards = sorted((tmp_path / "audio").iterdir())
    assert len(shards) == 3
    for shard in shards:
        assert s3.read(out, f"audio/{shard.name}") == shard.read_bytes()
    assert session(out, [utterance("r0", "edited"), *ROWS[1:]], layout=layout) == ["r0"]
    assert findings(out) == {}
    s3.remove(out, f"audio/{shards[1].name}")
    assert findings(out) == {"file_missing": 3}
    rows = [utterance("r0", "edited"), *ROWS[1:]]
    assert sorted(session(out, rows, layout=layout)) == ["r3", "r4", "r5"]
    assert findings(out) == {}
    s3.written(out)
    assert session(out, rows, layout=layout) == []
    assert s3.written(out) == []


def test_lost_and_torn_objects_are_named_by_verify_and_made_again(s3: S3) -> None:
    out = s3.new_out()
    session(out, ROWS)
    paths = {i: m["audio_filepath"] for i, (m, _) in rows_of(s3, out).items()}
    s3.remove(out, paths["r1"])
    s3.write(out, paths["r2"], s3.read(out, paths["r2"])[:60])
    s3.write(out, "audio/shard-00009/stray.wav", b"RIFF")
    with opened_for_reading(out) as (folder, store):
        found = OutputCheck(folder, store).findings.by_kind
    assert {k: [e.id for e in f.examples] for k, f in found.items()} == {
        "file_missing": ["r1"],
        "torn_file": ["r2"],
        "orphan_file": [None],
    }
    assert session(out, ROWS) == ["r1", "r2"]
    assert rows_of(s3, out).keys() == {u.id for u in ROWS}


def test_changed_settings_are_refused_and_no_object_changes(s3: S3) -> None:
    out = s3.new_out()
    session(out, ROWS)
    before = s3.objects(out)
    s3.written(out)
    with pytest.raises(
        PlanError, match=r"s3://speech/runs/\d+: begun with other settings: seed was"
    ):
        session(out, ROWS, seed=5)
    assert s3.written(out) == []
    assert s3.objects(out).keys() == before.keys()


def test_second_writer_is_refused_while_the_first_lives(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = s3.new_out()
    with (
        opened_for_writing(out),
        pytest.raises(SinkError, match=f"in use by process {os.getpid()}"),
    ):
        session(out, ROWS)
    assert session(out, ROWS) != []  # given back
    elsewhere = {"pid": 1, "host": "other", "started": "now", "token": "x"}
    s3.write(out, "ledger/writer.json", json.dumps(elsewhere).encode())
    with pytest.raises(SinkError, match="in use by process 1 on other, since now"):
        session(out, ROWS)
    monkeypatch.setattr(owner_module, "STALE_S", -5.0)
    assert session(out, ROWS) == []  # taken over
    assert "ledger/writer.json" not in s3.objects(out)


def test_writer_object_is_always_of_one_size(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = set()
    for host in ("a", "a-host-of-a-longer-name"):
        monkeypatch.setattr(owner_module.socket, "gethostname", lambda host=host: host)
        out = s3.new_out()
        with opened_for_writing(out):
            sizes.add(s3.objects(out)["ledger/writer.json"][0])
    assert len(sizes) == 1


def test_writer_of_this_host_that_is_gone_is_followed_at_once(s3: S3) -> None:
    out = s3.new_out()
    gone = subprocess.Popen(["true"])
    gone.wait()
    writer = {"pid": gone.pid, "host": "this", "place": owner_module._place(), "token": "x"}
    s3.write(out, "ledger/writer.json", json.dumps(writer).encode())
    assert len(session(out, ROWS)) == len(ROWS)


def test_run_that_another_took_over_from_ends(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    out = s3.new_out()
    monkeypatch.setattr(owner_module, "BEAT_S", 0.05)
    other = json.dumps({"pid": 1, "host": "other", "token": "x"})
    writer = other.ljust(owner_module._WRITER_BYTES).encode()

    def run_on() -> None:
        with (
            opened_for_writing(out) as opened,
            ShardSink(opened.folder, plan(), CARD, mirror=opened.mirror) as sink,
        ):
            (beats,) = (t for t in threading.enumerate() if t.name == "ttsbatch-owner")
            deadline = time.monotonic() + WAIT_S
            while beats.is_alive():  # one that had looked already puts its own name over ours
                assert time.monotonic() < deadline, "the run does not see who took over"
                s3.write(out, "ledger/writer.json", writer)
                beats.join(0.15)
            sink.write(record(sink, ROWS[0]))
            sink.flush()

    with pytest.raises(SinkError, match="in use by process 1 on other"):
        run_on()
    assert s3.read(out, "ledger/writer.json") == writer


def test_what_waiting_does_not_mend_is_told_at_once(s3: S3) -> None:
    out = s3.new_out().replace("s3://speech/", "s3://no-such-bucket/")
    started = time.monotonic()
    with pytest.raises(SinkError, match=r"s3://no-such-bucket/runs/\d+/ledger/.*NO_SUCH_BUCKET"):
        session(out, ROWS)
    assert time.monotonic() - started < 5
    for uri, message in (
        ("s3://?region=us-east-1", "s3:/*: "),
        ("nofs://a/b", "nofs://a/b: cannot be opened"),
        ("s3://key:secret@speech/a?region=us-east-1&x=1", "s3://speech/a: cannot be opened"),
    ):
        with pytest.raises(SinkError, match=message), opened_for_writing(uri):
            pass


def test_folder_of_others_is_refused(s3: S3) -> None:
    out = s3.new_out()
    s3.write(out, "thesis.txt", b"mine")
    with pytest.raises(SinkError, match=r"holds 'thesis\.txt', which no run of ttsbatch wrote"):
        session(out, ROWS)
    assert s3.objects(out).keys() == {"thesis.txt"}


def test_damaged_or_missing_part_is_named(s3: S3) -> None:
    out = s3.new_out()
    session(out, ROWS)
    (part,) = [n for n in s3.objects(out) if n.startswith("ledger/base-")]
    whole = s3.read(out, part)
    for data, problem in (
        (whole[:-40], "is cut short"),
        (whole[:-40] + b"x" * 40, "its digest is another"),
        (b"x" * 999, "not a part of a ledger"),
    ):
        s3.write(out, part, data)
        for what in (session, lambda out, rows: findings(out)):
            with pytest.raises(SinkError, match=f"{part}: .*{problem}"):
                what(out, ROWS)
    s3.write(out, part, whole)
    assert session(out, ROWS) == []
    s3.write(out, "ledger/commits-0000000099.bin", growth_part([("manifest.jsonl", 7, b"x")]))
    with pytest.raises(SinkError, match="a part is missing, or two runs wrote at once"):
        session(out, ROWS)


def test_rows_are_redone_and_exported(
    s3: S3, corpus: Path, local: dict[str, tuple[dict[str, Any], bytes]], tmp_path: Path
) -> None:
    out = s3.new_out()
    assert run("synth", corpus, "-o", out, "--limit", "3").exit_code == 0
    first = rows_of(s3, out)
    row_id = next(iter(first))
    done = run("redo", out, "--id", row_id, "--seed", "5", "--json")
    assert done.exit_code == 0
    assert [m["id"] for m in json.loads(done.stdout)["made"]] == [row_id]
    redone = rows_of(s3, out)
    assert redone[row_id][0]["seed"] == 5
    assert {i: a for i, a in audio_of(redone).items() if i != row_id} == {
        i: a for i, a in audio_of(first).items() if i != row_id
    }
    done = run("export", out, "--to", "nemo", "-o", tmp_path / "nemo", "--include-flagged")
    assert done.exit_code == 0, done.stderr
    lines = (tmp_path / "nemo/manifest.jsonl").read_text("utf8").splitlines()
    files = [tmp_path / "nemo" / json.loads(line)["audio_filepath"] for line in lines]
    assert sorted(f.read_bytes() for f in files) == sorted(audio_of(redone).values())
    refused = run("export", out, "--to", "nemo", "-o", tmp_path / "linked", "--link")
    assert refused.exit_code == 2
    assert "is no local folder" in refused.stderr


def test_disk_use_is_bounded_while_the_store_is_slow(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = s3.new_out()
    monkeypatch.setattr(store_mirror, "MAX_PENDING_BYTES", 2000)
    put_file, most = store_module.Store.put_file, [0]

    def size_of(folder: Path) -> int:
        size = 0
        for top, _, names in os.walk(folder):  # which does not mind a folder that goes
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # uploaded and removed meanwhile
                    size += os.stat(f"{top}/{name}").st_size
        return size

    def slow(self: store_module.Store, name: str, path: Path) -> int:
        audio = path.parents[len(Path(name).parts) - 1] / "audio"
        most[0] = max(most[0], size_of(audio))
        time.sleep(0.02)
        return put_file(self, name, path)

    monkeypatch.setattr(store_module.Store, "put_file", slow)
    rows = [utterance(f"r{i}") for i in range(40)]
    assert len(session(out, rows)) == 40
    assert 500 < most[0] < 4000
    assert len(rows_of(s3, out)) == 40


def test_store_with_folders_gets_its_objects_by_a_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def file_system(uri: str) -> tuple[Any, str]:
        return fs.LocalFileSystem(), uri.removeprefix("mem://")

    monkeypatch.setattr(store_module, "_file_system", file_system)
    assert len(session(f"mem://{tmp_path}/out", ROWS)) == 7
    (tmp_path / "out/ledger/new/torn").write_bytes(b"half")
    assert session(f"mem://{tmp_path}/out", ROWS) == []
    assert len(on_disk(tmp_path / "out")) == 7
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert list((tmp_path / "out/ledger/new").iterdir()) == []
    assert session(f"file://{tmp_path}/local", ROWS[:1]) == ["r0"]
    assert (tmp_path / "local/ledger/commits.bin").exists()


# -- kills, at every request that changes something; on a local file system, which is quicker


class Killed(BaseException):
    """In place of the end of the process."""


class Dying:
    """A file system whose n-th change, and whatever comes after, does not happen."""

    def __init__(self, inner: fs.FileSystem, at: int) -> None:
        self._inner, self._left, self._lock = inner, at, threading.Lock()
        self.is_dead = False
        self.type_name = "s3"  # so that objects are not renamed: a stream is closed, or is not

    def _change(self) -> None:
        with self._lock:
            self._left -= 1
            self.is_dead |= self._left < 0
        self._look()

    def _look(self) -> None:
        if self.is_dead:
            raise Killed

    def open_output_stream(self, path: str) -> Any:
        if "/audio/" in path:
            time.sleep(0.01)  # audio is what takes long
        self._change()
        self._inner.create_dir(path.rpartition("/")[0], recursive=True)
        return self._inner.open_output_stream(path)

    def delete_file(self, path: str) -> None:
        self._change()
        self._inner.delete_file(path)

    def __getattr__(self, name: str) -> Any:
        self._look()
        return getattr(self._inner, name)


def kill_everywhere(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    job: Callable[[str], object],
    start: Path | None = None,
) -> int:
    """Kill a job at its every change of the store and run it again; returns how many."""
    at = [10**9]

    def file_system(uri: str) -> tuple[Any, str]:
        return Dying(fs.LocalFileSystem(), at[0]), uri.removeprefix("mem://")

    monkeypatch.setattr(store_module, "_file_system", file_system)
    monkeypatch.setattr(owner_module, "SETTLE_S", 0.0)
    if start is not None:
        shutil.copytree(start, root / "whole")
    job(f"mem://{root}/whole")
    expected = on_disk(root / "whole")
    for number in itertools.count(step=2):
        out = root / f"{number}"
        if start is not None:
            shutil.copytree(start, out)
        at[0] = number
        with contextlib.suppress(Killed, SinkError):
            job(f"mem://{out}")
            return number
        for thread in threading.enumerate():  # a process that is killed leaves none behind
            if thread.name.startswith("ttsbatch-upload"):
                thread.join(30)
                assert not thread.is_alive()
        at[0] = 10**9
        if (out / "run.json").exists():
            assert not findings(f"mem://{out}").keys() & DAMAGE.keys(), f"killed at change {number}"
        job(f"mem://{out}")
        assert on_disk(out) == expected, f"killed at change {number}"
        shutil.rmtree(out)
    raise AssertionError


def on_disk(out: Path) -> dict[str, bytes]:
    """id -> audio; checks that each id and each file is there once, and no part is."""
    rows = [json.loads(x) for x in (out / "manifest.jsonl").read_bytes().splitlines()]
    named = [p for m in rows for p in (m["audio_filepath"], m.get("codes_filepath")) if p]
    there = [
        member
        for top in ("audio", "codes")
        for p in (out / top).rglob("*")
        if p.is_file()
        for member in members(out, p)
    ]
    assert sorted(there) == sorted(named)
    assert [p.name[:5] for p in (out / "ledger").iterdir() if p.is_file()] == ["base-"]
    with AudioReader(out) as reader:
        found = {m["id"]: reader.read(m) for m in rows}
    assert len(found) == len(rows)
    return found


def members(out: Path, path: Path) -> list[str]:
    """The paths of the manifest that a file is behind."""
    name = path.relative_to(out).as_posix()
    if path.suffix == ".tar":
        with tarfile.open(path) as tar:
            inside = [n for n in tar.getnames() if n.endswith((".wav", ".npy"))]
    elif path.suffix == ".parquet":
        inside = [row["path"] for row in pq.read_table(path).column("audio").to_pylist()]
    else:
        return [name]
    return [f"{name}#{member}" for member in inside]


@pytest.mark.parametrize("layout", ["dir", "tar", "parquet"])
def test_first_run_killed_at_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    def job(out: str) -> None:
        session(out, ROWS[:5], [failure(90)], codes=layout != "parquet", layout=layout)

    assert kill_everywhere(tmp_path, monkeypatch, job) > 15


@pytest.mark.parametrize("layout", ["dir", "tar"])
def test_run_over_edited_rows_killed_at_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    edited = [utterance("r0", "edited"), *ROWS[1:5], utterance("r6", "edited"), utterance("r7")]

    def job(out: str) -> None:
        session(out, edited, [failure(90)], layout=layout)

    monkeypatch.setattr(owner_module, "SETTLE_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(
            store_module,
            "_file_system",
            lambda uri: (Dying(fs.LocalFileSystem(), 10**9), uri.removeprefix("mem://")),
        )
        session(f"mem://{tmp_path}/start", ROWS, [failure(90)], layout=layout)
    assert kill_everywhere(tmp_path, monkeypatch, job, tmp_path / "start") > 15
