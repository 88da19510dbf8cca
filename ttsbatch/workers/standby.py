"""Standby: worker processes that are started before it is known what they are to load."""

from __future__ import annotations

from collections.abc import Callable

from ttsbatch.workers.handle import Worker, close_workers, start_worker
from ttsbatch.workers.messages import Found


class Standby:
    """Workers that import what they will need, while the run checks its rows."""

    def __init__(self, count: int, name: str, find: Callable[[], list[str]]) -> None:
        """Start them.

        Args:
            count: of processes.
            name: for messages.
            find: imports, and finds the devices' names; picklable.
        """
        self._workers: list[Worker] = []
        try:
            for _ in range(count):
                self._workers.append(start_worker(name, find))
        except BaseException:
            self.close()
            raise

    def devices(self) -> list[str]:
        """What `find` found, once it has.

        Raises:
            TTSBatchError: what it raised; EngineError if a process died.
        """
        names: list[str] = []
        for worker in self._workers:
            message = worker.receive()
            assert isinstance(message, Found)
            names = message.devices
        return names

    def take(self, name: str) -> Worker | None:
        """One of them, from now on the caller's to close; None: there are no more."""
        if not self._workers:
            return None
        worker = self._workers.pop()
        worker.name = name
        return worker

    def close(self) -> None:
        """End those that were not taken."""
        close_workers(self._workers, are_idle=False)
        for worker in self._workers:
            worker.pipe.close()
            worker.control.close()
        self._workers = []
