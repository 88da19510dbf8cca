"""The ledger as objects: immutable parts, each the growth of the local files by one commit.

    ledger/base-0000000042.bin       all of manifest and ledger, up to there
    ledger/commits-0000000043.bin    what the next commit added to them

An object store cannot append, so each commit is one object; opening an OUT joins the newest base
and the parts after it. A part is a line of magic, a line of JSON that names files, offsets and
lengths, the bytes, and a digest of all before it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttsbatch.errors import SinkError
from ttsbatch.sinks.durable import as_sink_error
from ttsbatch.sinks.store import CHUNK_BYTES, file_chunks

MAGIC = b"ttsbatch part 1\n"
LOGS = ("manifest.jsonl", "ledger/commits.bin")
"""The files that parts are made of, beside the rows that wait for their shard (ledger/open): each
only grows, but for compactions."""
_WAITING = re.compile(r"ledger/open/shard-\d{5,}\.tar")
_DIGEST_BYTES = 16
_MOST_HEADER_BYTES = 1 << 16
_NAME = re.compile(r"ledger/(base|commits)-(\d{10,})\.bin")


@dataclass(frozen=True, slots=True)
class PartName:
    """Which part an object is."""

    number: int
    is_base: bool

    @classmethod
    def of(cls, name: str) -> PartName | None:
        """Of an object's name; None where it is no part."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[2]), match[1] == "base")

    def __str__(self) -> str:
        return f"ledger/{'base' if self.is_base else 'commits'}-{self.number:010d}.bin"


@dataclass(frozen=True, slots=True)
class Growth:
    """The bytes that a log gained, and where."""

    path: str  # below OUT
    offset: int
    length: int


def growth_part(grown: Sequence[tuple[str, int, bytes]], gone: Sequence[str] = ()) -> bytes:
    """A part of (log, offset, bytes), and logs that are no more."""
    growth = [Growth(path, offset, len(data)) for path, offset, data in grown]
    content = _header(growth, gone, False) + b"".join(data for _, _, data in grown)
    return content + hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def base_part(folder: Path, sizes: dict[str, int], is_closed: bool) -> Iterator[bytes]:
    """A base of local logs up to these sizes, in chunks.

    Args:
        folder: the local OUT.
        sizes: bytes of each log.
        is_closed: manifest.jsonl of the store is this very one.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    header = _header([Growth(path, 0, size) for path, size in sizes.items()], (), is_closed)
    digest.update(header)
    yield header
    for path, size in sizes.items():
        for chunk in file_chunks(folder / path, 0, size):
            digest.update(chunk)
            yield chunk
    yield digest.digest()


def _header(growth: list[Growth], gone: Sequence[str], is_closed: bool) -> bytes:
    files = [[g.path, g.offset, g.length] for g in growth]
    header = {"files": files, "gone": list(gone), "closed": is_closed}
    return MAGIC + json.dumps(header).encode() + b"\n"


def apply_part(stream: Any, folder: Path, name: str, is_base: bool) -> bool:
    """Let a part's bytes follow those that the local logs have; returns whether it was closed.

    Args:
        stream: of the part, from its start.
        folder: the local OUT.
        name: for messages.
        is_base: what the logs have goes.

    Raises:
        SinkError: damaged, or not the part that follows.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    rest = b""

    def take(count: int) -> bytes:
        nonlocal rest
        while len(rest) < count:
            more = stream.read(max(count - len(rest), 1 << 12))
            if not more:
                raise SinkError(f"{name}: is cut short; restore it, or write to another folder")
            rest += more
        taken, rest = rest[:count], rest[count:]
        return taken

    if (magic := take(len(MAGIC))) != MAGIC:
        raise SinkError(f"{name}: not a part of a ledger that this version reads")
    line = b""
    while not line.endswith(b"\n") and len(line) < _MOST_HEADER_BYTES:
        line += take(1)
    digest.update(magic + line)
    try:
        header = json.loads(line)
        growth = [Growth(str(p), int(o), int(n)) for p, o, n in header["files"]]
        for path in (*(g.path for g in growth), *header["gone"]):
            if path not in LOGS and not _WAITING.fullmatch(path):
                raise ValueError(f"names {path!r}")
    except (ValueError, TypeError, KeyError) as e:
        raise SinkError(f"{name}: is damaged: {e}") from e
    for grown in growth:
        path = folder / grown.path
        size = path.stat().st_size if path.exists() and not is_base else 0
        if grown.offset != size:
            raise SinkError(
                f"{name}: follows on byte {grown.offset:,} of {grown.path}, found {size:,}: a part "
                "is missing, or two runs wrote at once. Without this part and those after it OUT "
                "can be resumed; their rows are then made again"
            )
        with as_sink_error(path):
            path.parent.mkdir(exist_ok=True)
            file = path.open("wb" if is_base else "ab")
        with file:
            left = grown.length
            while left:
                chunk = take(min(left, CHUNK_BYTES))
                digest.update(chunk)
                with as_sink_error(path):
                    file.write(chunk)
                left -= len(chunk)
    if take(_DIGEST_BYTES) != digest.digest():
        raise SinkError(
            f"{name}: is damaged: its digest is another; restore it, or write elsewhere"
        )
    for name in header["gone"]:
        (folder / name).unlink(missing_ok=True)
    return bool(header["closed"])
