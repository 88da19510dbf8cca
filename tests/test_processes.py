"""Processes that no Ctrl-C and no SIGTERM reaches."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.waiting import until
from ttsbatch.processes import STOPS, RunContext

WAIT_S = 30.0


@dataclass
class SlowToArrive:
    """A worker's argument; that it is being read shows as a file."""

    file: Path

    def __reduce__(self) -> tuple[Callable[[Path], SlowToArrive], tuple[Path]]:
        return arrive, (self.file,)


def arrive(file: Path) -> SlowToArrive:
    file.touch()
    time.sleep(0.5)
    return SlowToArrive(file)


def end_with(what: SlowToArrive, code: int) -> None:
    os._exit(code if what.file.exists() else 1)


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_that_comes_before_the_work_begins_is_not_for_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = RunContext().Process(target=end_with, args=(SlowToArrive(tmp_path / "here"), 7))
    process.start()
    until((tmp_path / "here").exists, WAIT_S)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(WAIT_S)
    assert process.exitcode == 7


def test_it_is_ended_by_a_kill_and_by_what_others_call_terminate() -> None:
    processes = [RunContext().Process(target=time.sleep, args=(600,)) for _ in range(2)]
    for process in processes:
        process.start()
    processes[0].kill()
    processes[1].terminate()
    for process in processes:
        process.join(WAIT_S)
        assert process.exitcode == -signal.SIGKILL


def test_the_run_itself_still_hears_signals_after_it_started_one() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    process = RunContext().Process(target=int)
    process.start()
    process.join(WAIT_S)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert process.exitcode == 0
