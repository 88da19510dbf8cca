"""StoreMirror: what a sink committed to its local folder, on its way to an object store.

The order of a commit is that of a local one: audio objects first, then the part of the ledger
that names them, and only then do the local files go. Uploads run on a few threads, the parts in
order on another; the sink waits while too much of its work is still on the local disk.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ttsbatch.errors import SinkError
from ttsbatch.sinks.durable import as_sink_error
from ttsbatch.sinks.layout import SizeOf
from ttsbatch.sinks.listing import Listing, shard_of
from ttsbatch.sinks.parts import LOGS, PartName, base_part, growth_part
from ttsbatch.sinks.store import Store
from ttsbatch.sinks.uploads import Uploads

NUM_UPLOADS = 8
MAX_PENDING_BYTES = 256 << 20  # still to be uploaded
MIN_BASE_BYTES = 4 << 20
MIN_WAITING_BYTES = 1 << 30  # in parts, of rows that waited for their shard
TOPS = ("run.json", "failures.jsonl", "manifest.jsonl", "report.json", "report.md")

Signature = tuple[int, int, int]  # inode, size, time: what tells one content from another


@dataclass(slots=True)
class StoreState:
    """What the store had when its OUT was opened."""

    next_part: int = 0
    parts: list[PartName] = field(default_factory=list)
    is_closed: bool = False  # manifest.jsonl is that of the logs


@dataclass(slots=True)
class _Job:
    """One commit on its way."""

    uploads: list[Future[None]]
    files: dict[str, Signature]
    part: bytes | None  # None: the logs have not grown

    @property
    def num_bytes(self) -> int:
        """Of its files and its part, which holds audio too where rows wait for their shard."""
        return sum(size for _, size, _ in self.files.values()) + len(self.part or b"")


class StoreMirror:
    """The mirror of a local folder in a store."""

    def __init__(self, store: Store, folder: Path, state: StoreState) -> None:
        """Begin with a folder that holds what the store has, but for the audio.

        Args:
            store: of the OUT.
            folder: the local one.
            state: of the store.
        """
        self.name = store.uri
        self.check_owner: Callable[[], None] = lambda: None  # called before each part
        self._store, self._folder, self._state = store, folder, state
        self._uploads = Uploads(NUM_UPLOADS)
        self._listing: Listing | None = None
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._known: dict[str, Signature] = {}  # files on their way, or as the store has them
        self._pending_bytes = 0
        self._error: SinkError | None = None
        self._is_over = False
        self._logs = self._sign_logs()  # as far as parts have them
        self._tops = {path: self._sign(path) for path in TOPS}
        if not state.is_closed:
            self._tops["manifest.jsonl"] = None
        self._since_base_bytes = self._waiting_bytes = 0
        self._thread = threading.Thread(target=self._run, name="ttsbatch-mirror", daemon=True)
        self._thread.start()

    def _sign(self, path: str) -> Signature | None:
        try:
            stat = os.stat(self._folder / path)
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    # -- what the sink tells

    def opened(self) -> None:
        """Put run.json, before any part."""
        self._put_tops(["run.json"])

    def rejected(self) -> None:
        """Put failures.jsonl, once the store's ledger has no row that it rejects."""
        self.settle()
        self._put_tops(["run.json", "failures.jsonl"])

    def committed(self) -> None:
        """Queue new files and the growth of the logs; a base where the logs were rewritten."""
        with as_sink_error(self._folder):
            growth = self._growth()
            if growth is None:
                self._upload_new(None)
                self.settle()
                self._put_base(is_closed=False)
                return
            grown, gone = growth
            self._upload_new(growth_part(grown, gone) if grown or gone else None)
            for path, _, data in grown:
                if path in LOGS:
                    self._since_base_bytes += len(data)
                else:
                    self._waiting_bytes += len(data)
            if self._is_base_due():
                self.settle()
                self._put_tops(["failures.jsonl", "manifest.jsonl"])
                self._put_base(is_closed=True)

    def _upload_new(self, part: bytes | None) -> None:
        with self._changed:
            while self._pending_bytes > MAX_PENDING_BYTES and self._error is None:
                self._changed.wait()
            self._raise()
            files = self._new_files()
            if part is None and not files:
                return
            uploads = [self._uploads.submit(self._upload, path) for path in files]
            job = _Job(uploads, files, part)
            self._pending_bytes += job.num_bytes
            self._jobs.append(job)
            self._changed.notify_all()

    def _is_base_due(self) -> bool:
        logs_bytes = sum(sign[1] for path, sign in self._logs.items() if path in LOGS)
        return self._since_base_bytes > max(
            MIN_BASE_BYTES, logs_bytes // 2
        ) or self._waiting_bytes > max(MIN_WAITING_BYTES, 4 * logs_bytes)

    def settle(self) -> None:
        """Wait until the queue is empty."""
        with self._changed:
            while self._jobs and self._error is None:
                self._changed.wait()
            self._raise()

    def removed(self, paths: Iterable[str]) -> None:
        """Remove objects; the ledger in the store already knows that their rows are no more."""
        for future in [self._uploads.submit(self._store.remove, path) for path in paths]:
            future.result()

    def bring_open_shards(self, last_shard: int) -> None:
        """Get the last shard, and those for which rows wait."""
        numbers = {last_shard, *(shard_of(f"audio/{p.stem}/") for p in self._waiting())}
        for entry in self._store.list("audio"):
            if not entry.is_folder and shard_of(entry.name) in numbers:
                self._bring(entry.name)

    def _bring(self, path: str) -> Signature:
        to = self._folder / path
        to.parent.mkdir(parents=True, exist_ok=True)
        self._store.fetch_file(path, to)
        stat = os.stat(to)
        self._known[path] = stat.st_ino, stat.st_size, stat.st_mtime_ns
        return self._known[path]

    @contextmanager
    def brought(self, path: str) -> Iterator[None]:
        """Get it, unless it is here; put it, if it changed. The queue is empty."""
        was_here = (self._folder / path).exists()
        try:
            old = self._known[path] if was_here else self._bring(path)
        except FileNotFoundError:
            yield
            return
        yield
        new = self._sign(path)
        if new is None:
            self._store.remove(path)
        elif new != old:
            self._upload(path)
        if new is not None and was_here:
            self._known[path] = new
        else:
            self._known.pop(path, None)
            (self._folder / path).unlink(missing_ok=True)

    def list_files(self, first_shard: int) -> SizeOf:
        """One listing, by shard."""
        self._listing = Listing(self._store, self._uploads.map, first_shard)
        return self._listing.size_of

    def remove_strays(self) -> None:
        """Remove the objects that a crash left."""
        if self._listing is not None:
            self.removed(self._listing.unasked())
        self._listing = None

    def finish(self) -> None:
        """Put what is left, then a base that says that all is there."""
        self.committed()
        self.settle()
        num_put = self._put_tops(TOPS)
        if num_put or not self._state.is_closed:
            self._put_base(is_closed=True)

    # -- the local folder

    def _waiting(self) -> list[Path]:
        """Rows that wait for their shard; `dir` has none."""
        return sorted(self._folder.glob("ledger/open/*.tar"))

    def _sign_logs(self) -> dict[str, Signature]:
        waiting = [p.relative_to(self._folder).as_posix() for p in self._waiting()]
        signed = {path: self._sign(path) for path in (*LOGS, *waiting)}
        return {path: sign for path, sign in signed.items() if sign is not None}

    def _growth(self) -> tuple[list[tuple[str, int, bytes]], list[str]] | None:
        """([(log, offset, bytes)], logs that are no more) since then; None: one was rewritten."""
        before, now = self._logs, self._sign_logs()
        grown = []
        for path, (inode, size, _) in now.items():
            old_inode, offset, _ = before.get(path, (inode, 0, 0))
            if inode != old_inode or size < offset:
                return None
            if size > offset:
                with (self._folder / path).open("rb") as file:
                    file.seek(offset)
                    grown.append((path, offset, file.read(size - offset)))
        self._logs = now
        return grown, sorted(before.keys() - now.keys())

    def _new_files(self) -> dict[str, Signature]:
        """The files of rows that are not on their way yet."""
        found = {}
        for top in ("audio", "codes"):
            for folder, folders, names in os.walk(self._folder / top):
                if not folders and not names:
                    with suppress(OSError):  # its last file is uploaded
                        os.rmdir(folder)
                below = Path(folder).relative_to(self._folder).as_posix()
                for name in names:
                    path = f"{below}/{name}"
                    signature = self._sign(path)
                    if signature is not None and self._known.get(path) != signature:
                        self._known[path] = found[path] = signature
        return found

    # -- uploads

    def _upload(self, path: str) -> None:
        with as_sink_error(self._folder):
            self._store.put_file(path, self._folder / path)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._is_over:
                    self._changed.wait()
                if self._is_over:
                    return
                job = self._jobs[0]
            try:
                for upload in job.uploads:
                    upload.result()
                if job.part is not None:
                    self.check_owner()
                    self._put_part(job.part)
            except BaseException as e:
                self.fail(e if isinstance(e, SinkError) else SinkError(f"{self._store}: {e!r}"))
                return
            with self._changed:
                for path, signature in job.files.items():
                    if self._sign(path) == signature:  # else a newer one waits for its turn
                        os.unlink(self._folder / path)
                        del self._known[path]
                self._pending_bytes -= job.num_bytes
                self._jobs.popleft()
                self._changed.notify_all()

    def _put_part(self, content: bytes) -> None:
        part = PartName(self._state.next_part, is_base=False)
        self._store.put(str(part), content)
        self._state.next_part += 1
        self._state.parts.append(part)
        self._state.is_closed = False

    def _put_base(self, is_closed: bool) -> None:
        """Put all of the logs as one part, and remove the parts before it. The queue is empty."""
        self._logs = self._sign_logs()
        sizes = {path: size for path, (_, size, _) in self._logs.items()}
        base = PartName(self._state.next_part, is_base=True)
        self.check_owner()
        self._store.put(str(base), lambda: base_part(self._folder, sizes, is_closed))
        old, self._state.parts = self._state.parts, [base]
        self._state.next_part += 1
        self._state.is_closed = is_closed
        self._since_base_bytes = self._waiting_bytes = 0
        self.removed(map(str, old))

    def _put_tops(self, names: Iterable[str]) -> int:
        """Put those files at the top of OUT that have changed; returns how many."""
        num_put = 0
        with as_sink_error(self._folder):
            for name in names:
                signature = self._sign(name)
                if signature is None or signature == self._tops[name]:
                    continue
                self._store.put_file(name, self._folder / name)
                self._tops[name] = signature
                num_put += 1
        return num_put

    # -- errors and the end

    def fail(self, error: SinkError) -> None:
        """End the run with this error, which the sink meets at its next call."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the threads; what is still queued stays where it is."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._uploads.close()
        self._thread.join()
