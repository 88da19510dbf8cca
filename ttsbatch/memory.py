"""What memory this process has used."""

from __future__ import annotations

import resource
import sys


def peak_host_memory_bytes() -> int:
    """The most that it has had resident."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
