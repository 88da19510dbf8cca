"""JSON lines, plain or gzipped; and rows in groups, a shard each."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ttsbatch.export.clips import Clip
from ttsbatch.sinks.jsonlines import encode_line

_GZIP_LEVEL = 6


class JsonLines:
    """A file of one JSON object a line; gzipped, without a time in it, if its name ends in .gz."""

    def __init__(self, path: Path) -> None:
        with ExitStack() as stack:
            self._file: IO[bytes] | gzip.GzipFile = stack.enter_context(path.open("wb"))
            if path.suffix == ".gz":
                raw = self._file
                self._file = gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0)
                stack.push(self._file)
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def add(self, value: Mapping[str, Any]) -> None:
        """Append an object."""
        self._file.write(encode_line(value))


def shards(clips: Iterable[Clip], size: int) -> Iterator[Iterator[Clip]]:
    """The clips in groups of `size`, none empty; each group is to be used up before the next."""
    rest = iter(clips)
    for first in rest:
        yield itertools.chain([first], itertools.islice(rest, size - 1))
