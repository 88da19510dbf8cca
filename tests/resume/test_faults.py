"""The real command against kills, a second run, a full disk and a read-only one."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.cases.case_run import DATA
from tests.parity.qwen3 import FIXTURE
from tests.resume.kill_many import POLL_S, command, digests, kill_until_done, num_finished
from ttsbatch.cli.app import app

NUM_ROWS = 56


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rows.jsonl"
    lines = (DATA / "17_resume_300.jsonl").read_text("utf8").splitlines(keepends=True)
    path.write_text("".join(lines[:NUM_ROWS]), "utf8")
    return path


@pytest.fixture(scope="module")
def unbroken(corpus: Path) -> dict[str, list[str]]:
    """What an unbroken run of the embedded default makes of the corpus."""
    out = corpus.parent / "unbroken"
    assert run("synth", corpus, "-o", out).exit_code == 0
    return digests(out)


def soon_after_a_commit(draw: random.Random) -> Callable[[Path, float], bool]:
    """A moment up to 0.2 s after the session's first commit."""
    delay, first = draw.uniform(0, 0.2), [-1, 0.0]

    def is_now(out: Path, elapsed: float) -> bool:
        if first[1]:
            return elapsed >= first[1] + delay
        num = num_finished(out)
        first[0] = num if first[0] < 0 else first[0]
        first[1] = elapsed if num > first[0] else 0.0
        return False

    return is_now


def test_killed_runs_end_in_the_bytes_of_an_unbroken_one(
    corpus: Path, unbroken: dict[str, list[str]], tmp_path: Path
) -> None:
    out, draw = tmp_path / "out", random.Random(1)
    moments = [soon_after_a_commit(draw), lambda _, elapsed: elapsed > 0.5]
    moments += [soon_after_a_commit(draw)]
    # One worker in place of all: a fast machine must not be done before it is killed.
    outcome = kill_until_done(corpus, out, ["--slots", "1"], iter(moments))
    assert len(outcome.kills) == 3
    assert 0 < outcome.kills[-1].num_after < NUM_ROWS
    assert outcome.exit_code == 0
    assert outcome.touched == []
    assert digests(out) == unbroken
    assert run("verify", out).exit_code == 0


def test_killed_codec_lm_ends_in_the_codes_of_an_unbroken_run(corpus: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(corpus.read_text("utf8").splitlines(keepends=True)[:10]), "utf8")
    options = ["--model", str(FIXTURE / "custom-voice"), "--voice", "ryan", "--max-seconds", "1"]
    options += ["--save-codes", "--retries", "0", "--device", "cpu", "--slots", "1"]
    assert run("synth", rows, "-o", tmp_path / "whole", *options).exit_code == 0
    expected = {row_id: codes for row_id, (_, codes) in digests(tmp_path / "whole").items()}
    out = tmp_path / "out"
    moments: Iterator[Callable[[Path, float], bool]] = iter([soon_after_a_commit(random.Random(2))])
    outcome = kill_until_done(rows, out, options, moments)
    assert [0 < kill.num_after < 10 for kill in outcome.kills] == [True]
    assert outcome.exit_code == 0
    assert outcome.touched == []
    assert {row_id: codes for row_id, (_, codes) in digests(out).items()} == expected


def test_second_run_on_the_same_folder_is_refused_and_the_first_goes_on(
    corpus: Path, unbroken: dict[str, list[str]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with subprocess.Popen(command(corpus, out, [])) as first:
        try:
            while not (out / "failures.jsonl").exists():
                assert first.poll() is None
                time.sleep(POLL_S)
            first.send_signal(signal.SIGSTOP)  # it is at work for as long as this takes
            for arguments in (["synth", corpus, "-o", out], ["redo", out, "--id", "rs-0000"]):
                second = run(*arguments)
                assert second.exit_code == 6
                assert f"in use by process {first.pid}" in second.stderr
            first.send_signal(signal.SIGCONT)
            assert first.wait() == 0
        finally:
            first.kill()
    assert digests(out) == unbroken


class Mounts:
    """Mounts of a test, undone at its end."""

    def __init__(self) -> None:
        self.points: list[Path] = []

    def mount(self, point: Path, *arguments: str) -> None:
        """Mount, or skip the test where that is not allowed."""
        point.mkdir(exist_ok=True)
        if shutil.which("mount") is None:
            pytest.skip("no mount command")
        done = subprocess.run(["mount", *arguments, str(point)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mount is not allowed: {done.stderr.strip()}")
        self.points.append(point)

    def change(self, point: Path, options: str) -> None:
        """Mount again with other options."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(point)], check=True)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    made = Mounts()
    yield made
    for point in reversed(made.points):
        subprocess.run(["umount", str(point)], check=True)


def test_full_disk_ends_with_6_and_the_rest_follows_once_there_is_room(
    corpus: Path, unbroken: dict[str, list[str]], tmp_path: Path, mounts: Mounts
) -> None:
    mounts.mount(tmp_path / "disk", "-t", "tmpfs", "-o", "size=4M", "tmpfs")
    out = tmp_path / "disk/out"
    full = run("synth", corpus, "-o", out)
    assert full.exit_code == 6
    assert "No space left on device; free some space and run the same command again" in full.stderr
    assert num_finished(out) < NUM_ROWS
    assert run("verify", out).exit_code == 7  # rows are missing, nothing is damaged
    again = run("synth", corpus, "-o", out)
    assert again.exit_code == 6
    mounts.change(tmp_path / "disk", "size=64M")
    assert run("synth", corpus, "-o", out).exit_code == 0
    assert digests(out) == unbroken
    assert run("verify", out).exit_code == 0


def test_read_only_disk_ends_with_6_and_nothing_is_lost(
    corpus: Path, tmp_path: Path, mounts: Mounts
) -> None:
    mounts.mount(tmp_path / "disk", "-t", "tmpfs", "-o", "size=16M", "tmpfs")
    out = tmp_path / "disk/out"
    assert run("synth", corpus, "-o", out, "--limit", "3").exit_code == 0
    before = digests(out)
    mounts.change(tmp_path / "disk", "ro")
    for folder, words in ((out, "is not writable"), (tmp_path / "disk/new", "Read-only")):
        refused = run("synth", corpus, "-o", folder)
        assert refused.exit_code == 6
        assert words in refused.stderr
        assert str(folder) in refused.stderr
    assert run("redo", out, "--id", "rs-0000").exit_code == 6
    assert run("verify", out).exit_code == 0
    mounts.change(tmp_path / "disk", "rw")
    assert digests(out) == before
    assert run("synth", corpus, "-o", out, "--limit", "5").exit_code == 0
    assert list(itertools.islice(digests(out), 3)) == list(before)
