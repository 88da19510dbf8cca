"""manifest.jsonl and the ledger of an OUT: what they hold when it is opened, what a session adds.

A line is durable before the record that points to it, so the ledger alone says what is finished.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ttsbatch.sinks import ledger
from ttsbatch.sinks.compact import compact, finish_compaction
from ttsbatch.sinks.durable import AppendFile, cut_file
from ttsbatch.sinks.layout import Row
from ttsbatch.sinks.lost import IsWhole, changed_by_hand, find_lost
from ttsbatch.sinks.manifest import read_lines
from ttsbatch.sinks.mirror import Mirror
from ttsbatch.sinks.totals import FLAG_FLAGGED, FLAG_LENGTH, Spent, Totals

Hash = tuple[int, int]  # of an id


class Journal:
    """The two files; for one thread at a time, and OSErrors pass as they are."""

    finished: ledger.Finished  # rows that were finished when OUT was opened
    totals: Totals  # of all rows that are made now
    session: int  # this one's number

    def __init__(self, out: Path, ledger_folder: Path, temp_folder: Path) -> None:
        """Name the files; `read` comes next."""
        self.manifest_path = out / "manifest.jsonl"
        self.commits_path = ledger_folder / "commits.bin"
        self.num_replaced = 0  # rows in the files that are no more
        self._out, self._temp_folder = out, temp_folder
        self._manifest: AppendFile | None = None
        self._commits: AppendFile | None = None
        self._session_noted = False

    # -- as OUT is opened

    def has_rows(self) -> bool:
        """Whether anything is finished."""
        return self.commits_path.exists() and len(self._scan().finished) > 0

    def finish_compaction(self) -> None:
        """Complete a removal of replaced rows that a crash cut short."""
        finish_compaction(self.manifest_path, self.commits_path)

    def read(self) -> None:
        """Read the ledger from end to end; nothing is changed.

        Raises:
            SinkError: it is damaged.
        """
        self._found = self._scan()
        self.finished, self.totals = self._found.finished, self._found.totals
        self.num_replaced = self._found.num_replaced
        self.session = self._found.last_session + 1

    def _scan(self) -> ledger.Scan:
        manifest = self.manifest_path
        size = manifest.stat().st_size if manifest.exists() else 0
        return ledger.scan(self.commits_path, size)

    def cut(self) -> None:
        """Remove what a crash left behind the last finished row."""
        if self.commits_path.exists():
            cut_file(self.commits_path, self._found.size_bytes)
        cut_file(self.manifest_path, self._found.manifest_bytes)

    @property
    def last_shard(self) -> int:
        """The shard with the highest number, as OUT was opened."""
        return self._found.last_shard

    def lines_of_last_shard(self) -> list[bytes]:
        """The lines of its rows.

        Raises:
            SinkError: the manifest was changed by hand.
        """
        lines = list(read_lines(self.manifest_path, self._found.last_rows))
        if not all(line.startswith(b'{"id": ') and line.endswith(b"}\n") for line in lines):
            raise changed_by_hand(self.manifest_path)
        return lines

    def lines_of(self, shard: int) -> list[bytes]:
        """The lines of a shard's rows, as OUT was opened."""
        rows = ledger.made_in_shard(self.commits_path, self._found.size_bytes, shard)
        return list(read_lines(self.manifest_path, rows))

    def find_lost(self, is_whole: IsWhole) -> dict[int, str]:
        """Audio path by position of the finished rows that are not whole.

        Raises:
            SinkError: the manifest was changed by hand.
        """
        return find_lost(self.manifest_path, self.commits_path, self._found.size_bytes, is_whole)

    # -- rows that are there

    def is_flagged(self, position: int) -> bool:
        """Whether the row of a record was flagged, as OUT was opened."""
        flagged = self._found.flagged
        i = bisect_left(flagged.data, position)
        return i < len(flagged) and int(flagged[i]) == position

    def line_at(self, position: int) -> dict[str, Any]:
        """The manifest line of a record."""
        record = ledger.read_record(self.commits_path, position)
        (line,) = read_lines(self.manifest_path, record)
        row: dict[str, Any] = json.loads(line)
        return row

    def live_lines(self) -> Iterator[bytes]:
        """The lines of all rows that are made, replaced ones left out."""
        if not self.num_replaced:
            with self.manifest_path.open("rb") as file:
                yield from file
        elif self._commits is not None:
            live, _, _ = ledger.live_rows(self.commits_path, self._commits.size_bytes)
            yield from read_lines(self.manifest_path, live)

    # -- what a session adds

    def note_session(self) -> None:
        """Put this session into the ledger even if it has made no row."""
        if note := self._session_note():
            self._commits_file().append(note)

    def write_gone(self, hashes: Sequence[Hash]) -> None:
        """Take finished rows back, durably; none: only the session's own record, if it lacks."""
        gone = np.zeros(len(hashes), ledger.RECORD)
        gone["kind"], gone["session"] = ledger.GONE, self.session
        for note, hashed in zip(gone, hashes, strict=True):
            note["id_hi"], note["id_lo"] = hashed
        if notes := self._session_note() + ledger.seal(gone):
            self._commits_file().append(notes)

    def write_made(self, rows: list[Row], spent: list[Spent]) -> ledger.Records:
        """Add finished rows, durably: their lines, then their records, which are returned."""
        if self._manifest is None:
            self._manifest = AppendFile(self.manifest_path)
        offset = self._manifest.append(b"".join(row.line for row in rows))
        records = self._records(rows, spent, offset)
        self._commits_file().append(ledger.seal(records))
        return records

    def take_off(self, hashed: Hash) -> None:
        """Count a row that was finished as one that is no more."""
        found = self.finished.find(hashed)
        assert found is not None
        self.totals.add(ledger.read_record(self.commits_path, found[1]), sign=-1)
        self.num_replaced += 1

    def compact(self, mirror: Mirror) -> None:
        """Remove the replaced rows: files, here and in the mirror, then lines and records."""
        size_bytes = self._found.size_bytes if self._commits is None else self._commits.size_bytes
        compact(
            self._out,
            self.manifest_path,
            self.commits_path,
            self._temp_folder,
            size_bytes,
            mirror,
        )
        self.num_replaced = 0

    def close(self) -> None:
        """Give the file descriptors back."""
        for file in (self._manifest, self._commits):
            if file is not None:
                file.close()

    def _commits_file(self) -> AppendFile:
        if self._commits is None:
            self._commits = AppendFile(self.commits_path)
        return self._commits

    def _session_note(self) -> bytes:
        """The record that begins this session, and the header of a new ledger; only once."""
        if self._session_noted:
            return b""
        note = np.zeros(1, ledger.RECORD)
        note["kind"], note["session"], note["elapsed_s"] = ledger.SESSION, self.session, time.time()
        self.totals.begin_session(self.session, float(note["elapsed_s"][0]))
        self._session_noted = True
        return (b"" if self._commits_file().size_bytes else ledger.MAGIC) + ledger.seal(note)

    def _records(self, rows: list[Row], spent: list[Spent], offset: int) -> ledger.Records:
        records = np.zeros(len(rows), ledger.RECORD)
        for i, (written, cost) in enumerate(zip(rows, spent, strict=True)):
            row, record, line = records[i], written.encoded.record, written.line
            row["id_hi"], row["id_lo"] = ledger.id_hash(record.utterance.id)
            row["key_hi"], row["key_lo"] = ledger.key_hash(record.key)
            row["offset"], row["length"], row["shard"] = offset, len(line), written.placed.shard
            row["num_samples"] = len(record.samples)
            row["sample_rate_hz"] = record.sample_rate_hz
            row["num_chars"] = len(record.utterance.spoken_text)
            row["elapsed_s"], row["cost_s"] = cost.elapsed_s, cost.cost_s
            row["session"], row["attempts"] = self.session, record.attempts
            row["kind"] = ledger.MADE
            row["flags"] = (FLAG_FLAGGED if record.checks.get("verdict") == "flag" else 0) | (
                FLAG_LENGTH if record.finish_reason == "length" else 0
            )
            offset += len(line)
        return records
