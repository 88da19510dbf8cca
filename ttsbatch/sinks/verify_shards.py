"""What the rows of a shard are, for `verify`: the shard is gone through once, when first asked for.

A tar is read by its headers, and its members as far as their formats ask for; of a Parquet file
every page of audio and codes is read, with its checksum.
"""

from __future__ import annotations

import io
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ttsbatch.audio.measure import bytes_needed, measure_audio
from ttsbatch.sinks import tar
from ttsbatch.sinks.names import AUDIO_EXTENSIONS
from ttsbatch.sinks.npy_header import NpyHeader, read_npy_header
from ttsbatch.sinks.packed import CODES, spool_path

_NUM_KEPT = 16  # rows come in the order of the shards, on a few threads


@dataclass(frozen=True, slots=True)
class Member:
    """One row in a shard."""

    audio: tuple[int, int] | str  # (samples, rate in Hz), or what is wrong with it
    codes: NpyHeader | str | None  # None: it has none
    is_published: bool = True  # False: it waits in the ledger folder


@dataclass(frozen=True, slots=True)
class ShardContent:
    """The rows of a shard."""

    rows: dict[str, Member]  # audio member -> row
    problem: str | None = None  # with the file as a whole
    doubled: frozenset[str] = frozenset()  # names that are there twice


class ShardFiles:
    """Reads shards, each once while it is in use; for many threads."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.problems: dict[str, tuple[str | None, frozenset[str]]] = {}
        """What is wrong with the shards that were read, as wholes, and which names are doubled."""
        self._lock = threading.Lock()
        self._read: OrderedDict[str, Future[ShardContent]] = OrderedDict()

    def names(self) -> Iterator[str]:
        """Every file in audio/ and codes/, by its path below OUT."""
        for top in ("audio", "codes"):
            for folder, _, files in os.walk(self.out / top):
                below = Path(folder).relative_to(self.out)
                yield from ((below / name).as_posix() for name in files)

    def at_hand(self, lines: Iterable[bytes]) -> AbstractContextManager[None]:
        """Around a look at the files that manifest lines name."""
        return nullcontext()

    def members(self, shard_path: str) -> list[str]:
        """The audio members of a shard, without a look at them."""
        return shard_members(self.out / shard_path)

    def content(self, shard_path: str) -> ShardContent:
        """The rows of a shard, those that wait to be published included.

        Raises:
            OSError: it cannot be read.
        """
        with self._lock:
            is_mine = shard_path not in self._read
            if is_mine:
                self._read[shard_path] = Future()
                while len(self._read) > _NUM_KEPT:
                    self._read.popitem(last=False)
            future = self._read[shard_path]
        if is_mine:
            try:
                content = self._read_shard(shard_path)
                self.problems[shard_path] = (content.problem, content.doubled)
                future.set_result(content)
            except BaseException as e:
                future.set_exception(e)
        return future.result()

    def _read_shard(self, shard_path: str) -> ShardContent:
        final, spool = self.out / shard_path, spool_path(self.out / "ledger", shard_path)
        waiting = _tar_rows(spool, tar.read_index(spool), False) if spool.exists() else {}
        if not final.exists() and waiting:
            return ShardContent(waiting)
        content = _read_tar(final) if final.suffix == ".tar" else _read_parquet(final)
        return ShardContent(content.rows | waiting, content.problem, content.doubled)


def _read_tar(path: Path) -> ShardContent:
    index = tar.read_index(path)
    problem = None if index.is_closed else f"damaged at byte {index.end:,}"
    counts = Counter(row.key for row in index.rows)
    doubled = frozenset(key for key, count in counts.items() if count > 1)
    return ShardContent(_tar_rows(path, index, True), problem, doubled)


def _tar_rows(path: Path, index: tar.TarIndex, is_published: bool) -> dict[str, Member]:
    rows = {}
    with path.open("rb") as file:
        for row in index.rows:
            extension = next((e for e in row.members if e in AUDIO_EXTENSIONS), None)
            if extension is None:
                continue
            offset, size = row.members[extension]
            file.seek(offset)
            audio = _measured(extension, file.read(bytes_needed(extension, size)), size)
            codes = _tar_codes(file, *row.members[CODES]) if CODES in row.members else None
            rows[row.key + extension] = Member(audio, codes, is_published)
    return rows


def _tar_codes(file: BinaryIO, offset: int, size: int) -> NpyHeader | str:
    file.seek(offset)
    try:
        return read_npy_header(io.BytesIO(file.read(size)), size)
    except ValueError as e:
        return str(e)


def _read_parquet(path: Path) -> ShardContent:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: dict[str, Member] = {}
    doubled = set()
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            columns = [name for name in file.schema_arrow.names if name in ("audio", "codes")]
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=columns, use_threads=False)
                for name, member in _parquet_rows(table):
                    if name in rows:
                        doubled.add(tar.split_member(name)[0])
                    rows[name] = member
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError) as e:
        return ShardContent(rows, f"damaged: {e}", frozenset(doubled))
    return ShardContent(rows, None, frozenset(doubled))


def _parquet_rows(table: Any) -> Iterator[tuple[str, Member]]:
    import pyarrow.compute as pc

    audio = table.column("audio")
    num_frames = widths = None
    if "codes" in table.schema.names:
        codes = table.column("codes")
        num_frames = pc.list_value_length(codes).to_pylist()
        widths = [
            set(pc.list_value_length(row.values).to_pylist()) if row.is_valid else set()
            for row in codes
        ]
    for i, row in enumerate(audio):
        name, data = str(row["path"]), row["bytes"].as_py() or b""
        extension = tar.split_member(name)[1]
        found: NpyHeader | str | None = None
        if num_frames is not None and widths is not None and num_frames[i] is not None:
            is_even = len(widths[i]) <= 1
            shape = (num_frames[i], *widths[i]) if is_even else ()
            found = NpyHeader("int16", shape) if is_even else "frames of different lengths"
        yield name, Member(_measured(extension, data, len(data)), found)


def _measured(extension: str, head: bytes, size: int) -> tuple[int, int] | str:
    try:
        return measure_audio(extension, head, size)
    except ValueError as e:
        return str(e)


def shard_members(path: Path) -> list[str]:
    """The audio members of a shard, without a look at them; as far as it can be read."""
    if path.suffix == ".tar":
        return [
            row.key + extension
            for row in tar.read_index(path).rows
            for extension in row.members
            if extension in AUDIO_EXTENSIONS
        ]
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            column = file.read(columns=["audio.path"], use_threads=False).column("audio")
            return [row["path"] for row in column.to_pylist()]
    except (pa.ArrowException, OSError, KeyError):
        return []
