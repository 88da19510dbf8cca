"""Killed at every write and rerun: the records of an unbroken run, each once."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.sinks.fake_run import audio, content, failure, manifest, redo, run, stored
from tests.sinks.fake_run import redo as _redo
from tests.sinks.fake_run import run as _run
from tests.sinks.fake_run import utterance as row
from ttsbatch.sinks.findings import DAMAGE
from ttsbatch.sinks.ledger import RECORD, scan
from ttsbatch.sinks.names import AUDIO_EXTENSIONS
from ttsbatch.sinks.verify import OutputCheck

ROWS = [row(f"r{i}") for i in range(7)]
EDITED = [row("r0", "edited"), *ROWS[1:5], row("r5", "edited"), row("r6", "edited"), row("r7")]


@pytest.fixture(autouse=True)
def _quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it wrote, synced or not; the calls are still counted."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: these tests make and remove thousands of files."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="ttsbatch-test-", dir=memory))
    yield folder
    shutil.rmtree(folder)


AUDIO = (*AUDIO_EXTENSIONS, ".tar", ".parquet")
WRITES = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir", "truncate")


def killed(job: Callable[[], object], at: int) -> bool:
    """Run a job in a child that dies at the n-th system call that changes a file.

    A write dies half done. Returns whether the child died before the job was through.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside numpy's idle threads
        pid = os.fork()
    if pid == 0:
        try:
            left = [at]
            for name in WRITES:
                setattr(os, name, _dying(getattr(os, name), name, left))
            job()
            os._exit(0)
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9), "the job itself failed"
    return code == 9


def _dying(call: Callable, name: str, left: list[int]) -> Callable:
    def wrapped(*args, **kwargs):
        if name != "open" or args[1] & os.O_CREAT:
            left[0] -= 1
            if left[0] == 0:
                if name == "write":
                    call(args[0], bytes(args[1])[: len(args[1]) // 2])
                os._exit(9)
        return call(*args, **kwargs)

    return wrapped


LAYOUTS = [
    {"layout": "dir"},
    {"layout": "tar", "format": "flac"},
    {"layout": "parquet", "format": "wav"},
]


def kill_everywhere(start: Path | None, work: Path, rows: list, codes: bool, **values: str) -> int:
    """Kill a run over a copy of `start` at its every write, resume, compare; returns how many."""
    whole = work / "whole"
    if start is not None:
        shutil.copytree(start, whole)
    rejects = [failure(90)]
    run(whole, rows, rejects, codes, **values)
    files = dict(stored(whole))
    expected = audio(whole)
    at = 0
    while True:
        at += 1
        out = work / f"{at}"
        if start is not None:
            shutil.copytree(start, out)
        was_killed = killed(lambda out=out: run(out, rows, rejects, codes, **values), at)
        if not was_killed:
            return at - 1
        unfinished = [p.name for p in (out / "ledger/tmp").glob("*")]
        assert not [name for name in unfinished if name.endswith(AUDIO)]
        finished = {p: c for p, c in content(out).items() if p.endswith(".wav")} if at % 5 else {}
        committed = num_committed(out)
        made = run(out, rows, rejects, codes, **values)
        assert audio(out) == expected, f"killed at write {at}"
        if start is None:  # the same files too, and no row was made twice
            assert dict(stored(out)) == files
            assert committed + len(made) == len(rows)
        lines = {m["id"]: m["audio_filepath"] for m in manifest(out)}
        for path, state in finished.items():  # finished audio is not made again
            id = next((i for i, p in lines.items() if p == path), None)
            if id is not None and id not in made:
                assert content(out)[path] == state
        left = {p.name for p in (out / "ledger").rglob("*") if p.is_file()}
        assert left == {"lock", "commits.bin"}, f"killed at write {at}"
        if codes and values["layout"] == "dir":
            assert len([p for p in (out / "codes").rglob("*") if p.is_file()]) == len(expected)
        if at % 4 == 0:
            before = content(out)
            assert run(out, rows, rejects, codes, **values) == []
            assert content(out) == before
        shutil.rmtree(out)


def num_committed(out: Path) -> int:
    """Rows that the ledger has."""
    commits, lines = out / "ledger/commits.bin", out / "manifest.jsonl"
    return len(scan(commits, lines.stat().st_size).finished) if commits.exists() else 0


@pytest.mark.parametrize("values", LAYOUTS)
def test_first_run_killed_at_every_write(work: Path, values: dict[str, str]) -> None:
    assert kill_everywhere(None, work, ROWS[:5], codes=True, **values) > 50


@pytest.mark.parametrize("values", LAYOUTS)
def test_run_over_edited_rows_killed_at_every_write(work: Path, values: dict[str, str]) -> None:
    start = work / "start"
    run(start, ROWS, [failure(90)], **values)
    assert kill_everywhere(start, work, EDITED, False, **values) > 50


@pytest.mark.parametrize("values", LAYOUTS[1:])
def test_run_that_adds_rows_to_the_last_shard_killed_at_every_write(
    work: Path, values: dict[str, str]
) -> None:
    start = work / "start"
    run(start, ROWS[:4], [failure(90)], True, **values)
    assert kill_everywhere(start, work, ROWS, True, **values) > 40


@pytest.mark.parametrize("values", LAYOUTS)
def test_repair_itself_killed_at_every_write(work: Path, values: dict[str, str]) -> None:
    start = work / "start"
    run(start, ROWS, [failure(90)], **values)
    for at in range(30, 200):
        broken = work / "broken"
        shutil.copytree(start, broken)
        assert killed(lambda out=broken: run(out, EDITED, [failure(90)], **values), at)
        if (broken / "ledger/compaction").exists():
            break
        shutil.rmtree(broken)
    assert (broken / "ledger/manifest.new").exists()
    assert kill_everywhere(broken, work, EDITED, False, **values) > 10


@pytest.mark.parametrize(
    ("num_rows", "codes", "layout"),  # a shard is three rows
    [
        (4, True, "dir"),
        (6, False, "dir"),
        (4, False, "tar"),
        (6, True, "tar"),
        (4, True, "parquet"),
    ],
)
def test_redo_killed_at_every_write_leaves_the_old_row_or_the_new_one(
    work: Path, num_rows: int, codes: bool, layout: str
) -> None:
    start, rows = work / "start", ROWS[:num_rows]
    run(start, rows, [failure(90)], codes, layout=layout)
    redo(start, rows[-1:], codes, layout=layout)  # so that a file is in the way once more
    old = audio(start)
    shutil.copytree(start, work / "whole")
    again = [rows[-1], rows[0], rows[-2]]
    redo(work / "whole", again, codes, seed=2, layout=layout)
    new = audio(work / "whole")
    assert {i for i in old if old[i] != new[i]} == {r.id for r in again}
    seen = set()
    at = 0
    while True:
        at += 1
        out = work / f"{at}"
        shutil.copytree(start, out)
        if not killed(lambda out=out: redo(out, again, codes, seed=2, layout=layout), at):
            break
        assert OutputCheck(out).findings.count(DAMAGE) == 0, f"killed at write {at}"
        made = run(out, rows, [failure(90)], codes, layout=layout)
        assert made == [], f"killed at write {at}: a row was lost"
        now = audio(out)
        assert now.keys() == old.keys()
        for id, data in now.items():
            assert data in (old[id], new[id]), f"killed at write {at}"
        seen.add(tuple(now[r.id] == new[r.id] for r in again))
        shutil.rmtree(out)
    assert at > 30
    assert {(False, False, False), (True, True, False), (True, True, True)} <= seen


@pytest.mark.parametrize("layout", ["dir", "tar", "parquet"])
def test_finished_rows_that_became_rejects_killed_at_every_write(work: Path, layout: str) -> None:
    start, whole = work / "start", work / "whole"
    run(start, ROWS, [failure(90)], layout=layout)
    rejects = [replace(failure(3), utterance_id=r.id) for r in (ROWS[1], ROWS[6])]
    rest = [*ROWS[:1], *ROWS[2:6]]
    shutil.copytree(start, whole)
    assert run(whole, rest, rejects, layout=layout) == []
    expected = audio(whole)
    assert expected.keys() == {r.id for r in rest}
    at = 0
    while True:
        at += 1
        out = work / f"{at}"
        shutil.copytree(start, out)
        if not killed(lambda out=out: run(out, rest, rejects, layout=layout), at):
            break
        findings = OutputCheck(out).findings
        assert findings.count(DAMAGE) == 0, f"killed at write {at}"
        assert run(out, rest, rejects, layout=layout) == []
        assert audio(out) == expected, f"killed at write {at}"
        shutil.rmtree(out)
    assert at > 20


def ids_in_both(out: Path) -> set[str]:
    """Ids that failures.jsonl and the committed rows of the manifest both have."""
    check, path = OutputCheck(out), out / "failures.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    listed = [json.loads(line)["id"] for line in lines if line.endswith(b"\n")]
    return {row_id for row_id in listed if row_id is not None and check.is_made(row_id)}


@pytest.mark.parametrize(
    ("num_left", "layout"),  # rejects that are there still
    [(0, "dir"), (1, "tar")],
)
def test_reject_that_is_made_now_killed_at_every_write_is_in_one_place(
    work: Path, num_left: int, layout: str
) -> None:
    start = work / "start"
    rejects = [failure(90), *(replace(failure(n), utterance_id=f"r{n}") for n in (5, 6))]
    run(start, ROWS[:5], rejects, layout=layout)
    session = partial(run, rows=ROWS, rejects=rejects[:num_left], layout=layout)
    end_of_every_kill(start, work, session, listed=[f.utterance_id for f in rejects[:num_left]])


def test_edited_row_that_fails_killed_at_every_write_is_in_one_place(work: Path) -> None:
    start = work / "start"
    run(start, ROWS[:4], [failure(90)])
    rows = [row("r0", "edited"), *ROWS[1:3], row("r3", "edited"), row("r4")]
    session = partial(run, rows=rows, rejects=[failure(90)], failing={"r0", "r3"})
    end_of_every_kill(start, work, session, listed=["bad-90", "r0", "r3"])


def end_of_every_kill(
    start: Path, work: Path, session: Callable[[Path], object], listed: list[str | None]
) -> None:
    """A session over copies of `start`, killed at its every write, never has an id twice."""
    whole = work / "whole"
    shutil.copytree(start, whole)
    session(whole)
    expected = audio(whole)
    for at in itertools.count(1):
        out = work / f"{at}"
        shutil.copytree(start, out)
        was_killed = killed(lambda out=out: session(out), at)
        assert ids_in_both(out) == set(), f"killed at write {at}"
        assert OutputCheck(out).findings.count(DAMAGE) == 0, f"killed at write {at}"
        session(out)
        assert audio(out) == expected, f"killed at write {at}"
        lines = (out / "failures.jsonl").read_bytes().splitlines()
        assert [json.loads(line)["id"] for line in lines] == listed, f"killed at write {at}"
        assert OutputCheck(out).findings.by_kind == {}, f"killed at write {at}"
        shutil.rmtree(out)
        if not was_killed:
            break
    assert at > 20


def test_killed_reverted_edit_does_not_leave_the_wrong_audio(work: Path) -> None:
    run(work / "start", ROWS)
    expected = audio(work / "start")
    for at in range(5, 60, 2):
        out = work / f"{at}"
        shutil.copytree(work / "start", out)
        if not killed(lambda out=out: run(out, EDITED[:7]), at):
            break
        run(out, ROWS)
        assert audio(out) == expected, f"killed at write {at}"


def test_lock_of_a_killed_run_is_free(work: Path) -> None:
    assert killed(lambda: run(work, ROWS), 20)
    assert (work / "ledger/session.json").exists()
    run(work, ROWS)
    assert not (work / "ledger/session.json").exists()


def test_ledger_torn_at_any_byte_keeps_the_whole_records_before_it(work: Path) -> None:
    run(work, ROWS)
    path = work / "ledger/commits.bin"
    data = path.read_bytes()
    manifest_bytes = (work / "manifest.jsonl").stat().st_size
    for length in range(len(data)):
        path.write_bytes(data[:length])
        found = scan(path, manifest_bytes)
        records = max(length // RECORD.itemsize - 1, 0)  # the first is the header
        assert len(found.finished) == found.totals.all.utterances == max(records - 1, 0)
        assert found.size_bytes == length - length % RECORD.itemsize


@pytest.mark.parametrize("name", ["ledger/commits.bin", "manifest.jsonl"])
def test_run_resumes_after_a_torn_file(work: Path, name: str) -> None:
    start = work / "start"
    run(start, ROWS[:3])
    expected = audio(start)
    size = (start / name).stat().st_size
    for length in range(0, size, 17):
        out = work / "out"
        shutil.copytree(start, out)
        os.truncate(out / name, length)
        run(out, ROWS[:3])
        assert audio(out) == expected, f"torn at byte {length}"
        shutil.rmtree(out)


def test_garbage_after_the_ledger_is_cut_off(work: Path) -> None:
    run(work, ROWS)
    path = work / "ledger/commits.bin"
    good = path.read_bytes()
    for tail in (b"\0" * 96, b"\xff" * 250, b"x"):
        path.write_bytes(good + tail)
        assert run(work, ROWS) == []
        assert path.read_bytes() == good


@pytest.mark.parametrize(
    ("seed", "layout"),
    [
        (0, "dir"),
        (1, "dir"),
        (2, "dir"),
        (4, "dir"),
        (8, "dir"),
        (3, "tar"),
        (5, "tar"),
        (8, "tar"),
        (6, "parquet"),
    ],
)
def test_any_mix_of_edits_losses_redos_and_kills_ends_with_each_id_once(
    work: Path, seed: int, layout: str
) -> None:
    run, redo = partial(_run, layout=layout), partial(_redo, layout=layout)
    draw, out = random.Random(seed), work / "out"
    texts: dict[str, str] = {f"r{i}": "0" for i in range(5)}  # "": rejected
    is_broken = False  # by hand, and no run has come to its end since
    for step in range(30):
        name = draw.choice([*texts, f"r{len(texts)}"])
        change = draw.choice(["edit", "edit", "reject", "lose", "tear", "redo", "nothing"])
        if change in ("edit", "reject") or name not in texts:
            texts[name] = "" if change == "reject" else str(step)
        rows = [row(i, t) for i, t in texts.items() if t]
        rejects = [
            replace(failure(n), utterance_id=i) for n, (i, t) in enumerate(texts.items()) if not t
        ]
        job = partial(run, out, rows, rejects)
        if change == "redo" and texts[name]:
            job()
            job, is_broken = partial(redo, out, [row(name, texts[name])]), False
        files = sorted(p for p in (out / "audio").rglob("*.*") if p.is_file())
        if change in ("lose", "tear") and files:
            os.truncate(files[0], 50) if change == "tear" else files[0].unlink()
            is_broken = True
        if not killed(job, draw.randrange(1, 60)) and job.func is _run:
            is_broken = False
        if (out / "run.json").exists() and not is_broken:
            findings = OutputCheck(out).findings
            assert findings.count(DAMAGE) == 0, f"step {step}: {findings.to_json()}"
        if step % 5 == 4:
            run(out, rows, rejects)
            is_broken = False
            assert OutputCheck(out).findings.by_kind == {}, f"step {step}"
            now = audio(out)
            assert now.keys() == {u.id for u in rows}
            listed = (out / "failures.jsonl").read_text("utf8").splitlines()
            assert [json.loads(x)["id"] for x in listed] == [f.utterance_id for f in rejects]
            run(work / "whole", rows)
            fresh = audio(work / "whole")
            redo(work / "whole", rows)
            redone = audio(work / "whole")
            shutil.rmtree(work / "whole")
            assert all(data in (fresh[i], redone[i]) for i, data in now.items()), f"step {step}"
            before = content(out)
            assert run(out, rows, rejects) == []
            assert content(out) == before
