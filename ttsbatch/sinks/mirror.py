"""Mirror: where a sink's folder goes as well; `store_mirror.py` has that of an object store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from ttsbatch.sinks.layout import SizeOf


class Mirror(Protocol):
    """What a sink tells of its commits; a local OUT has a `NoMirror`."""

    @property
    def name(self) -> str | None:
        """Of OUT, for messages; None: that of its folder."""

    def opened(self) -> None:
        """OUT is this run's: its settings are the same, its logs are in order."""

    def committed(self) -> None:
        """The logs have grown; new files have their names. Waits while too much is pending."""

    def settle(self) -> None:
        """Wait until all that was committed is in the store."""

    def rejected(self) -> None:
        """failures.jsonl is written."""

    def removed(self, paths: Iterable[str]) -> None:
        """Files of replaced rows are no more."""

    def bring_open_shards(self, last_shard: int) -> None:
        """Get the shard files to which rows may still come."""

    def brought(self, path: str) -> AbstractContextManager[None]:
        """Around a change of a shard file, which may end in its removal."""

    def list_files(self, first_shard: int) -> SizeOf | None:
        """The size of each file, for a look at all of them; None: ask the local disk.

        The function raises FileNotFoundError where there is none. Files from `first_shard` on that
        nobody asks for are strays.
        """

    def remove_strays(self) -> None:
        """Remove those files."""

    def finish(self) -> None:
        """The session is over: whatever the folder has is in the store once this returns."""


class NoMirror:
    """An OUT that is a local folder."""

    name = None

    def opened(self) -> None:
        """Nothing to do."""

    committed = settle = rejected = finish = opened

    def removed(self, paths: Iterable[str]) -> None:
        """Nothing to do."""

    def bring_open_shards(self, last_shard: int) -> None:
        """They are there."""

    def brought(self, path: str) -> AbstractContextManager[None]:
        """It is there."""
        return nullcontext()

    def list_files(self, first_shard: int) -> SizeOf | None:
        """The local disk knows."""
        return None

    def remove_strays(self) -> None:
        """The layout does it."""
