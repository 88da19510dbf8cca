"""What OUT holds, read back: its finished rows in the order of the manifest, and their audio.

A row is a manifest line as a mapping. Audio comes as the encoded bytes of its file, wherever the
layout put them: a file, a member of a tar, a cell of a Parquet file.
"""

from __future__ import annotations

import contextlib
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from ttsbatch.errors import SinkError
from ttsbatch.sinks import ledger
from ttsbatch.sinks.compact import whole_logs
from ttsbatch.sinks.outdir import read_run
from ttsbatch.sinks.verify_row import parse_object

Record = Mapping[str, Any]  # a manifest line

_IN_SHARD = re.compile(r"(audio/[^/#]+\.(?:tar|parquet))#(.+)", re.DOTALL)


class FinishedRows:
    """The rows of an OUT that its ledger calls finished, each once, in manifest order.

    Streamed: 28 bytes a row are held, and one line at a time. Reads only, and also what a killed
    session left.
    """

    def __init__(self, out: Path) -> None:
        """Read the ledger.

        Raises:
            SinkError: not the output of a run, or its ledger is missing or damaged.
        """
        run = read_run(out) if out.is_dir() else None
        if run is None:
            raise SinkError(f"{out}: has no run.json; expected the output of a run")
        self.run = run
        self._manifest, self._commits, _ = whole_logs(out)
        size = self._manifest.stat().st_size if self._manifest.is_file() else 0
        if size and not self._commits.exists():
            raise SinkError(f"{self._commits}: is not there; expected the ledger of the run")
        found = ledger.scan(self._commits, size)
        self.totals = found.totals
        self._end = found.size_bytes
        self._live = None
        if found.num_replaced:
            self._live = ledger.live_rows(self._commits, self._end)[0]
        self._count = len(found.finished) if self._live is None else len(self._live)
        if self._end and self._goes_on():
            raise SinkError(
                f"{self._manifest}: ends at byte {size:,}, before rows that the ledger has; "
                "ttsbatch verify names them"
            )

    def _goes_on(self) -> bool:
        """Whether a sound record follows the part of the ledger that the manifest has lines for."""
        position = (self._end - len(ledger.MAGIC)) // ledger.RECORD.itemsize
        record = ledger.read_record(self._commits, position)
        return bool(len(record) and (ledger.checksum(record) == record["check"]).all())

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The manifest lines.

        Raises:
            SinkError: a line is not the one that the ledger has.
        """
        if not self._count:
            return
        with self._manifest.open("rb") as file:
            for records in self._chunks():
                columns = (records[n].tolist() for n in ("offset", "length", "id_hi", "id_lo"))
                for offset, length, hi, lo in zip(*columns, strict=True):
                    file.seek(offset)
                    line = file.read(length)
                    try:
                        row = parse_object(line)
                    except ValueError as e:
                        raise self._changed(offset, str(e)) from e
                    if ledger.id_hash(str(row.get("id"))) != (hi, lo):
                        raise self._changed(offset, f"holds {row.get('id')!r}, not its row")
                    yield row

    def _chunks(self) -> Iterator[ledger.Records]:
        if self._live is not None:
            yield self._live
            return
        for _, records in ledger.read_chunks(self._commits, self._end):
            yield records[np.flatnonzero(records["kind"] == ledger.MADE)]

    def _changed(self, offset: int, found: str) -> SinkError:
        return SinkError(
            f"{self._manifest}: was changed since it was written: the line at byte {offset:,} "
            f"{found}; ttsbatch verify says more"
        )


class _Shard(Protocol):
    """An open shard."""

    def read(self, name: str) -> bytes:
        """The bytes of a member; KeyError if there is none."""
        ...

    def close(self) -> None: ...


class AudioReader:
    """Encoded audio of rows, with the last shard kept open; a context manager."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._path: str | None = None  # of the shard that is open
        self._shard: _Shard | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the shard that is open, if one is."""
        if self._shard is not None:
            self._shard.close()
        self._path = self._shard = None

    def ahead(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The same rows; tells the reader which are going to be read."""
        yield from rows

    def read(self, record: Record) -> bytes:
        """The bytes of the row's audio file.

        Raises:
            SinkError: missing, or unreadable; the row and the file are named.
        """
        shard, member = split_audio_path(record)
        try:
            if member is None:
                return self._file(shard)
            return self._open(shard).read(member)
        except KeyError as e:
            raise _unreadable(record, "has no such row in it") from e
        except FileNotFoundError as e:
            raise _unreadable(record, "is not there") from e
        except OSError as e:
            raise _unreadable(record, f"cannot be read: {e.strerror or e}") from e
        except (ValueError, tarfile.TarError) as e:  # pyarrow's errors of a torn file too
            raise _unreadable(record, f"is damaged: {e}") from e

    def _file(self, path: str) -> bytes:
        return (self._out / path).read_bytes()

    def _open(self, path: str) -> _Shard:
        if self._path != path or self._shard is None:
            self.close()
            kind = _TarShard if path.endswith(".tar") else _ParquetShard
            with self._local(path) as file:
                self._shard, self._path = kind(file), path
        return self._shard

    @contextlib.contextmanager
    def _local(self, path: str) -> Iterator[Path]:
        """A shard as a local file, until it is open."""
        yield self._out / path


def read_audio(out: Path, record: Record) -> bytes:
    """The encoded bytes of one row's audio; for many rows use an `AudioReader`.

    Raises:
        SinkError: missing, or unreadable.
    """
    with AudioReader(out) as reader:
        return reader.read(record)


def split_audio_path(record: Record) -> tuple[str, str | None]:
    """(file below OUT, member in it) of a row; the member is None where the file is the row's.

    Raises:
        SinkError: not a path in OUT/audio.
    """
    named = record.get("audio_filepath")
    path = named if isinstance(named, str) else ""
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[0] != "audio" or ".." in parts or "\0" in path:
        raise SinkError(f"row {record.get('id')!r}: names {named!r}, expected a path in audio/")
    if match := _IN_SHARD.fullmatch(path):
        return match[1], match[2]
    return path, None


def _unreadable(record: Record, what: str) -> SinkError:
    path = record["audio_filepath"]
    return SinkError(f"row {record.get('id')!r}: {path}: {what}; ttsbatch verify says more")


class _TarShard:
    """A tar: its headers are read once, then each member with one read."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self._at: dict[str, tuple[int, int]] = {}
        # A torn end is what a killed run may leave; what is named before it is whole.
        with contextlib.suppress(tarfile.TarError), tarfile.open(path, "r:") as tar:
            for member in tar:
                if member.isreg():
                    self._at[member.name] = member.offset_data, member.size

    def read(self, name: str) -> bytes:
        offset, size = self._at[name]
        data = b""
        while len(data) < size:
            part = os.pread(self._fd, size - len(data), offset + len(data))
            if not part:
                raise ValueError(f"{len(data):,} of {size:,} bytes")
            data = data + part if data else part
        return data

    def close(self) -> None:
        os.close(self._fd)


class _ParquetShard:
    """A Parquet file with a column `audio` of bytes and path; one row group at a time is held."""

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        self._file = parquet.ParquetFile(path)
        self._at: dict[str, tuple[int, int]] = {}
        self._group = -1
        self._cells: Any = None
        for group in range(self._file.num_row_groups):
            for row, name in enumerate(self._column(group, "path").to_pylist()):
                self._at[name] = group, row

    def _column(self, group: int, name: str) -> Any:
        from pyarrow import compute

        table = self._file.read_row_group(group, columns=[f"audio.{name}"])
        return compute.struct_field(table["audio"], name)

    def read(self, name: str) -> bytes:
        group, row = self._at[name]
        if group != self._group or self._cells is None:
            self._group, self._cells = group, None  # the old group goes before the new one comes
            self._cells = self._column(group, "bytes")
        data = self._cells[row].as_py()
        if not isinstance(data, bytes):
            raise KeyError(name)
        return data

    def close(self) -> None:
        self._file.close()
