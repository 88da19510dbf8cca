"""Physical lines: split at \\n and nowhere else, counted from 1, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ttsbatch.errors import CorpusError

_CHUNK_BYTES = 1 << 18
_BOM = b"\xef\xbb\xbf"


def physical_lines(stream: Any, source: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a stream and their numbers, blank ones too.

    A byte order mark at the start and a \\r before the \\n belong to no line. Where the last line
    has no \\n it is a line all the same.

    Args:
        stream: has `read(n)`.
        source: the file's name, for messages.

    Raises:
        CorpusError: UTF-16 or UTF-32, which would look like garbage on every line.
    """
    number = 0
    pending: list[bytes] = []  # pieces of a line longer than a chunk; joined once
    start = True
    while chunk := stream.read(_CHUNK_BYTES):
        if start:
            if chunk[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise CorpusError(f"{source}: is UTF-16; expected UTF-8")
            chunk = chunk.removeprefix(_BOM)
            start = False
        first, *rest = chunk.split(b"\n")
        pending.append(first)
        if not rest:
            continue
        number += 1
        yield number, b"".join(pending).removesuffix(b"\r")
        for line in rest[:-1]:
            number += 1
            yield number, line.removesuffix(b"\r")
        pending = [rest[-1]]
    if last := b"".join(pending):
        yield number + 1, last.removesuffix(b"\r")


def shown(line: bytes) -> str:
    """A line that is no UTF-8 (or no JSON) as text, its bad bytes as escapes."""
    return line.decode("utf8", "backslashreplace")
