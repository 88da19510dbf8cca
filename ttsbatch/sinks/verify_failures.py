"""failures.jsonl read back: the rejected rows by their place, the failed ones by their id."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ttsbatch.sinks.findings import Findings
from ttsbatch.sinks.verify_row import parse_object

Place = tuple[str, int, str]  # source, line, reason

_REJECTED = ("read", "validate")
_TYPES = {"source": str, "line": int, "stage": str, "reason": str, "message": str}


class FailuresRead:
    """What failures.jsonl holds."""

    def __init__(self) -> None:
        self.rejected: Counter[Place] = Counter()
        self.failed: dict[str, str] = {}  # id -> source
        self.num_rejected = 0

    def read(
        self, path: Path, is_made: Callable[[str], bool], findings: Findings, killed: bool
    ) -> None:
        """Read the file.

        Args:
            path: need not exist in a run that was killed at its start.
            is_made: whether the manifest has a row.
            findings: gets what is wrong.
            killed: a session did not come to its end, so a torn last line, and failures of rows
                that were then made, are what the next one removes.
        """
        if not path.is_file():
            kind_found = "leftover" if killed else "failures_line"
            findings.add(kind_found, None, f"{path.name} is not there")
            return
        seen: set[str] = set()
        end = path.stat().st_size
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                end -= len(line)
                try:
                    row = parse_object(line)
                    for name, kind in _TYPES.items():
                        if type(row.get(name)) is not kind:
                            raise ValueError(f'"{name}" is {row.get(name)!r}')
                    if not isinstance(row.get("id"), str | None):
                        raise ValueError(f'"id" is {row["id"]!r}, expected text or null')
                except ValueError as e:
                    kind_found = "leftover" if killed and end <= 0 else "failures_line"
                    findings.add(kind_found, None, f"{path.name}:{number}: {e}")
                    continue
                row_id, reason = row["id"], row["reason"]
                is_reject = row["stage"] in _REJECTED
                if is_reject:
                    self.num_rejected += 1
                    self.rejected[sys.intern(row["source"]), row["line"], sys.intern(reason)] += 1
                if row_id is None or reason == "duplicate_id":
                    continue
                if row_id in seen:
                    is_left = killed and not is_reject
                    message = f"{path.name}:{number}: its second failure"
                    findings.add("leftover" if is_left else "doubled", row_id, message)
                elif is_made(row_id):
                    message = f"{path.name}:{number}: {reason}, but the manifest has the row too"
                    is_left = killed and not is_reject
                    findings.add("leftover" if is_left else "doubled", row_id, message)
                elif not is_reject:
                    self.failed[row_id] = sys.intern(row["source"])
                seen.add(row_id)
