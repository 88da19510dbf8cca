"""failures.jsonl: the rejected rows of the corpus, then the rows that failed as they were made.

The rejects are written whole, before a model loads. What follows them in an old file are the
failures of earlier sessions; those rows are tried again, and a line stays where it was if its row
fails in the same way, whichever row is done first, so a rerun that changes nothing changes no byte.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from ttsbatch.sinks.durable import as_sink_error, cut_file, naming, sync_path, write_all
from ttsbatch.sinks.jsonlines import encode_line
from ttsbatch.types import Failure

REJECTING_STAGES = ("read", "validate")
_CHUNK_BYTES = 1 << 20


def failure_line(failure: Failure) -> bytes:
    """A failure as a line of failures.jsonl."""
    return encode_line(
        {
            "source": failure.source,
            "line": failure.line,
            "id": failure.utterance_id,
            "stage": failure.stage,
            "reason": failure.reason,
            "message": failure.message,
            "row": failure.row,
        }
    )


def count_failures(path: Path) -> tuple[int, int]:
    """(rejected, failed) rows that a failures.jsonl lists."""
    with path.open("rb") as file:
        stages = [json.loads(line)["stage"] for line in file if line.endswith(b"\n")]
    rejected = sum(stage in REJECTING_STAGES for stage in stages)
    return rejected, len(stages) - rejected


class FailureFile:
    """The one writer of failures.jsonl."""

    def __init__(self, path: Path, temp_folder: Path) -> None:
        self.path = path
        self._temp_folder = temp_folder
        self._old: set[bytes] = set()  # digests of earlier sessions' lines that may come again
        self.changed = False
        self.num_rejected = 0
        self.num_failed = 0

    def reject(self, failures: Iterable[Failure]) -> int:
        """Make the file begin with these failures; returns their number.

        Raises:
            SinkError: it cannot be written. Errors of the iterator itself pass as they are.
        """
        temp = self._temp_folder / "failures.new"
        num = size = 0
        with as_sink_error(temp):
            fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            for batch in _batches(failures):
                data = b"".join(failure_line(failure) for failure in batch)
                with as_sink_error(temp):
                    write_all(fd, data)
                num, size = num + len(batch), size + len(data)
        finally:
            os.close(fd)
        with as_sink_error(self.path):
            self._install(temp, size)
        self.num_rejected, self.num_failed = num, 0
        return num

    def _install(self, temp: Path, size: int) -> None:
        if self.path.exists() and _begins_with(self.path, temp) and self._read_old(size):
            temp.unlink()
        else:
            sync_path(temp)
            os.replace(temp, self.path)
            sync_path(self.path.parent)
            self.changed = True

    def _read_old(self, rejects_bytes: int) -> bool:
        """Whether failures alone follow the rejects; those may come again.

        A reject among them is of a row that is fine now, or gone. It cannot wait for the end of
        the session as a failure can: by then its row may be in the manifest.
        """
        old, end = set(), rejects_bytes
        with self.path.open("rb") as file:
            file.seek(end)
            for line in file:
                if line.endswith(b"\n"):
                    if json.loads(line)["stage"] in REJECTING_STAGES:
                        return False
                    old.add(_digest(line))
                    end += len(line)
        cut_file(self.path, end)  # a line that a kill tore
        self._old = old
        return True

    def fail(self, failure: Failure) -> None:
        """Add one failure, durably."""
        line = failure_line(failure)
        self.num_failed += 1
        if (digest := _digest(line)) in self._old:
            self._old.remove(digest)
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            with naming(self.path):
                write_all(fd, line)
                os.fsync(fd)
        finally:
            os.close(fd)
        self.changed = True

    def forget_old(self) -> None:
        """Drop the lines of earlier sessions that did not come again."""
        if not self._old:
            return
        temp = self._temp_folder / "failures.new"
        with self.path.open("rb") as old, temp.open("wb") as new:
            new.writelines(line for line in old if _digest(line) not in self._old)
            new.flush()
            os.fsync(new.fileno())
        os.replace(temp, self.path)
        sync_path(self.path.parent)
        self._old.clear()
        self.changed = True


def _digest(line: bytes) -> bytes:
    return blake2b(line, digest_size=16).digest()


def _batches(failures: Iterable[Failure]) -> Iterator[list[Failure]]:
    rest = iter(failures)
    while batch := list(itertools.islice(rest, 1000)):
        yield batch


def _begins_with(path: Path, start: Path) -> bool:
    with path.open("rb") as a, start.open("rb") as b:
        while chunk := b.read(_CHUNK_BYTES):
            if a.read(len(chunk)) != chunk:
                return False
    return True
