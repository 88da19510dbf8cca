"""Finished rows whose files are gone or cut short: found by a look at each file's size.

A `stat` a row, no file is opened; `verify` looks closer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from ttsbatch.errors import SinkError
from ttsbatch.sinks import ledger

IsWhole = Callable[[str, int, int | None, bytes], bool]
"""Of an audio path, its samples, its bytes where the manifest says them, and the manifest line."""

_BEGIN = re.compile(
    rb'\{"id": "(?:[^"\\]|\\.)*", "audio_filepath": ("(?:[^"\\]|\\.)*")(?:, "num_bytes": (\d+))?'
)


def find_lost(manifest: Path, commits: Path, end: int, is_whole: IsWhole) -> dict[int, str]:
    """Audio path by position of the ledger's rows that are not whole.

    Args:
        manifest: the lines.
        commits: the ledger, without replaced rows.
        end: its valid bytes.
        is_whole: whether the files of a line are there and of the right size.

    Raises:
        SinkError: a line is not where the ledger has it.
    """
    lost: dict[int, str] = {}
    if not end:
        return lost
    with manifest.open("rb") as file:
        at = 0
        for first, records in ledger.read_chunks(commits, end):
            made = (records["kind"] == ledger.MADE).nonzero()[0]
            columns = (made, *(records[n][made] for n in ("offset", "length", "num_samples")))
            for index, offset, length, num_samples in zip(
                *(c.tolist() for c in columns), strict=True
            ):
                if offset != at:
                    file.seek(offset)
                line = file.read(length)
                at = offset + length
                begin = _BEGIN.match(line)
                if begin is None or not line.endswith(b"}\n"):
                    raise changed_by_hand(manifest)
                path = begin[1]
                name = json.loads(path) if b"\\" in path else path[1:-1].decode("utf8")
                num_bytes = None if begin[2] is None else int(begin[2])
                if not is_whole(name, num_samples, num_bytes, line):
                    lost[first + index] = name
    return lost


def changed_by_hand(manifest: Path) -> SinkError:
    """What is said of a manifest whose lines are not the ledger's."""
    return SinkError(
        f"{manifest}: was changed since it was written (its lines are not where the ledger has "
        "them); restore it, or write to another folder"
    )
