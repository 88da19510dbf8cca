"""An export appears under its name as a whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ttsbatch.errors import SinkError
from ttsbatch.sinks.durable import as_sink_error, sync_path, sync_tree


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write to, beside `path`; it gets that name if nothing goes wrong.

    What an export that was killed left there is removed first.

    Raises:
        SinkError: something is at `path`, another export writes there, or a write failed.
    """
    path = path.resolve()
    temp = path.with_name(f".{path.name}.ttsbatch-export")
    with as_sink_error(path):
        if path.is_dir():
            is_free = not any(path.iterdir())
        else:
            is_free = not path.exists()
        if not is_free:
            raise SinkError(f"{path}: is there already; expected a new name or an empty folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        temp.mkdir(exist_ok=True)
        with _only_writer(temp, path):
            try:
                _clear(temp)
                yield temp
                sync_tree(temp)
                os.replace(temp, path)
            except BaseException:
                shutil.rmtree(temp, ignore_errors=True)
                raise
        sync_path(path.parent)


@contextlib.contextmanager
def _only_writer(temp: Path, path: Path) -> Iterator[None]:
    fd = os.open(temp, os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise SinkError(f"{path}: another export is writing there") from e
        yield
    finally:
        os.close(fd)


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
