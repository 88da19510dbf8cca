"""The `tar` and `parquet` layouts: many rows to a file, audio/shard-00000.tar or .parquet.

Committed rows wait in ledger/open/shard-00000.tar, to which each commit appends. Once the shard
is full, or the session ends, the shard is written under a temporary name and renamed; so what has
a final name is whole and holds committed rows alone. A path in the manifest is there from then
on; until then, and after a kill, its row is in ledger/open, and the next run publishes it. A
shard that was published before it was full is taken up again by merging it with what waits.

What makes recovery exact: a row is appended only after the ledger has taken back any earlier one
of its id. So of a committed row, the last with its name is the one that counts, and a row that
no committed line names never counts.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ttsbatch.sinks import tar
from ttsbatch.sinks.durable import AppendFile, cut_file, make_folders, remove_files, sync_path
from ttsbatch.sinks.layout import Placed, Places, Row, SizeOf
from ttsbatch.sinks.names import NameBook, own_path
from ttsbatch.types import ShardRecord, Utterance

_PACKED = re.compile(r"(audio/shard-(\d{5,})\.(?:tar|parquet))#(.+)", re.DOTALL)
_SPOOL = re.compile(r"shard-(\d{5,})\.tar")
CODES = ".codes.npy"


class Container(Protocol):
    """A kind of file that holds many rows."""

    suffix: str
    holds_codes_as_files: bool
    spool_is_shard: bool  # what waits is already such a file, but for the mark of its end

    def keys(self, path: Path) -> tuple[list[str], bool]:
        """The rows of a file that can be read, by their names, and whether the file is whole."""

    def merge(self, to: Path, old: Path | None, spool: Path | None, drop: Collection[str]) -> int:
        """Write a new file, durably: the rows of `old` less those of `spool`, then those.

        Of a file that is torn it takes what `keys` finds.

        Args:
            to: the new file.
            old: a file of this kind.
            spool: a tar of rows that wait.
            drop: rows of `old` to leave out.

        Returns:
            The number of rows.
        """


def split_packed(path: str) -> tuple[str, str] | None:
    """(file below OUT, member) of a manifest path; None: the path of a file of its own."""
    match = _PACKED.fullmatch(path)
    return (match[1], match[3]) if match else None


def spool_path(ledger: Path, shard_path: str) -> Path:
    """Where the rows of a shard wait."""
    return ledger / "open" / f"{Path(shard_path).stem}.tar"


def _number(shard_path: str) -> int:
    return int(Path(shard_path).stem.removeprefix("shard-"))


def packed_name(names: NameBook, u: Utterance) -> str:
    """The row's name in a shard: without dots, since WebDataset takes what follows for a type."""
    name = names.path(u)
    folder, slash, base = name.rpartition("/")
    return own_path(u.id, folder + slash + base.replace(".", "_")) if "." in base else name


@dataclass(slots=True)
class _Spool:
    """The rows of one shard that wait."""

    path: Path
    keys: set[str] = field(default_factory=set)
    has_replaced: bool = False  # some of its rows were made again
    file: AppendFile | None = None

    def append(self, data: bytes, keys: Sequence[str]) -> None:
        """Add rows, durably."""
        is_new = not self.path.exists()
        if self.file is None:
            self.file = AppendFile(self.path)
        self.file.append(data)
        if is_new:
            sync_path(self.path.parent)
        self.has_replaced |= len(self.keys.union(keys)) < len(self.keys) + len(keys)
        self.keys.update(keys)

    def close(self) -> None:
        """Give the file descriptor back."""
        if self.file is not None:
            self.file.close()
            self.file = None


class PackedLayout:
    """Gathers the rows of a shard and publishes them as one file."""

    def __init__(
        self,
        out: Path,
        temp_folder: Path,
        shard_size: int,
        names: NameBook,
        extension: str,
        container: Container,
    ) -> None:
        self._out, self._temp_folder = out, temp_folder
        self._folder = temp_folder.parent / "open"
        self._extension = extension
        self._container = container
        self._places = Places(shard_size, names, packed_name)
        self._spools: dict[int, _Spool] = {}
        self.size_of: SizeOf | None = None
        self._looked_at: tuple[str, set[str]] = ("", set())
        self._is_elsewhere = False  # that shard: there, and not on the local disk
        self._staged: dict[int, tuple[list[str], list[bytes]]] = {}  # shard -> (keys, bytes)

    # -- after a crash, or none

    def recover(
        self, last_shard: int, lines: Sequence[bytes], lines_of: Callable[[int], Sequence[bytes]]
    ) -> None:
        """Go on after the last shard's rows; remove what no line of it or of waiting rows names."""
        for path in (self._out / "audio").glob(f"shard-*{self._container.suffix}"):
            if _number(path.name) > last_shard:
                remove_files([path], self._out)
        waiting = {}
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if match := _SPOOL.fullmatch(path.name):
                waiting[int(match[1])] = path
        for shard in sorted({*waiting, last_shard}):
            live = self._names(lines if shard == last_shard else lines_of(shard))
            if shard == last_shard:
                self._places.resume(shard, live)
            if shard <= last_shard:
                self._keep_of_final(shard, live)
            if shard in waiting:
                self._keep_waiting(shard, waiting[shard], live if shard <= last_shard else {})

    def _names(self, lines: Iterable[bytes]) -> dict[str, str]:
        names = {}
        for line in lines:
            row = json.loads(line)
            if packed := split_packed(row["audio_filepath"]):
                names[packed[1].removesuffix(self._extension)] = row["id"]
        return names

    def _keep_of_final(self, shard: int, live: Mapping[str, str]) -> None:
        final = self._final(shard)
        if final.exists():
            strays = [key for key in self._container.keys(final)[0] if key not in live]
            _drop_rows(self._container, final, strays, self._temp_folder)

    def _keep_waiting(self, shard: int, path: Path, live: Mapping[str, str]) -> None:
        index = tar.read_index(path)
        kept = tar.last_of_each([row for row in index.rows if row.key in live])
        if not kept:
            remove_files([path], self._out)
            return
        if kept == index.rows[: len(kept)]:
            cut_file(path, kept[-1].end)
        else:
            temp = self._temp_folder / f"{path.name}.part"
            tar.copy_rows(temp, [(path, kept)], closed=False)
            os.replace(temp, path)
            sync_path(path.parent)
        self._spools[shard] = _Spool(path, {row.key for row in kept})

    # -- a commit

    def is_whole(
        self, audio_path: str, num_samples: int, num_bytes: int | None, line: bytes
    ) -> bool:
        """Whether a finished row waits, or is in a shard that is whole.

        Of a shard that is not on the local disk, that it is there is all that is known.
        """
        packed = split_packed(audio_path)
        if packed is None:
            return False
        shard, key = packed[0], packed[1].removesuffix(self._extension)
        if shard != self._looked_at[0]:  # rows come in the order of the shards
            final, spool = self._out / shard, self._spools.get(_number(shard))
            there, is_whole = self._container.keys(final) if final.exists() else ([], True)
            there = there if is_whole else []
            self._is_elsewhere = self._asked(shard) and not final.exists()
            self._looked_at = shard, {*there, *(spool.keys if spool else ())}
        return self._is_elsewhere or key in self._looked_at[1]

    def _asked(self, shard: str) -> bool:
        try:
            return self.size_of is not None and self.size_of(shard) > 0
        except FileNotFoundError:
            return False

    def place(self, record: ShardRecord, avoid: Collection[str | None] = ()) -> Placed:
        """Choose the row's shard and name; in the next shard if the name is one to `avoid`."""
        placed = self._place(record)
        if placed.audio_path in avoid:
            self._places.begin_next()
            placed = self._place(record)
        return placed

    def _place(self, record: ShardRecord) -> Placed:
        name = self._places.next(record.utterance)
        path = f"audio/shard-{self._places.shard:05d}{self._container.suffix}#{name}"
        has_file = record.codes is not None and self._container.holds_codes_as_files
        codes_path = f"{path}{CODES}" if has_file else None
        return Placed(self._places.shard, path + self._extension, codes_path)

    def stage(self, rows: Sequence[Row]) -> None:
        """Make the members of the rows; nothing is written yet."""
        staged: dict[int, tuple[list[str], list[bytes]]] = defaultdict(lambda: ([], []))
        for row in rows:
            packed = split_packed(row.placed.audio_path)
            assert packed is not None, row.placed.audio_path
            key = packed[1].removesuffix(self._extension)
            keys, data = staged[row.placed.shard]
            keys.append(key)
            data.append(tar.member(key + self._extension, row.encoded.audio))
            text = row.encoded.record.utterance.text
            data.append(tar.member(f"{key}.txt", text.encode("utf8", "replace")))
            data.append(tar.member(f"{key}.json", row.line))
            if row.encoded.codes is not None:
                data.append(tar.member(key + CODES, row.encoded.codes))
        self._staged = dict(staged)

    def publish(self) -> None:
        """Append the rows to those that wait, durably."""
        make_folders(self._folder, self._out)
        for shard, (keys, data) in sorted(self._staged.items()):
            if shard not in self._spools:
                self._spools[shard] = _Spool(self._folder / f"shard-{shard:05d}.tar")
            self._spools[shard].append(b"".join(data), keys)
        self._staged = {}

    def settle(self) -> None:
        """Publish the shards that are full."""
        for shard in sorted(self._spools):
            if shard < self._places.shard or self._places.is_full:
                self._seal(shard)

    def finish(self) -> None:
        """Publish whatever waits."""
        for shard in sorted(self._spools):
            self._seal(shard)

    def _seal(self, shard: int) -> None:
        spool, final = self._spools[shard], self._final(shard)
        make_folders(final.parent, self._out)
        if self._container.spool_is_shard and not spool.has_replaced and not final.exists():
            spool.append(tar.END, [])
            spool.close()
            os.replace(spool.path, final)
            sync_path(final.parent)
            sync_path(spool.path.parent)
        else:
            spool.close()
            temp = self._temp_folder / f"{final.name}.part"
            old = final if final.exists() else None
            self._container.merge(temp, old, spool.path, drop=())
            os.replace(temp, final)
            sync_path(final.parent)
            remove_files([spool.path], self._folder)
            sync_path(self._folder)
        del self._spools[shard]

    def _final(self, shard: int) -> Path:
        return self._out / f"audio/shard-{shard:05d}{self._container.suffix}"


class TarShards:
    """WebDataset: NAME.wav, .txt (the text) and .json (the row); .codes.npy where they are kept."""

    suffix = ".tar"
    holds_codes_as_files = True
    spool_is_shard = True

    def keys(self, path: Path) -> tuple[list[str], bool]:
        """The rows of a file that can be read, and whether it is whole."""
        index = tar.read_index(path)
        return [row.key for row in index.rows], index.is_closed

    def merge(self, to: Path, old: Path | None, spool: Path | None, drop: Collection[str]) -> int:
        """Copy rows to a new file."""
        new = tar.last_of_each(tar.read_index(spool).rows) if spool else []
        gone = {*drop, *(row.key for row in new)}
        kept = [row for row in tar.read_index(old).rows if row.key not in gone] if old else []
        sources = [(path, rows) for path, rows in ((old, kept), (spool, new)) if path is not None]
        tar.copy_rows(to, sources)
        return len(kept) + len(new)


def container_of(suffix: str) -> Container:
    """What reads and writes shards with this suffix."""
    if suffix == ".tar":
        return TarShards()
    from ttsbatch.sinks.parquet import ParquetShards

    return ParquetShards()


def drop_packed_rows(out: Path, paths: Iterable[str], temp_folder: Path) -> None:
    """Take rows (manifest paths of audio) out of their shards; absent ones are fine."""
    by_shard: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if packed := split_packed(path):
            by_shard[packed[0]].append(tar.split_member(packed[1])[0])
    for shard, keys in sorted(by_shard.items()):
        final = out / shard
        if final.exists():
            _drop_rows(container_of(final.suffix), final, keys, temp_folder)


def _drop_rows(container: Container, final: Path, keys: Collection[str], temp_folder: Path) -> None:
    there, is_whole = container.keys(final)
    if is_whole and not set(keys).intersection(there):
        return
    temp = temp_folder / f"{final.name}.part"
    if container.merge(temp, final, None, frozenset(keys)):
        os.replace(temp, final)
        sync_path(final.parent)
    else:
        os.unlink(temp)
        remove_files([final], final.parent)
        sync_path(final.parent)
