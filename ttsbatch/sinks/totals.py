"""What a ledger adds up to: the counts of the report, over all sessions of an OUT."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

BUCKET_EDGES_S = (2.0, 5.0, 10.0, 20.0)
BUCKET_NAMES = ("0-2 s", "2-5 s", "5-10 s", "10-20 s", "20+ s")
FLAG_FLAGGED = 1
FLAG_LENGTH = 2


@dataclass(frozen=True, slots=True)
class Spent:
    """When a row was done, and its part of the run's time."""

    elapsed_s: float = 0.0  # since the session began to speak
    cost_s: float = 0.0  # its share of the wall time; the shares of all rows add up to it


@dataclass(slots=True)
class Sum:
    """Rows added up."""

    utterances: int = 0
    audio_s: float = 0.0
    chars: int = 0  # of the spoken text
    cost_s: float = 0.0


@dataclass(slots=True)
class SessionSum:
    """One session of an OUT, as far as the ledger knows it."""

    started: float  # unix time
    utterances: int = 0
    audio_s: float = 0.0
    chars: int = 0
    elapsed_s: float = 0.0  # when its last row was done


@dataclass(slots=True)
class Totals:
    """The live rows of a ledger, added up."""

    all: Sum = field(default_factory=Sum)
    buckets: list[Sum] = field(default_factory=lambda: [Sum() for _ in BUCKET_NAMES])
    flagged: int = 0
    attempts: int = 0
    ended_by_length: int = 0
    sessions: dict[int, SessionSum] = field(default_factory=dict)

    def add(self, rows: npt.NDArray[Any], sign: int = 1) -> None:
        """Add made rows (ledger.RECORD), or take them back with `sign` -1."""
        audio_s = rows["num_samples"] / np.maximum(rows["sample_rate_hz"], 1)
        bucket = np.searchsorted(BUCKET_EDGES_S, audio_s, side="right")
        for i, into in [(None, self.all), *enumerate(self.buckets)]:
            chosen = slice(None) if i is None else bucket == i
            into.utterances += sign * len(audio_s[chosen])
            into.audio_s += sign * float(audio_s[chosen].sum())
            into.chars += sign * int(rows["num_chars"][chosen].sum())
            into.cost_s += sign * float(rows["cost_s"][chosen].sum())
        self.flagged += sign * int(np.count_nonzero(rows["flags"] & FLAG_FLAGGED))
        self.ended_by_length += sign * int(np.count_nonzero(rows["flags"] & FLAG_LENGTH))
        self.attempts += sign * int(rows["attempts"].sum())
        for number in np.unique(rows["session"]).tolist():
            mine = rows["session"] == number
            session = self.sessions.setdefault(number, SessionSum(started=0.0))
            session.utterances += sign * int(np.count_nonzero(mine))
            session.audio_s += sign * float(audio_s[mine].sum())
            session.chars += sign * int(rows["num_chars"][mine].sum())
            if sign > 0:
                session.elapsed_s = max(session.elapsed_s, float(rows["elapsed_s"][mine].max()))

    def begin_session(self, number: int, started: float) -> None:
        """Note a session's start (unix time)."""
        self.sessions.setdefault(number, SessionSum(started=started)).started = started
