"""Where rows go: what every layout has to do, the choice of names, and the `dir` layout.

A layout decides where rows go and publishes them; ledger, manifest and resume are the same for
all. `dir` is a file per row, audio/shard-00000/NAME.wav; `packed.py` has tar and Parquet.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ttsbatch.audio.wav import wav_bytes
from ttsbatch.sinks.durable import make_folders, remove_files, sync_files, sync_path, write_file
from ttsbatch.sinks.encode import Encoded
from ttsbatch.sinks.names import AUDIO_EXTENSIONS, NameBook, fold, own_path
from ttsbatch.types import ShardRecord, Utterance

_SHARD = re.compile(r"shard-(\d{5,})")
_OURS = (*AUDIO_EXTENSIONS, ".npy")
_NPY_END = b'.npy"}\n'  # of the manifest line of a row with codes
_NPY_HEADER_BYTES = 128  # of an array of two dimensions


SizeOf = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a row's files go, relative to OUT."""

    shard: int
    audio_path: str
    codes_path: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """A row on its way out."""

    encoded: Encoded
    placed: Placed
    line: bytes  # of manifest.jsonl


class Layout(Protocol):
    """The calls of a commit, in their order; `recover` comes first of all.

    After `stage` nothing of OUT has changed. After `publish` the rows are durable, so that the
    ledger may have them; `settle` follows once it does. `finish` ends a session.
    """

    size_of: SizeOf | None
    """Bytes of a file below OUT, FileNotFoundError where there is none; None: ask the disk."""

    def recover(
        self, last_shard: int, lines: Sequence[bytes], lines_of: Callable[[int], Sequence[bytes]]
    ) -> None:
        """Go on after the last shard's rows (their manifest lines); put right what a crash left."""

    def is_whole(
        self, audio_path: str, num_samples: int, num_bytes: int | None, line: bytes
    ) -> bool:
        """Whether a finished row is there, as far as can be said without opening its file."""

    def place(self, record: ShardRecord, avoid: Collection[str | None] = ()) -> Placed:
        """Choose the row's shard and name; in the next shard if the name is one to `avoid`."""

    def stage(self, rows: Sequence[Row]) -> None:
        """Get the rows ready."""

    def publish(self) -> None:
        """Make the staged rows durable, in place of any earlier ones of their names."""

    def settle(self) -> None:
        """What was published is in the ledger."""

    def finish(self) -> None:
        """The session is over: every row of the manifest has its place under its final name."""


class Places:
    """Fills shards one after the other, and gives out each name once in a shard."""

    def __init__(
        self, shard_size: int, names: NameBook, wish: Callable[[NameBook, Utterance], str]
    ) -> None:
        """Start with shard 0.

        Args:
            shard_size: rows of a full shard.
            names: knows the rows of the corpus.
            wish: the name that a row would like.
        """
        self.shard = 0
        self._shard_size = shard_size
        self._names, self._wish = names, wish
        self._num_rows = 0  # in that shard
        self._taken: dict[str, str] = {}  # folded name in that shard -> id

    def resume(self, shard: int, names: dict[str, str]) -> None:
        """Go on in a shard that has rows: name -> id."""
        self.shard, self._num_rows = shard, len(names)
        self._taken = {fold(name): row_id for name, row_id in names.items()}

    @property
    def is_full(self) -> bool:
        """Whether the next row begins another shard."""
        return self._num_rows >= self._shard_size

    def begin_next(self) -> None:
        """Give the shard no more rows."""
        self._num_rows = self._shard_size

    def next(self, u: Utterance) -> str:
        """The name of one more row, in `shard`."""
        if self.is_full:
            self.shard, self._num_rows, self._taken = self.shard + 1, 0, {}
        name = self._wish(self._names, u)
        if self._taken.get(fold(name), u.id) != u.id:  # a row that the corpus no longer has
            name = own_path(u.id, name)
        self._taken[fold(name)] = u.id
        self._num_rows += 1
        return name


class FolderLayout:
    """Writes rows below OUT/audio (and OUT/codes), `shard_size` rows to a folder."""

    def __init__(
        self, out: Path, temp_folder: Path, shard_size: int, names: NameBook, extension: str
    ) -> None:
        self._out = out
        self._temp_folder = temp_folder
        self._extension = extension
        self._places = Places(shard_size, names, NameBook.path)
        self._staged: list[tuple[Path, str]] = []  # (temporary file, path below OUT)
        self._num_staged = 0
        self.size_of: SizeOf | None = None

    def recover(
        self, last_shard: int, lines: Sequence[bytes], lines_of: Callable[[int], Sequence[bytes]]
    ) -> None:
        """Go on after the last shard's rows; remove what isn't theirs.

        Rows are committed in the order of the shards, so a crash leaves nothing in earlier ones.
        """
        known: set[str | None] = set()
        names = {}
        for line in lines:
            row = json.loads(line)
            known |= {row["audio_filepath"], row.get("codes_filepath")}
            names[row["audio_filepath"].split("/", 2)[2].removesuffix(self._extension)] = row["id"]
        self._places.resume(last_shard, names)
        for top in ("audio", "codes"):
            self._remove_strays(self._out / top, last_shard, known)

    def _remove_strays(self, top: Path, first_shard: int, known: set[str | None]) -> None:
        if not top.is_dir():
            return
        for shard in top.iterdir():
            match = _SHARD.fullmatch(shard.name)
            if not match or int(match[1]) < first_shard:
                continue
            for folder, _, files in os.walk(shard, topdown=False):
                paths = [Path(folder, f) for f in files if f.endswith(_OURS)]
                strays = [p for p in paths if p.relative_to(self._out).as_posix() not in known]
                remove_files(strays, self._out)
                with contextlib.suppress(OSError):  # not empty, or gone with its last stray
                    os.rmdir(folder)

    def is_whole(
        self, audio_path: str, num_samples: int, num_bytes: int | None, line: bytes
    ) -> bool:
        """Whether a finished row's files are there and of the right size; opens none.

        Args:
            audio_path: as the manifest line has it.
            num_samples: of the row.
            num_bytes: of its audio file. None, as versions before this field left it: the size
                of WAV is computed; in another format a file that is not empty is taken for
                whole, and `verify` looks closer.
            line: its manifest line.
        """
        if num_bytes is None and self._extension == ".wav":
            num_bytes = wav_bytes(num_samples)
        try:
            size = self._size(audio_path)
            if size == 0 or size != (size if num_bytes is None else num_bytes):
                return False
            if not line.endswith(_NPY_END):
                return True
            row = json.loads(line)
            size = self._size(row["codes_filepath"])
            frame_bytes, rest = divmod(size - _NPY_HEADER_BYTES, max(row["num_frames"], 1))
            return bool(frame_bytes > 0 and rest == 0)
        except OSError:
            return False

    def _size(self, path: str) -> int:
        return self.size_of(path) if self.size_of else os.stat(f"{self._out}/{path}").st_size

    def place(self, record: ShardRecord, avoid: Collection[str | None] = ()) -> Placed:
        """Choose the row's shard and name; in the next shard if the name is one to `avoid`."""
        placed = self._place(record)
        if placed.audio_path in avoid or (placed.codes_path or "") in avoid:
            self._places.begin_next()
            placed = self._place(record)
        return placed

    def _place(self, record: ShardRecord) -> Placed:
        name = self._places.next(record.utterance)
        folder = f"shard-{self._places.shard:05d}"
        codes = None if record.codes is None else f"codes/{folder}/{name}.npy"
        return Placed(self._places.shard, f"audio/{folder}/{name}{self._extension}", codes)

    def stage(self, rows: Sequence[Row]) -> None:
        """Write the rows' files under temporary names, durably.

        Those names are none of audio, so that a search for audio in OUT finds no torn file.
        """
        self._staged = []
        for row in rows:
            files = [(row.encoded.audio, row.placed.audio_path)]
            if row.encoded.codes is not None and row.placed.codes_path is not None:
                files.append((row.encoded.codes, row.placed.codes_path))
            for data, path in files:
                temp = self._temp_folder / f"{self._num_staged:08d}.part"
                self._num_staged += 1
                write_file(temp, data)
                self._staged.append((temp, path))
        sync_files([temp for temp, _ in self._staged], self._temp_folder)

    def publish(self) -> None:
        """Give staged files their names, durably."""
        folders: set[Path] = set()
        for temp, path in self._staged:
            final = self._out / path
            if final.parent not in folders:
                make_folders(final.parent, self._out)
                folders.add(final.parent)
            os.replace(temp, final)
        for folder in folders:
            sync_path(folder)

    def settle(self) -> None:
        """Nothing: the files have had their names since `publish`."""

    def finish(self) -> None:
        """Nothing either."""
