"""Reasons: why rows were not made, counted, with the first few of each. Shows a run's on stderr."""

from __future__ import annotations

from dataclasses import dataclass, field

from ttsbatch.types import Failure

MOST_SHOWN = 3  # reasons, the most frequent first
MOST_CHARS = 200  # of a message: an engine's may be a page


@dataclass(slots=True)
class Rejects:
    """Rows of one reason."""

    count: int = 0
    examples: list[Failure] = field(default_factory=list)  # the first few


class Reasons:
    """Rows that were not made, by reason."""

    def __init__(self, num_examples: int = 1) -> None:
        """Begin with none; so many rows of each reason are kept."""
        self.by_reason: dict[str, Rejects] = {}
        self.first: Failure | None = None  # of all: where --fail-fast stops
        self._num_examples = num_examples

    def add(self, failure: Failure) -> None:
        """One more row."""
        rejects = self.by_reason.setdefault(failure.reason, Rejects())
        rejects.count += 1
        if len(rejects.examples) < self._num_examples:
            rejects.examples.append(failure)
        self.first = self.first or failure

    def lines(self, out: str) -> list[str]:
        """What to say of them at the end of a run, and where they all are; empty if none.

        Args:
            out: the name of OUT.
        """
        ordered = sorted(self.by_reason.items(), key=lambda item: -item[1].count)
        if not ordered:
            return []
        num = sum(rejects.count for _, rejects in ordered)
        rows = "1 row was" if num == 1 else f"{num:,} rows were"
        lines = [f"{rows} not made; each is in {out}/failures.jsonl with its reason"]
        for reason, rejects in ordered[:MOST_SHOWN]:
            such_as = "such as " if rejects.count > 1 else ""
            example = described(rejects.examples[0])
            lines.append(f"  {reason} ({rejects.count:,}): {such_as}{example}")
        if rest := ordered[MOST_SHOWN:]:
            lines.append(f"  and {', '.join(f'{reason} ({r.count:,})' for reason, r in rest)}")
        return lines

    def stop_line(self) -> str | None:
        """Where --fail-fast stopped; None if no row failed."""
        if self.first is None:
            return None
        verb = "was rejected" if self.first.stage in ("read", "validate") else "failed"
        where = described(self.first)
        return f"ttsbatch: stopped (--fail-fast) at a row that {verb}, {self.first.reason}: {where}"


def described(failure: Failure) -> str:
    """A row in one line: where it is, its id, what is wrong."""
    named = "" if failure.utterance_id is None else f" {failure.utterance_id!r}"
    message = " ".join(failure.message.split())
    if len(message) > MOST_CHARS:
        message = message[: MOST_CHARS - 1] + "…"
    return f"{failure.source}:{failure.line}{named}: {message}"
