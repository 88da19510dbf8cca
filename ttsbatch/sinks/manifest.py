"""manifest.jsonl: one line per produced utterance, as the README documents it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ttsbatch.sinks.jsonlines import encode_line
from ttsbatch.sinks.ledger import Records
from ttsbatch.types import SegmentNote, ShardRecord

_CHUNK_BYTES = 1 << 20


def manifest_line(
    record: ShardRecord, model: str, audio_path: str, codes_path: str | None, num_bytes: int
) -> bytes:
    """The line of a finished row; the paths are relative to OUT, `num_bytes` is of its audio."""
    u = record.utterance
    line: dict[str, Any] = {
        "id": u.id,
        "audio_filepath": audio_path,
        "num_bytes": num_bytes,  # here, so that a rerun finds it without parsing the line
        "file_name": u.file_name,
        "text": u.text,
        "spoken_text": u.spoken_text,
        "duration": len(record.samples) / record.sample_rate_hz,
        "num_samples": len(record.samples),
        "sample_rate": record.sample_rate_hz,
        "model": model,
        "voice": u.voice,
        "language": u.language,
        "seed": u.seed,
        "attempts": record.attempts,
        "finish_reason": record.finish_reason,
        "num_frames": record.num_frames,
        "segments": [_segment(note) for note in record.segments],
        "checks": record.checks,
        "source": u.source,
        "line": u.line,
        "extra": u.extra,
    }
    if codes_path is not None:
        line["codes_filepath"] = codes_path
    return encode_line(line)


def _segment(note: SegmentNote) -> dict[str, Any]:
    segment: dict[str, Any] = {
        "text": note.text,
        "finish_reason": note.finish_reason,
        "num_samples": note.num_samples,
        "attempt": note.attempt,
    }
    return segment if note.seed is None else segment | {"seed": note.seed}


def last_lines(path: Path, count: int) -> list[bytes]:
    """The last lines of a manifest, in their order; all of them where there are fewer."""
    with path.open("rb") as file:
        start, tail = file.seek(0, os.SEEK_END), b""
        while start > 0 and tail.count(b"\n") <= count:
            size = min(start, _CHUNK_BYTES)
            start -= size
            file.seek(start)
            tail = file.read(size) + tail
    lines = tail.splitlines(keepends=True)
    return lines[len(lines) - min(count, len(lines)) :]


def read_lines(path: Path, rows: Records) -> Iterator[bytes]:
    """The lines that ledger records point to, in the order of the records."""
    with path.open("rb") as file:
        for offset, length in zip(rows["offset"].tolist(), rows["length"].tolist(), strict=True):
            file.seek(offset)
            yield file.read(length)


def copy_lines(path: Path, rows: Records, to: Path) -> Records:
    """Write the lines of some records to a new file, durably; returns the records re-pointed."""
    moved = rows.copy()
    lengths = rows["length"].astype(np.uint64)
    moved["offset"] = np.cumsum(lengths) - lengths
    with path.open("rb") as file, to.open("wb") as out:
        for start, end in _spans(zip(rows["offset"].tolist(), lengths.tolist(), strict=True)):
            file.seek(start)
            _copy(file, out, end - start)
        out.flush()
        os.fsync(out.fileno())
    return moved


def _spans(pieces: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Neighbouring (offset, length) pieces as (start, end) of the runs that they form."""
    start = end = 0
    for offset, length in pieces:
        if offset != end and end > start:
            yield start, end
        if offset != end:
            start = offset
        end = offset + length
    if end > start:
        yield start, end


def _copy(file: Any, out: Any, num_bytes: int) -> None:
    while num_bytes > 0:
        chunk = file.read(min(num_bytes, _CHUNK_BYTES))
        if not chunk:
            return
        out.write(chunk)
        num_bytes -= len(chunk)
