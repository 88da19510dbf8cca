"""One writer per OUT: a lock that the system frees when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from ttsbatch.errors import SinkError
from ttsbatch.sinks.durable import sink_error, write_file

_held_fds: set[int] = set()


def _close_in_child() -> None:
    # A forked worker shares the lock's open file; left open, it would keep the lock of a dead run.
    for fd in _held_fds:
        with contextlib.suppress(OSError):
            os.close(fd)
    _held_fds.clear()


os.register_at_fork(after_in_child=_close_in_child)


def in_use_by(ledger: Path) -> str | None:
    """Who holds the lock, in words; None where nobody does. For readers: changes nothing."""
    if not (ledger / "session.json").exists():
        return None
    try:
        fd = os.open(ledger / "lock", os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as e:
        return _holder(ledger) if e.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    finally:
        os.close(fd)
    return None


def _holder(ledger: Path) -> str:
    try:
        holder = json.loads((ledger / "session.json").read_text("utf8"))
        return f"process {holder['pid']} on {holder['host']}, since {holder['started']}"
    except (OSError, ValueError, KeyError):
        return "another process"


@contextlib.contextmanager
def held_still(ledger: Path) -> Iterator[None]:
    """Keeps runs from an OUT while its rows are read; other readers may come too.

    Raises:
        SinkError: a run holds the lock.
    """
    try:
        fd = os.open(ledger / "lock", os.O_RDONLY)
    except OSError:  # a copy without it: nobody writes there
        yield
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise SinkError(
                    f"{ledger.parent}: in use by {_holder(ledger)}; expected a run that is over"
                ) from e
        yield
    finally:
        os.close(fd)


def in_use_error(out: object, holder: str) -> SinkError:
    """What refuses a run that would write to an OUT which another one writes to."""
    return SinkError(f"{out}: in use by {holder}; wait for it, end it, or write to another folder")


class OutLock:
    """Exclusive use of an OUT, through flock(2) on `ledger/lock`.

    The holder's name is in `ledger/session.json`, which is there only while a run holds the lock
    (or was killed, or could not write); the lock file itself never changes.
    """

    def __init__(self, ledger: Path) -> None:
        """Take the lock.

        Raises:
            SinkError: another run holds it, or the file system cannot lock.
        """
        self._session = ledger / "session.json"
        self._signed = False
        path = ledger / "lock"
        try:
            flags = os.O_RDONLY if path.exists() else os.O_RDWR | os.O_CREAT
            self._fd = os.open(path, flags, 0o666)
        except OSError as e:
            raise sink_error(e, path) from e
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(self._fd)
            if e.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise in_use_error(ledger.parent, _holder(ledger)) from e
            raise SinkError(f"{path}: cannot lock: {e.strerror}; expected flock to work") from e
        _held_fds.add(self._fd)

    def sign(self) -> None:
        """Say who holds the lock, for whoever comes second."""
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "started": started}
        self._signed = True
        write_file(self._session, json.dumps(holder).encode())

    def release(self, ended: bool = True) -> None:
        """Give the lock back, once or more; the name stays where the session did not end well."""
        if self._fd < 0:
            return
        if self._signed and ended:
            with contextlib.suppress(OSError):
                self._session.unlink(missing_ok=True)
        _held_fds.discard(self._fd)
        os.close(self._fd)
        self._fd = -1
