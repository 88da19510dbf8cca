"""What `verify` finds wrong, by kind, with the first examples of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MAX_EXAMPLES = 1000  # kept of a kind; the rest is counted

DAMAGE = {
    "manifest_line": "lines of manifest.jsonl that are torn or wrong",
    "doubled": "ids or files that are there twice",
    "file_missing": "files that are gone",
    "torn_file": "files that are not whole",
    "wrong_samples": "rows whose file has other samples than the manifest says",
    "wrong_codes": "rows whose codes are not what the manifest says",
    "orphan_file": "files that no line names",
    "ledger": "disagreements of ledger and manifest",
    "failures_line": "lines of failures.jsonl that are torn or wrong",
}
"""Kinds of finding that the output should never have."""

UNFINISHED = {
    "missing": "rows of the input that are not there yet",
    "not_compared": "input that could not be read, so that rows of it may be missing",
    "changed": "rows of the input that were edited since, or whose reference changed or is away",
    "not_in_input": "rows that the input does not have any more",
    "unpublished": "rows of a shard that the next run publishes",
    "leftover": "leftovers of a run that has not ended, which the next run removes",
}
"""Kinds of finding that the next run of the same command sees to, or that are the input's."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    kind: str  # of DAMAGE or UNFINISHED
    id: str | None  # of the row, where it is known
    message: str

    def __str__(self) -> str:
        """On one line, and safe for a terminal."""
        return self.message if self.id is None else f"{self.id!r} {self.message}"


@dataclass(slots=True)
class Found:
    """The findings of one kind."""

    count: int = 0
    examples: list[Finding] = field(default_factory=list)  # the first MAX_EXAMPLES


@dataclass(slots=True)
class Findings:
    """All that was found."""

    by_kind: dict[str, Found] = field(default_factory=dict)

    def add(self, kind: str, id: str | None, message: str, count: int = 1) -> None:
        """Take down one finding, or one that stands for `count` rows."""
        found = self.by_kind.setdefault(kind, Found())
        found.count += count
        if len(found.examples) < MAX_EXAMPLES:
            found.examples.append(Finding(kind, id, message))

    def count(self, kinds: Iterable[str]) -> int:
        """How many there are of some kinds."""
        return sum(self.by_kind[kind].count for kind in kinds if kind in self.by_kind)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, damage first."""
        return {
            kind: {
                "count": found.count,
                "damage": kind in DAMAGE,
                "examples": [{"id": f.id, "message": f.message} for f in found.examples],
            }
            for kind in (*DAMAGE, *UNFINISHED)
            if (found := self.by_kind.get(kind))
        }
