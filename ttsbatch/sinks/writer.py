"""The thread that writes: a bounded queue in front of it, and rows committed in groups."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")

MAX_PENDING_BYTES = 64 << 20  # samples waiting; 20 minutes of 24 kHz speech


class GroupWriter(Generic[Item]):
    """Hands items to `commit` in groups, in order, on its own thread.

    A group goes out when it has `group_rows` items, when its first has waited `group_seconds`,
    or on a flush. An error of `commit` ends the thread, and is raised by the next call here.
    """

    def __init__(
        self,
        commit: Callable[[list[Item]], None],
        group_rows: int,
        group_seconds: float,
        max_pending_bytes: int = MAX_PENDING_BYTES,
    ) -> None:
        self._commit = commit
        self._group_rows = group_rows
        self._group_seconds = group_seconds
        self._max_pending_bytes = max_pending_bytes
        self._pending: list[tuple[Item, int]] = []
        self._pending_bytes = 0
        self._committing = 0
        self._hurry = False
        self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ttsbatch-writer", daemon=True)
        self._thread.start()

    def put(self, item: Item, num_bytes: int) -> None:
        """Queue an item; waits while too many bytes are queued."""
        with self._changed:
            while self._pending_bytes > self._max_pending_bytes and self._error is None:
                self._changed.wait()
            self._raise()
            self._pending.append((item, num_bytes))
            self._pending_bytes += num_bytes
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until everything queued so far is committed."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            while (self._pending or self._committing) and self._error is None:
                self._changed.wait()
            self._hurry = False
            self._raise()

    def close(self) -> None:
        """Commit what is queued and end the thread; again: nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            group = self._next_group()
            if not group:
                return
            try:
                self._commit([item for item, _ in group])
            except BaseException as e:  # raised where the pipeline looks, whatever it is
                with self._changed:
                    self._error = e
                    self._pending.clear()
                    self._changed.notify_all()
                return
            with self._changed:
                self._committing = 0
                self._pending_bytes -= sum(n for _, n in group)
                self._changed.notify_all()

    def _next_group(self) -> list[tuple[Item, int]]:
        with self._changed:
            while not self._pending and not self._closed:
                self._changed.wait()
            deadline = time.monotonic() + self._group_seconds
            while not self._is_due() and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            group = self._pending[: self._group_rows]
            del self._pending[: self._group_rows]
            self._committing = len(group)
            return group

    def _is_due(self) -> bool:
        full = self._pending_bytes > self._max_pending_bytes
        return self._closed or self._hurry or full or len(self._pending) >= self._group_rows
