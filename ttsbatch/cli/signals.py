"""Ctrl-C and SIGTERM while rows are spoken."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttsbatch.stop import Stop


@contextmanager
def stopped_by_signals(stop: Stop) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM finishes what is in flight, the second ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.by_signal:
            raise KeyboardInterrupt
        stop.by_signal = True
        stop.request()
        print(
            "ttsbatch: finishing the rows in flight; once more ends at once",
            file=sys.stderr,
            flush=True,
        )

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(s, on_signal) for s in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
