"""The `dir` layout: a file per row, audio/shard-00000/NAME.wav.

A layout decides where rows go and publishes them; ledger, manifest and resume are the same for all.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ttsbatch.audio.wav import encode_wav, wav_bytes
from ttsbatch.sinks.durable import make_folders, remove_files, sync_files, sync_path, write_file
from ttsbatch.sinks.names import NameBook, fold, own_path
from ttsbatch.types import ShardRecord

_SHARD = re.compile(r"shard-(\d{5,})")
_OURS = (".wav", ".npy")
_NPY_END = b'.npy"}\n'  # of the manifest line of a row with codes
_NPY_HEADER_BYTES = 128  # of an array of two dimensions


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a row's files go, relative to OUT."""

    shard: int
    audio_path: str
    codes_path: str | None


class FolderLayout:
    """Writes rows below OUT/audio (and OUT/codes), `shard_size` rows to a folder."""

    def __init__(self, out: Path, temp_folder: Path, shard_size: int, names: NameBook) -> None:
        self._out = out
        self._temp_folder = temp_folder
        self._shard_size = shard_size
        self._names = names
        self._shard = 0
        self._num_rows = 0  # in that shard
        self._taken: dict[str, str] = {}  # folded path in that shard -> id
        self._num_staged = 0

    def recover(self, last_shard: int, lines: Sequence[bytes]) -> None:
        """Go on after the last shard's rows (their manifest lines); remove what isn't theirs.

        Rows are committed in the order of the shards, so a crash leaves nothing in earlier ones.
        """
        self._shard, self._num_rows = last_shard, len(lines)
        known = set()
        for line in lines:
            row = json.loads(line)
            known |= {row["audio_filepath"], row.get("codes_filepath")}
            path = row["audio_filepath"].split("/", 2)[2].removesuffix(".wav")
            self._taken[fold(path)] = row["id"]
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

    def is_whole(self, audio_path: str, num_samples: int, line: bytes) -> bool:
        """Whether a finished row's files are there and of the right size; opens none.

        Args:
            audio_path: as the manifest line has it.
            num_samples: of the row.
            line: its manifest line.
        """
        try:
            if os.stat(f"{self._out}/{audio_path}").st_size != wav_bytes(num_samples):
                return False
            if not line.endswith(_NPY_END):
                return True
            row = json.loads(line)
            size = os.stat(f"{self._out}/{row['codes_filepath']}").st_size
            frame_bytes, rest = divmod(size - _NPY_HEADER_BYTES, max(row["num_frames"], 1))
            return bool(frame_bytes > 0 and rest == 0)
        except OSError:
            return False

    def place(self, record: ShardRecord, avoid: Collection[str | None] = ()) -> Placed:
        """Choose the row's shard and name; in the next shard if the name is one to `avoid`."""
        placed = self._place(record)
        if placed.audio_path in avoid or (placed.codes_path or "") in avoid:
            self._num_rows = self._shard_size
            placed = self._place(record)
        return placed

    def _place(self, record: ShardRecord) -> Placed:
        if self._num_rows >= self._shard_size:
            self._shard, self._num_rows, self._taken = self._shard + 1, 0, {}
        u = record.utterance
        path = self._names.path(u)
        if self._taken.get(fold(path), u.id) != u.id:  # a row that the corpus no longer has
            path = own_path(u.id, path)
        self._taken[fold(path)] = u.id
        self._num_rows += 1
        folder = f"shard-{self._shard:05d}"
        codes = None if record.codes is None else f"codes/{folder}/{path}.npy"
        return Placed(self._shard, f"audio/{folder}/{path}.wav", codes)

    def stage(
        self,
        rows: Sequence[tuple[ShardRecord, Placed]],
        on_encoded: Callable[[float], None],
    ) -> list[tuple[Path, str]]:
        """Write the rows' files under temporary names, durably.

        Args:
            rows: records and their places.
            on_encoded: gets the seconds of each encoding.

        Returns:
            (temporary file, path below OUT) of each file.
        """
        staged: list[tuple[Path, str]] = []
        for record, placed in rows:
            start = time.perf_counter()
            files = [(encode_wav(record.samples, record.sample_rate_hz), placed.audio_path)]
            if record.codes is not None and placed.codes_path is not None:
                files.append((_npy(record), placed.codes_path))
            on_encoded(time.perf_counter() - start)
            for data, path in files:
                temp = self._temp_folder / f"{self._num_staged:08d}{Path(path).suffix}"
                self._num_staged += 1
                write_file(temp, data)
                staged.append((temp, path))
        sync_files([temp for temp, _ in staged], self._temp_folder)
        return staged

    def publish(self, staged: Sequence[tuple[Path, str]]) -> None:
        """Give staged files their names, durably."""
        folders: set[Path] = set()
        for temp, path in staged:
            final = self._out / path
            if final.parent not in folders:
                make_folders(final.parent, self._out)
                folders.add(final.parent)
            os.replace(temp, final)
        for folder in folders:
            sync_path(folder)


def _npy(record: ShardRecord) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(record.codes, np.int16), allow_pickle=False)
    return buffer.getvalue()
