"""The sizes of all audio and codes objects of an OUT, from listings of its shards: 17 bytes
each."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from ttsbatch.sinks.names import AUDIO_EXTENSIONS
from ttsbatch.sinks.store import Entry, Store

TOPS = ("audio", "codes")
_SHARD = re.compile(r"(?:audio|codes)/shard-(\d{5,})(?:/.*|\.(?:tar|parquet))", re.DOTALL)
_OURS = (*AUDIO_EXTENSIONS, ".npy", ".tar", ".parquet")

Map = Callable[[Callable[[str], None], Iterable[str]], None]


class Listing:
    """What the store has, as a set of sizes that one can ask for."""

    def __init__(self, store: Store, on_threads: Map, first_shard: int) -> None:
        """List every shard, several at once.

        Args:
            store: of the OUT.
            on_threads: calls a function with each of many names.
            first_shard: from here on, objects that nobody asks for are `unasked`.

        Raises:
            SinkError: the store is dead, or does not let us list.
        """
        self._lock = threading.Lock()
        self._digests: list[npt.NDArray[np.uint64]] = []
        self._sizes: list[npt.NDArray[np.uint64]] = []
        self._first_shard = first_shard
        self._late: list[str] = []  # objects of the shards from there on
        folders = []
        for top in TOPS:
            for entry in store.list(top):
                if entry.is_folder:
                    folders.append(entry.name)
                else:
                    self._take([entry])
        on_threads(lambda folder: self._take(store.list(folder, recursive=True)), folders)
        digests = np.concatenate([np.zeros(0, np.uint64), *self._digests])
        order = np.argsort(digests)
        self._digest = digests[order]
        self._size = np.concatenate([np.zeros(0, np.uint64), *self._sizes])[order]
        self._is_asked = np.zeros(len(order), bool)

    def _take(self, entries: list[Entry]) -> None:
        files = [e for e in entries if not e.is_folder and e.name.endswith(_OURS)]
        digests = np.array([_digest(e.name) for e in files], np.uint64)
        sizes = np.array([e.size_bytes for e in files], np.uint64)
        with self._lock:
            self._digests.append(digests)
            self._sizes.append(sizes)
            self._late += [e.name for e in files if shard_of(e.name) >= self._first_shard]

    def size_of(self, path: str) -> int:
        """Bytes of an object.

        Raises:
            FileNotFoundError: there is none.
        """
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(path)
        self._is_asked[found] = True
        return int(self._size[found])

    def _find(self, path: str) -> int | None:
        digest = np.uint64(_digest(path))
        at = int(np.searchsorted(self._digest, digest))
        return at if at < len(self._digest) and self._digest[at] == digest else None

    def unasked(self) -> list[str]:
        """Objects of the late shards whose size nobody asked for."""
        found = ((name, self._find(name)) for name in self._late)
        return [name for name, at in found if at is not None and not self._is_asked[at]]


def shard_of(path: str) -> int:
    """The number of the shard that an object belongs to; -1: of none."""
    match = _SHARD.fullmatch(path)
    return int(match[1]) if match else -1


def _digest(path: str) -> int:
    return int.from_bytes(blake2b(path.encode("utf8"), digest_size=8).digest(), "little")
