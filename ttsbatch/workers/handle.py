"""Worker: the run's end of one worker process."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from ttsbatch.errors import EngineError
from ttsbatch.processes import RunContext
from ttsbatch.types import EngineStats, Segment, Waveform
from ttsbatch.workers.messages import (
    Begin,
    Broken,
    End,
    Found,
    Key,
    Load,
    Refused,
    Report,
    Segments,
    Spoken,
    Status,
    Taken,
    receive_waveform,
)
from ttsbatch.workers.worker import run_worker

EXIT_S = 10.0  # for a worker to give its device back


@dataclass(slots=True)
class Worker:
    """A worker process: what was sent to it, and what it has told."""

    name: str  # of its device
    process: Any
    pipe: Connection
    control: Connection
    num_waiting: int = 0  # sent, not taken
    open: dict[Key, Segment] = field(default_factory=dict)  # sent, not come back
    stats: EngineStats = field(default_factory=EngineStats)
    num_notes: int = 0  # passed on

    def send(self, message: Load | Begin | Segments | End) -> bool:
        """Send a message; whether it was there. If not, whoever reads from it will notice."""
        try:
            self.pipe.send(message)
        except OSError:
            return False
        return True

    def receive(self) -> Waveform | Taken | Refused | Status | Found:
        """Its next report.

        Raises:
            TTSBatchError: what it raised; EngineError if it died.
        """
        try:
            message: Report = self.pipe.recv()
            if isinstance(message, Spoken):
                return receive_waveform(self.pipe, message, self.open.pop(message.key))
        except (EOFError, OSError) as e:
            self.process.join(EXIT_S)
            raise EngineError(f"{self.name}: {_how_it_ended(self.process.exitcode)}") from e
        if isinstance(message, Broken):
            raise message.error from _ThereError(message.trace)
        return message

    def stop(self) -> None:
        """Ask it to begin nothing more. Any thread, any signal handler."""
        with suppress(OSError):  # it has gone, which whoever reads from it will notice
            os.write(self.control.fileno(), b"s")

    def join(self) -> None:
        """Wait for its end; one that does not come is brought about."""
        self.process.join(EXIT_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class _ThereError(Exception):
    """The traceback of an error in a worker, as its cause here."""


def start_worker(name: str, find: Callable[[], list[str]] | None = None) -> Worker:
    """Start a process; see `run_worker`.

    Args:
        name: for messages.
        find: what it is to find out before it is told what to load; picklable.
    """
    context = RunContext()
    pipe, theirs = context.Pipe()
    heard, control = context.Pipe(duplex=False)
    process = context.Process(
        target=run_worker, args=(theirs, heard, find), name=f"ttsbatch {name}", daemon=True
    )
    process.start()
    theirs.close()
    heard.close()
    return Worker(name, process, pipe, control)


def close_workers(workers: list[Worker], are_idle: bool) -> None:
    """End processes; those in the middle of something at once."""
    for worker in workers:
        if are_idle:
            worker.pipe.close()
        else:
            worker.process.kill()
    for worker in workers:
        worker.join()


def _how_it_ended(exitcode: int | None) -> str:
    if exitcode is None:
        return "its process no longer answers"
    if exitcode < 0:
        return f"its process was killed by signal {-exitcode}; 9 may mean that memory ran out"
    return f"its process ended with exit code {exitcode}"
