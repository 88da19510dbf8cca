"""Tar files of rows, as WebDataset has them: the members of a row are neighbours, and share a key.

The key of a member is its name up to the first dot after the folders. Members have no times and
owners, so the same rows give the same bytes.
Source: POSIX pax interchange format; the naming rule of webdataset (tariterators.py).
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from ttsbatch.sinks.durable import NewFile

BLOCK_BYTES = 512
END = bytes(2 * BLOCK_BYTES)
_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class TarRow:
    """Where a row is in a tar file, bytes."""

    key: str
    start: int  # of its first header
    end: int  # of its last member, padding included
    members: dict[str, tuple[int, int]] = field(default_factory=dict)  # extension -> (offset, size)


@dataclass(frozen=True, slots=True)
class TarIndex:
    """The rows of a tar file, as far as it can be read."""

    rows: list[TarRow]
    end: int  # of the last whole member
    is_closed: bool  # the mark of the end follows, and nothing else


def member(name: str, data: bytes) -> bytes:
    """A member with its header and padding."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogatepass")
    return header + data + bytes(-len(data) % BLOCK_BYTES)


def split_member(name: str) -> tuple[str, str]:
    """(key, extension with its dot) of a member's name."""
    folder, slash, base = name.rpartition("/")
    stem, dot, extension = base.partition(".")
    return folder + slash + stem, dot + extension


def read_index(path: Path) -> TarIndex:
    """The rows of a tar file; a torn end is left out.

    Raises:
        OSError: it cannot be read.
    """
    rows: list[TarRow] = []
    end = 0
    size = path.stat().st_size
    with path.open("rb", buffering=0) as file:
        for name, start, offset, num_bytes in _members(file):
            key, extension = split_member(name)
            member_end = _padded(offset + num_bytes)
            if member_end > size:
                break
            if not rows or rows[-1].key != key or extension in rows[-1].members:
                rows.append(TarRow(key, start, member_end))
            rows[-1].members[extension] = (offset, num_bytes)
            rows[-1].end = end = member_end
        file.seek(end)
        is_closed = file.read(len(END) + 1) == END
    return TarIndex(rows, end, is_closed)


def _members(file: BinaryIO | FileIO) -> Iterator[tuple[str, int, int, int]]:
    """(name, start of the headers, offset, size) of the files, up to the first bad header.

    Quicker than `tarfile`, which counts where a run looks through all of its shards.
    """
    start = position = 0
    long_name: str | None = None
    while True:
        file.seek(position)
        header = file.read(BLOCK_BYTES)
        try:
            if len(header) < BLOCK_BYTES or not _is_header(header):
                return
            size = int(header[124:136].rstrip(b"\0 ") or b"0", 8)
            position = _padded(position + BLOCK_BYTES + size)
            if header[156:157] == b"x":
                long_name = _pax_path(file.read(size) or b"")
                continue
            if header[156:157] in (b"0", b"\0"):
                name = long_name or _name(header)
                yield name, start, position - _padded(size), size
        except ValueError:
            return
        start, long_name = position, None


def _is_header(header: bytes) -> bool:
    field = header[148:156]
    # The low half of an Adler-32 is the sum of the bytes plus one, modulo 65521: a tenth of sum().
    total = (zlib.adler32(header) & 0xFFFF) - 1 - sum(field) + len(field) * ord(" ")
    return (int(field.rstrip(b"\0 ") or b"0", 8) - total) % 65_521 == 0


def _name(header: bytes) -> str:
    name, prefix = (
        header[a:b].split(b"\0", 1)[0].decode("utf8") for a, b in ((0, 100), (345, 500))
    )
    return f"{prefix}/{name}" if prefix else name


def _pax_path(data: bytes) -> str | None:
    """The name in a pax header, of `LENGTH key=value` lines."""
    path = None
    while data:
        length = int(data[: data.index(b" ")])
        key, _, value = data[data.index(b" ") + 1 : length - 1].partition(b"=")
        if length < 5:
            raise ValueError("not a pax header")
        if key == b"path":
            path = value.decode("utf8", "surrogatepass")
        data = data[length:]
    return path


def _padded(size: int) -> int:
    return size + -size % BLOCK_BYTES


def last_of_each(rows: Sequence[TarRow]) -> list[TarRow]:
    """The rows without those that a later one of their key replaces."""
    last = {row.key: i for i, row in enumerate(rows)}
    return [row for i, row in enumerate(rows) if last[row.key] == i]


def copy_rows(
    to: Path, sources: Iterable[tuple[Path, Sequence[TarRow]]], closed: bool = True
) -> None:
    """Write a new tar file from rows of others, durably.

    Args:
        to: the new file.
        sources: files and their rows to take.
        closed: whether it gets the mark of the end; without it more rows can follow.
    """
    with NewFile(to) as out:
        for path, rows in sources:
            with path.open("rb") as file:
                for row in rows:
                    file.seek(row.start)
                    left = row.end - row.start
                    while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
                        out.write(chunk)
                        left -= len(chunk)
        if closed:
            out.write(END)
