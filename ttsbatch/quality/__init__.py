"""Is it speech, all of it, and no more? A module per measure; `check` gives the verdict."""

from ttsbatch.quality.silence import silent_tail_s
from ttsbatch.quality.verdict import check

__all__ = ["check", "silent_tail_s"]
