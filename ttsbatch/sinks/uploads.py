"""A few daemon threads for uploads: the end of the process does not wait for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future


class Uploads:
    """Calls functions on its threads; `concurrent.futures` would be waited for at the exit."""

    def __init__(self, num_threads: int) -> None:
        self._changed = threading.Condition()
        self._tasks: deque[tuple[Future[None], Callable[[], None]]] = deque()
        self._is_over = False
        for number in range(num_threads):
            name = f"ttsbatch-upload-{number}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[str], None], argument: str) -> Future[None]:
        """Call a function on one of the threads."""
        future: Future[None] = Future()

        def task() -> None:
            try:
                call(argument)
                future.set_result(None)
            except BaseException as e:
                future.set_exception(e)

        with self._changed:
            self._tasks.append((future, task))
            self._changed.notify()
        return future

    def map(self, call: Callable[[str], None], arguments: Iterable[str]) -> None:
        """Call a function with each argument, and wait for all."""
        for future in [self.submit(call, argument) for argument in arguments]:
            future.result()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._tasks and not self._is_over:
                    self._changed.wait()
                if self._is_over:
                    return
                _, task = self._tasks.popleft()
            task()

    def close(self) -> None:
        """Begin no more tasks."""
        with self._changed:
            self._is_over = True
            for future, _ in self._tasks:
                future.cancel()
            self._changed.notify_all()
