"""Timeline: which stage of a run was busy when, on which thread.

Spans are what the stages time for the report anyway: host time, launches and waits. What the
device did meanwhile is for a profiler.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from ttsbatch.errors import PlanError, SinkError
from ttsbatch.uri import local_path

PROCESS = 1  # the trace format wants a number


class Timeline:
    """Gathers spans from any thread."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._spans: list[tuple[str, str, float, float]] = []  # stage, thread, start, seconds

    def add(
        self, stage: str, seconds: float, ended_s: float | None = None, thread: str | None = None
    ) -> None:
        """A stage was busy for so many seconds until `ended_s`, by default on this thread till now.

        `ended_s` is of `time.perf_counter`, which on Linux is one clock for all processes.
        """
        ended_s = time.perf_counter() if ended_s is None else ended_s
        name = threading.current_thread().name if thread is None else thread
        self._spans.append((stage, name, ended_s - seconds - self._began_s, seconds))

    def events(self) -> list[dict[str, Any]]:
        """The spans as events of a Chrome trace, threads in the order in which they began."""
        spans = sorted(self._spans, key=lambda s: s[2])
        threads = {name: n for n, name in enumerate(dict.fromkeys(s[1] for s in spans), 1)}
        names = [
            {
                "name": "thread_name",
                "ph": "M",
                "pid": PROCESS,
                "tid": n,
                "args": {"name": name},
            }
            for name, n in threads.items()
        ]
        return names + [
            {
                "name": stage,
                "cat": "stage",
                "ph": "X",
                "pid": PROCESS,
                "tid": threads[thread],
                "ts": 1e6 * start_s,
                "dur": 1e6 * seconds,
            }
            for stage, thread, start_s, seconds in spans
        ]

    @staticmethod
    def check_file(file: Path, out: str) -> None:
        """See that a trace could be written there, before a run that takes hours.

        Args:
            file: the trace to be.
            out: the output of the run, which will be there by then.

        Raises:
            PlanError: no such folder, or not writable.
        """
        folder = local_path(out)
        if folder is not None and file.parent.absolute() == folder.absolute():
            return
        if not file.parent.is_dir():
            raise PlanError(f"--timeline is {str(file)!r}; expected a file in a folder that exists")
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise PlanError(f"--timeline is {str(file)!r}; expected a file that can be written")

    def write(self, file: Path) -> None:
        """Write a Chrome trace, which chrome://tracing and ui.perfetto.dev open.

        Raises:
            SinkError: the file cannot be written.
        """
        try:
            file.write_text(json.dumps({"traceEvents": self.events()}), "utf8")
        except OSError as e:
            raise SinkError(f"{file}: cannot be written: {e.strerror or e}") from e
