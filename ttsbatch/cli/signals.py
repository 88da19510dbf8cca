"""Ctrl-C and SIGTERM while rows are spoken."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttsbatch.stop import Stop

FINISHING = "ttsbatch: finishing the rows in flight; once more ends at once"


@contextmanager
def stopped_by_signals(stop: Stop, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM finishes what is in flight, the second ends at once.

    Args:
        stop: asked to end the run.
        say: shows a line, beside whatever else is on the screen; else it goes to stderr as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return

    told: list[threading.Thread] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.by_signal:
            raise KeyboardInterrupt
        stop.by_signal = True
        stop.request()
        # On a thread: what the signal broke into may be a print itself, which bears no second one.
        told.append(threading.Thread(target=say or _print, args=(FINISHING,), daemon=True))
        told[-1].start()

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(s, on_signal) for s in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
        for thread in told:
            thread.join()


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
