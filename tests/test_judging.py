"""Joining and checking in processes: the same recordings, whatever becomes of the processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.engine.fake import CARD
from tests.fake_speaker import FakeSpeaker
from tests.waiting import until
from ttsbatch.judging import Judges, Take, judge, num_judges
from ttsbatch.production import cut
from ttsbatch.types import ShardRecord, Utterance, Waveform

WAIT_S = 30.0


def take(seed: int, text: str = "A few words that are soon said.") -> Take:
    utterance = Utterance(
        id=str(seed),
        text=text,
        spoken_text=text,
        source="rows.jsonl",
        line=seed,
        voice=None,
        language="en",
        seed=seed,
    )
    spoken = [x for x in FakeSpeaker(CARD).speak(cut(utterance)) if isinstance(x, Waveform)]
    return Take(utterance, spoken, 0, "key", None)


def same(one: ShardRecord, other: ShardRecord) -> bool:
    return (
        np.array_equal(one.samples, other.samples)
        and one.checks == other.checks
        and one.segments == other.segments
        and one.utterance == other.utterance
    )


@pytest.fixture
def judges() -> Iterator[Judges]:
    with Judges(2) as pool:
        yield pool


def process_ids(judges: Judges) -> list[int]:
    assert judges._pool is not None
    return list(judges._pool._processes)


def test_processes_judge_as_one_would_here_even_after_they_died(judges: Judges) -> None:
    takes = [take(1), take(2, "Long enough to be cut. " * 40), take(3)]
    before = [judges.submit(t) for t in takes]
    for judgement, t in zip(before, takes, strict=True):
        assert same(judgement.result(), judge(t))
    pending = [judges.submit(t) for t in takes * 4]
    for pid in process_ids(judges):
        os.kill(pid, signal.SIGKILL)
    for judgement, t in zip(pending, takes * 4, strict=True):
        assert same(judgement.result(), judge(t))
    assert same(judges.submit(takes[2]).result(), judge(takes[2]))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_reaches_processes_too_and_is_not_for_them(number: signal.Signals) -> None:
    with Judges(2) as judges:
        pids = process_ids(judges)
        for _ in range(3):  # while they start, and then
            for pid in pids:
                os.kill(pid, number)
            assert same(judges.submit(take(1)).result(), judge(take(1)))
        assert all(is_running(pid) for pid in pids)
        assert process_ids(judges) == pids


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("index", [0, 1])  # one holds the lock of the queue
def test_when_one_process_dies_the_other_goes_too(index: int) -> None:
    with Judges(2) as judges:
        assert same(judges.submit(take(1)).result(), judge(take(1)))
        pids = process_ids(judges)
        os.kill(pids[index], signal.SIGKILL)
        wait_until_gone(pids)
        assert same(judges.submit(take(2)).result(), judge(take(2)))


def test_without_processes_a_take_is_judged_when_it_is_asked_for() -> None:
    with Judges(0) as here:
        judgement = here.submit(take(4))
        assert judgement.done
        assert same(judgement.result(), judge(take(4)))


def test_a_gpu_gets_processes_where_there_are_cores_and_the_cpu_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert num_judges(["cpu"]) == num_judges([]) == 0
    assert num_judges(["NVIDIA H200"]) == num_judges(["NVIDIA H200"] * 2) == 4
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert num_judges(["NVIDIA H200"]) == 4
    assert num_judges(["NVIDIA H200"] * 2) == 8
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert num_judges(["NVIDIA H200"]) == 0


SCRIPT = """
import time
from ttsbatch.judging import Judges
if __name__ == "__main__":
    judges = Judges(2)
    while len(judges._pool._processes) < 2:
        time.sleep(0.01)
    judges._pool.submit(abs, 1).result()
    print(*judges._pool._processes, flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_go_when_the_run_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).parents[1])
    env = os.environ | {"PYTHONPATH": root}
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    ) as run:
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        assert len(pids) == 2
        if number == signal.SIGKILL:
            run.kill()  # alone
        else:
            os.killpg(run.pid, number)
    wait_until_gone(pids)


def wait_until_gone(pids: list[int]) -> None:
    failure = "a process outlived what it was for"
    until(lambda: not any(is_running(pid) for pid in pids), WAIT_S, failure)


def is_running(pid: int) -> bool:
    """A zombie is not: nobody may be there to collect it."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
