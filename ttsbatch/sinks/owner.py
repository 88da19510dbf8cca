"""One writer per OUT on an object store: the object ledger/writer.json, with a heartbeat.

`pyarrow.fs` offers neither locks nor conditional writes, so this is weaker than the lock of a
local OUT. A run writes its name, waits a moment and reads it back; while it lives it writes the
object every `BEAT_S`. Another run is refused while the object is younger than `STALE_S` by the
clock of the store, and takes over after that, or at once if the process was on this host and is
gone. A run that finds another's name there ends.

The limits: two runs that begin within `SETTLE_S` are told apart only if requests take less than
that; a run that was stopped for longer than `STALE_S` and goes on may put one more commit before
it finds out. Both would show: a part of the ledger then does not follow the one before it, and
the next run and `verify` say so.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ttsbatch.errors import SinkError
from ttsbatch.sinks.store import Store

BEAT_S = 15.0
STALE_S = 75.0
SETTLE_S = 0.5
WRITER = "ledger/writer.json"
# Always of one size: pyarrow asks for an object's size before it reads that many bytes, so one that
# is written in between, shorter or longer, would be read torn and taken for no writer at all.
_WRITER_BYTES = 1024

_held: set[str] = set()  # tokens of this process


class Owner:
    """Exclusive use of an OUT, as far as an object store allows it."""

    def __init__(self, store: Store) -> None:
        """Take it.

        Raises:
            SinkError: another run has it, or the store does not let us write.
        """
        self._store = store
        self._lost: SinkError | None = None
        self._on_lost: Callable[[SinkError], None] | None = None
        self._token = uuid.uuid4().hex
        self._started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._over = threading.Event()
        if (held := in_use_by(store, may_write=True)) is not None:
            raise _in_use(store, held)
        _held.add(self._token)
        self._put()
        self._over.wait(SETTLE_S)
        self._check()
        self._beat_at = time.time()
        self._thread = threading.Thread(target=self._run, name="ttsbatch-owner", daemon=True)
        self._thread.start()

    def _put(self) -> None:
        writer = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "place": _place(),
            "started": self._started,
            "time": time.time(),
            "token": self._token,
        }
        self._store.put(WRITER, json.dumps(writer).ljust(_WRITER_BYTES).encode())

    def _check(self) -> None:
        found = _read(self._store)
        if found is None or found.get("token") != self._token:
            raise _in_use(self._store, _name(found))

    def check_if_late(self) -> None:
        """Look at the object again if the last beat is long ago, as after a machine slept.

        Raises:
            SinkError: another run took over.
        """
        if time.time() - self._beat_at > STALE_S / 2:
            self._beat()

    def _beat(self) -> None:
        self._check()
        self._put()
        self._beat_at = time.time()

    def _run(self) -> None:
        while not self._over.wait(BEAT_S):
            try:
                self._beat()
            except SinkError as e:
                self._lost = e
                if self._on_lost is not None:
                    self._on_lost(e)
                return

    def on_lost(self, call: Callable[[SinkError], None]) -> None:
        """Have `call` told, on any thread, once the run has to end: another took over, or the
        store is dead."""
        self._on_lost = call
        if self._lost is not None:
            call(self._lost)

    def release(self) -> None:
        """Give it back, unless the store is dead or another run has it."""
        self._over.set()
        self._thread.join()
        _held.discard(self._token)
        if self._store.is_dead:
            return
        try:
            self._check()
            self._store.remove(WRITER)
        except SinkError:
            return  # it goes stale by itself


def in_use_by(store: Store, may_write: bool = False) -> str | None:
    """Which run writes to an OUT just now, in words; None: no run that is known to live.

    Args:
        store: of the OUT.
        may_write: so the store's clock can be asked; else this host's is taken for it.

    Raises:
        SinkError: the store is dead, or does not let us read.
    """
    entry, found = store.stat(WRITER), _read(store)
    if entry is None or found is None:
        return None
    if found.get("place") == _place() and not _is_alive(found.get("pid"), found.get("token")):
        return None
    now = _now(store) if may_write else time.time()
    if entry.changed is None or now - entry.changed.timestamp() > STALE_S:
        return None
    return _name(found)


def _now(store: Store) -> float:
    """Unix time by the clock of the store: clocks of two hosts may differ by more than a beat."""
    probe = f"ledger/clock-{uuid.uuid4().hex}"
    store.put(probe, b"now")
    entry = store.stat(probe)
    store.remove(probe)
    return time.time() if entry is None or entry.changed is None else entry.changed.timestamp()


def _read(store: Store) -> dict[str, Any] | None:
    try:
        found = json.loads(store.fetch(WRITER))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _name(found: dict[str, Any] | None) -> str:
    if found is None:
        return "another run"
    return f"process {found.get('pid')} on {found.get('host')}, since {found.get('started')}"


def _place() -> str:
    """Where process numbers mean the same: this boot of this host, and this container."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _is_alive(pid: Any, token: Any) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    if pid == os.getpid():
        return token in _held
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_use(store: Store, held: str) -> SinkError:
    return SinkError(
        f"{store}: in use by {held}; wait for it, end it, or write to another folder. A run that "
        f"died on another machine is taken over {STALE_S:.0f} s after its last sign of life"
    )
