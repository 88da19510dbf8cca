"""An OUT that may be a URI, opened: a local folder to work in, and the mirror of it.

Behind a URI the store is the truth. A temporary folder holds what a local OUT would, without the
audio: it is filled from the store when an OUT is opened, and whatever a session commits goes there
(`store_mirror.py`). Nothing of value is left in it once a session ends, however it ends.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttsbatch.counts import counted
from ttsbatch.errors import SinkError
from ttsbatch.sinks.mirror import Mirror, NoMirror
from ttsbatch.sinks.owner import WRITER, Owner
from ttsbatch.sinks.parts import PartName, apply_part
from ttsbatch.sinks.store import Entry, Store
from ttsbatch.sinks.store_mirror import TOPS, StoreMirror, StoreState
from ttsbatch.uri import local_path, shown

_NUM_DOWNLOADS = 16
_TEMPORARY = ("ledger/clock-", "ledger/new/")
_NUM_AT_ONCE = 256  # parts in memory
_NUM_TRIES = 5  # of reading an OUT that a run is writing to: parts go as bases come


@dataclass(frozen=True, slots=True)
class OpenOut:
    """An OUT that is open."""

    folder: Path
    mirror: Mirror


@contextlib.contextmanager
def opened_for_writing(out: Path | str, is_new: bool = True) -> Iterator[OpenOut]:
    """OUT for one run.

    Args:
        out: a folder, or a URI.
        is_new: it may be one that no run has written to.

    Raises:
        SinkError: in use, somebody else's, damaged, or the store does not answer.
    """
    if (path := local_path(out)) is not None:
        yield OpenOut(path, NoMirror())
        return
    store = Store(str(out))
    with tempfile.TemporaryDirectory(prefix="ttsbatch-") as scratch:
        folder = Path(scratch, "out")
        check_ours(store, is_new)
        owner = Owner(store)
        try:
            try:
                state, left = _download(store, folder)
            except FileNotFoundError as e:
                raise SinkError(f"{store}: changes as it is read: {e}") from e
            mirror = StoreMirror(store, folder, state)
            try:
                owner.on_lost(mirror.fail)
                mirror.check_owner = owner.check_if_late
                mirror.removed(left)
                yield OpenOut(folder, mirror)
            except (KeyboardInterrupt, SystemExit):
                store.leave_alone()
                raise
            finally:
                mirror.close()
        finally:
            owner.release()


@contextlib.contextmanager
def opened_for_reading(out: Path | str) -> Iterator[tuple[Path, Store | None]]:
    """(folder with all but the audio, store of a URI) of an OUT.

    Raises:
        SinkError: damaged, or the store does not answer.
    """
    if (path := local_path(out)) is not None:
        yield path, None
        return
    store = Store(str(out))
    with tempfile.TemporaryDirectory(prefix="ttsbatch-") as scratch:
        for number in range(1, _NUM_TRIES + 1):
            folder = Path(scratch, f"{number}")
            try:
                _download(store, folder)
            except FileNotFoundError as e:
                if number == _NUM_TRIES:
                    raise SinkError(f"{store}: changes as it is read: {e}") from e
            else:
                break
        with contextlib.suppress(FileNotFoundError):
            (folder / "ledger/session.json").write_bytes(store.fetch(WRITER))
        yield folder, store


def check_ours(store: Store, is_new: bool) -> None:
    """See that a store holds a run, or with `is_new` nothing.

    Raises:
        SinkError: it holds something else, or does not answer.
    """
    names = {entry.name for entry in store.list()} - {""}
    if "run.json" in names:
        return
    if not is_new:
        raise SinkError(f"{store}: has no run.json; expected the output of a run")
    if others := sorted(names - {"ledger"}):
        raise SinkError(
            f"{store}: holds {others[0]!r}, which no run of ttsbatch wrote; "
            "expected an empty or new folder, or the output of an earlier run"
        )


def _download(store: Store, folder: Path) -> tuple[StoreState, list[str]]:
    """Fill a local folder; returns the store's state, and objects that nobody needs any more.

    Raises:
        FileNotFoundError: an object went away meanwhile.
        SinkError: a damaged part, or the store does not answer.
    """
    (folder / "ledger").mkdir(parents=True)
    tops = {entry.name: entry for entry in store.list() if entry.name in TOPS}
    for name in tops.keys() - {"manifest.jsonl"}:
        (folder / name).write_bytes(store.fetch(name))
    names = [e.name for e in store.list("ledger", recursive=True) if not e.is_folder]
    found = [part for name in names if (part := PartName.of(name)) is not None]
    parts = sorted(found, key=lambda p: (p.number, p.is_base))
    first = max((i for i, part in enumerate(parts) if part.is_base), default=0)
    left = [*map(str, parts[:first]), *(name for name in names if name.startswith(_TEMPORARY))]
    parts = parts[first:]
    is_closed = _join(store, folder, parts)
    state = StoreState(parts[-1].number + 1 if parts else 0, parts)
    state.is_closed = is_closed and _same_size(folder / "manifest.jsonl", tops)
    return state, left


def _join(store: Store, folder: Path, parts: list[PartName]) -> bool:
    """Apply parts in order; returns whether the last one was closed."""
    if not parts:
        return True
    is_closed = False
    if parts[0].is_base:
        name = str(parts[0])
        is_closed = store.copy_to(name, lambda stream: _apply(store, stream, folder, parts[0]))
    rest = parts[1:] if parts[0].is_base else parts
    with ThreadPoolExecutor(_NUM_DOWNLOADS) as pool:
        for i in range(0, len(rest), _NUM_AT_ONCE):
            some = rest[i : i + _NUM_AT_ONCE]
            for part, content in zip(some, pool.map(store.fetch, map(str, some)), strict=True):
                is_closed = _apply(store, io.BytesIO(content), folder, part)
    return is_closed


def _apply(store: Store, stream: Any, folder: Path, part: PartName) -> bool:
    return apply_part(stream, folder, f"{store}/{part}", part.is_base)


def _same_size(manifest: Path, tops: dict[str, Entry]) -> bool:
    size = manifest.stat().st_size if manifest.exists() else 0
    return "manifest.jsonl" in tops and tops["manifest.jsonl"].size_bytes == size


def stale_manifest(store: Store, folder: Path) -> str | None:
    """What is wrong with the store's manifest.jsonl, against that of its ledger."""
    there, here = store.stat("manifest.jsonl"), folder / "manifest.jsonl"
    size = here.stat().st_size if here.exists() else 0
    if there is not None and there.size_bytes == size:
        return None
    found = "is not there" if there is None else f"has {counted(there.size_bytes, 'byte')}"
    return f"manifest.jsonl {found}; the ledger has {counted(size, 'byte')} of it"


def read_top(out: Path | str, name: str) -> bytes:
    """A file at the top of OUT.

    Raises:
        OSError: of a local file; FileNotFoundError of an object that is not there.
        SinkError: the store does not answer.
    """
    if (path := local_path(out)) is not None:
        return (path / name).read_bytes()
    return Store(str(out)).fetch(name)


def name_of(out: Path | str) -> str:
    """OUT in messages."""
    return str(out) if local_path(out) is not None else shown(str(out))
