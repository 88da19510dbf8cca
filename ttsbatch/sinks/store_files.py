"""The audio of an OUT behind a URI, for `verify` and `export`.

`verify` takes sizes from a listing, and files come to the local folder for as long as they are
looked at: of WAV files the header, with a hole as long as the rest; of other formats, and of
shards, all of it.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from ttsbatch.audio.measure import bytes_needed
from ttsbatch.sinks.store import Store
from ttsbatch.sinks.stored import AudioReader, split_audio_path
from ttsbatch.sinks.verify_row import parse_object
from ttsbatch.sinks.verify_shards import ShardContent, ShardFiles

_NUM_AHEAD = 32
_NPY_HEAD_BYTES = 1 << 10  # its header takes 128


class StoreFiles(ShardFiles):
    """Files of a store; for many threads."""

    def __init__(self, folder: Path, store: Store) -> None:
        """List the store.

        Args:
            folder: the local one, without audio.
            store: of the OUT.

        Raises:
            SinkError: the store does not answer.
        """
        super().__init__(folder)
        self._store = store
        self._sizes: dict[str, int] = {}
        for top in ("audio", "codes"):
            for entry in store.list(top):
                below = store.list(entry.name, recursive=True) if entry.is_folder else [entry]
                self._sizes |= {e.name: e.size_bytes for e in below if not e.is_folder}

    def names(self) -> Iterator[str]:
        """Every file."""
        yield from sorted(self._sizes)

    @contextlib.contextmanager
    def at_hand(self, lines: Iterable[bytes]) -> Iterator[None]:
        """The rows' files are in the local folder meanwhile; those that are not there are not."""
        here = [path for line in lines for path in self._named(line)]
        for path in here:
            with contextlib.suppress(FileNotFoundError):
                self._bring(path, self._sizes[path])
        try:
            yield
        finally:
            for path in here:
                (self.out / path).unlink(missing_ok=True)

    def _named(self, line: bytes) -> list[str]:
        try:
            row = parse_object(line)
        except (ValueError, RecursionError):
            return []
        named = [row.get("audio_filepath"), row.get("codes_filepath")]
        return [n for n in named if isinstance(n, str) and n in self._sizes and _is_safe(n)]

    def _bring(self, path: str, size: int) -> None:
        suffix = PurePosixPath(path).suffix
        head_bytes = min(size, _NPY_HEAD_BYTES) if suffix == ".npy" else bytes_needed(suffix, size)
        data = self._store.fetch(path, head_bytes)
        to = self.out / path
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("wb") as file:
            file.write(data)
            file.truncate(size)

    def _read_shard(self, shard_path: str) -> ShardContent:
        with self._whole(shard_path):
            return super()._read_shard(shard_path)

    def members(self, shard_path: str) -> list[str]:
        """The audio members of a shard."""
        with self._whole(shard_path):
            return super().members(shard_path)

    @contextlib.contextmanager
    def _whole(self, path: str) -> Iterator[None]:
        to = self.out / path
        if path in self._sizes and _is_safe(path):
            to.parent.mkdir(parents=True, exist_ok=True)
            self._store.fetch_file(path, to)
        try:
            yield
        finally:
            to.unlink(missing_ok=True)


class StoreReader(AudioReader):
    """Encoded audio of rows from a store, several files ahead."""

    def __init__(self, folder: Path, store: Store) -> None:
        """Read rows of `store`; shards come to the local `folder`, one at a time."""
        super().__init__(folder)
        self._store = store
        self._pool = ThreadPoolExecutor(_NUM_AHEAD)
        self._coming: dict[str, Future[bytes]] = {}

    def close(self) -> None:
        """End the threads."""
        super().close()
        self._pool.shutdown(cancel_futures=True)

    def ahead(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The same rows, their files on the way."""
        waiting: deque[dict[str, Any]] = deque()
        for row in rows:
            path, member = split_audio_path(row)
            if member is None and path not in self._coming:
                self._coming[path] = self._pool.submit(self._store.fetch, path)
            waiting.append(row)
            if len(waiting) > _NUM_AHEAD:
                yield waiting.popleft()
        yield from waiting

    def _file(self, path: str) -> bytes:
        coming = self._coming.pop(path, None)
        return self._store.fetch(path) if coming is None else coming.result()

    @contextlib.contextmanager
    def _local(self, path: str) -> Iterator[Path]:
        to = self._out / path
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._store.fetch_file(path, to)
            yield to  # once open, it needs no name
        finally:
            to.unlink(missing_ok=True)


def _is_safe(path: str) -> bool:
    return ".." not in PurePosixPath(path).parts and "\0" not in path
