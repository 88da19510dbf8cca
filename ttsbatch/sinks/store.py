"""An OUT behind a URI: its objects, put and fetched through `pyarrow.fs`, with patience.

On S3, GCS and Azure an object is there, whole, once its stream is closed; elsewhere (HDFS) it is
written under a temporary name and renamed. What may pass is tried again for `DEAD_AFTER_S`; after
that the store counts as dead, and every further call fails at once.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from ttsbatch.errors import SinkError
from ttsbatch.sinks.durable import as_sink_error
from ttsbatch.uri import shown

DEAD_AFTER_S = 60.0  # how long a store may give errors before a run ends
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 8.0
CHUNK_BYTES = 4 << 20

_FLAT = ("s3", "gcs", "abfs")  # no folders, and objects appear whole
_WANT_MORE_THAN_TIME = re.compile(
    r"AWS Error (ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|"
    r"INVALID_CLIENT_TOKEN_ID|MISSING_AUTHENTICATION_TOKEN|UNRECOGNIZED_CLIENT|VALIDATION)"
    r"|HTTP status 40[013]|No bucket specified|PermissionDenied|AccessDenied"
)

Got = TypeVar("Got")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a folder of a listing."""

    name: str  # below OUT, with `/`
    size_bytes: int
    is_folder: bool
    changed: datetime | None  # by the clock of the store


class Store:
    """The objects of one OUT; for many threads."""

    def __init__(self, uri: str) -> None:
        """Find the file system; nothing is asked of it yet.

        Raises:
            SinkError: no file system for this URI.
        """
        self.uri = shown(uri)
        self._fs, self._base = _file_system(uri)
        self._is_flat = self._fs.type_name in _FLAT
        self._dead: SinkError | None = None
        self._left_alone = threading.Event()

    def __str__(self) -> str:
        return self.uri

    def leave_alone(self) -> None:
        """Try nothing again from now on."""
        self._left_alone.set()

    @property
    def is_dead(self) -> bool:
        """Whether it was given up."""
        return self._dead is not None

    # -- objects; names are below OUT

    def put(self, name: str, content: bytes | Callable[[], Iterable[bytes]]) -> None:
        """Write an object as a whole, in place of any earlier one.

        Raises:
            SinkError: the store is dead, or does not let us.
        """
        try:
            self._patiently(name, "write", lambda: self._put(name, content))
        except FileNotFoundError as e:  # of a bucket
            raise SinkError(f"{self.uri}/{name}: cannot write: {e}") from e

    def _put(self, name: str, content: bytes | Callable[[], Iterable[bytes]]) -> None:
        chunks = (content,) if isinstance(content, bytes) else content()
        path = self._path(name)
        to = path if self._is_flat else f"{self._base}/ledger/new/{uuid.uuid4().hex}"
        if not self._is_flat:
            self._fs.create_dir(f"{self._base}/ledger/new", recursive=True)
            self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        with self._fs.open_output_stream(to) as stream:
            for chunk in chunks:
                stream.write(chunk)
        if to != path:
            self._move(to, path)

    def _move(self, to: str, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(path)  # HDFS renames to free names only
        self._fs.move(to, path)

    def put_file(self, name: str, path: Path) -> int:
        """Write an object from a local file; returns its size in bytes.

        Raises:
            SinkError: as `put`. An OSError of the local file passes as it is.
        """
        size = path.stat().st_size
        if size <= CHUNK_BYTES:
            data = path.read_bytes()
            self.put(name, data)
            return len(data)
        self.put(name, lambda: file_chunks(path, 0, size))
        return size

    def fetch(self, name: str, size_bytes: int | None = None) -> bytes:
        """The content of an object, or its first bytes.

        Raises:
            FileNotFoundError: there is none.
            SinkError: the store is dead, or does not let us.
        """

        def call() -> bytes:
            with self._fs.open_input_stream(self._path(name)) as stream:
                return bytes(stream.read() if size_bytes is None else stream.read(size_bytes))

        return self._patiently(name, "read", call)

    def copy_to(self, name: str, take: Callable[[Any], Got]) -> Got:
        """What `take` makes of the object's stream; it starts anew if the store stumbles.

        Raises:
            FileNotFoundError, SinkError: as `fetch`.
        """

        def call() -> Got:
            with self._fs.open_input_stream(self._path(name)) as stream:
                return take(stream)

        return self._patiently(name, "read", call)

    def fetch_file(self, name: str, to: Path) -> None:
        """Write an object's content to a local file.

        Raises:
            FileNotFoundError, SinkError: as `fetch`, or the file cannot be written.
        """

        def save(stream: Any) -> None:
            with as_sink_error(to):
                file = to.open("wb")
            with file:
                while chunk := stream.read(CHUNK_BYTES):
                    with as_sink_error(to):
                        file.write(chunk)

        self.copy_to(name, save)

    def remove(self, name: str) -> None:
        """Remove an object; an absent one is fine.

        Raises:
            SinkError: the store is dead, or does not let us.
        """

        def call() -> None:
            try:
                self._fs.delete_file(self._path(name))
            except FileNotFoundError:
                return

        self._patiently(name, "remove", call)

    def list(self, folder: str = "", recursive: bool = False) -> list[Entry]:
        """What is below a folder; nothing where there is none.

        Raises:
            SinkError: the store is dead, or does not let us.
        """
        from pyarrow import fs

        top = self._path(folder) if folder else self._base
        selector = fs.FileSelector(top, recursive=recursive, allow_not_found=True)
        found = self._patiently(folder, "list", lambda: self._fs.get_file_info(selector))
        return [self._entry(info) for info in found]

    def stat(self, name: str) -> Entry | None:
        """One object, or None.

        Raises:
            SinkError: the store is dead, or does not let us.
        """
        from pyarrow import fs

        info = self._patiently(name, "read", lambda: self._fs.get_file_info(self._path(name)))
        return None if info.type == fs.FileType.NotFound else self._entry(info)

    def _entry(self, info: Any) -> Entry:
        from pyarrow import fs

        name = info.path[len(self._base) + 1 :].strip("/")
        is_folder = info.type == fs.FileType.Directory
        return Entry(name, info.size or 0, is_folder, info.mtime)

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    # -- patience

    def _patiently(self, name: str, verb: str, call: Callable[[], Got]) -> Got:
        first_error_at: float | None = None
        wait_s = FIRST_WAIT_S
        while True:
            if self._dead is not None:
                raise self._dead
            try:
                return call()
            except FileNotFoundError:
                raise
            except (OSError, ValueError) as e:  # pyarrow's errors are of both kinds
                now = time.monotonic()
                first_error_at = first_error_at or now
                where = f"{self.uri}/{name}" if name else self.uri
                if _WANT_MORE_THAN_TIME.search(str(e)) or not isinstance(e, OSError):
                    raise SinkError(f"{where}: cannot {verb}: {e}") from e
                if now - first_error_at + wait_s > DEAD_AFTER_S or self._left_alone.is_set():
                    waited = f"for {now - first_error_at:.0f} s " if now > first_error_at else ""
                    self._dead = SinkError(
                        f"{where}: cannot {verb}, tried {waited}and given up: {e}. What the store "
                        "has stays valid; run the same command again once it answers"
                    )
                    raise self._dead from e
            self._left_alone.wait(wait_s * random.uniform(0.75, 1.25))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def file_chunks(path: Path, start: int, end: int) -> Iterable[bytes]:
    """The bytes of a file from `start` to `end`.

    Raises:
        SinkError: it cannot be read, or ends before.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            while start < end:
                chunk = file.read(min(CHUNK_BYTES, end - start))
                if not chunk:
                    raise SinkError(f"{path}: ends at byte {start:,}, expected {end:,}")
                start += len(chunk)
                yield chunk
    except OSError as e:
        raise SinkError(f"{path}: cannot read: {e.strerror or e}") from e


def _file_system(uri: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    tries = [uri]
    if uri.startswith("s3://") and "allow_delayed_open" not in uri:
        # One request for a small object, not three. Older releases do not know the option.
        tries.insert(0, f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true")
    for number, name in enumerate(tries, 1):
        try:
            filesystem, base = fs.FileSystem.from_uri(name)
        except (OSError, ValueError, pa.ArrowException) as e:
            if number == len(tries):
                raise SinkError(f"{shown(uri)}: cannot be opened: {e}") from e
        else:
            break
    base = base.rstrip("/")
    if not base.strip("/"):
        example = f"{shown(uri)}{'bucket' if filesystem.type_name in _FLAT else ''}/run"
        raise SinkError(f"{shown(uri)}: names no folder; expected one such as {example}")
    return filesystem, base
