"""Processes of a run's own, which leave Ctrl-C and SIGTERM to the run.

Terminals, `timeout`, Slurm and systemd send both to every process of the group, and the run means
to finish what its processes are in the middle of.
"""

from __future__ import annotations

import atexit
import multiprocessing
import signal

# Imports multiprocessing's own work at exit, which then comes after `_end_all`.
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess

STOPS = (signal.SIGINT, signal.SIGTERM)


class RunProcess(SpawnProcess):
    """A new interpreter, deaf to `STOPS` from its first moment to its last; only a kill ends it."""

    def start(self) -> None:
        """Start it."""
        resource_tracker.ensure_running()  # else `start` does that, and lets the signals in again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # inherited until `run`
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self) -> None:
        """In the new process: do its work."""
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        super().run()

    def terminate(self) -> None:
        """Kill it: a broken pool of processes terminates the others, then waits for them."""
        self.kill()


class RunContext(SpawnContext):
    """Starts them; a forked process would be broken where the run has CUDA open."""

    Process = RunProcess


@atexit.register
def _end_all() -> None:
    """Kill the daemons: what multiprocessing sends them before it waits for them is SIGTERM."""
    for process in multiprocessing.active_children():
        if isinstance(process, RunProcess) and process.daemon:
            process.kill()
