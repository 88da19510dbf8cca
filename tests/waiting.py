"""Waiting in tests for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], wait_s: float, failure: str | None = None) -> None:
    """Wait for a condition.

    Raises:
        AssertionError: it does not hold within `wait_s`, which a machine that works never takes.
    """
    deadline_s = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline_s, failure
        time.sleep(0.002)
