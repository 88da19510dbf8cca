"""An OUT against itself: manifest, files, ledger and failures. Reads only, and takes no lock.

What a killed session left past its last commit is no damage: the next run removes it. It is told
from damage by the session's name tag, which a session that came to its end takes away.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ttsbatch.counts import counted
from ttsbatch.errors import SinkError
from ttsbatch.sinks import ledger
from ttsbatch.sinks.compact import whole_logs
from ttsbatch.sinks.findings import Findings
from ttsbatch.sinks.lock import in_use_by
from ttsbatch.sinks.names import AUDIO_EXTENSIONS
from ttsbatch.sinks.outdir import read_run
from ttsbatch.sinks.owner import in_use_by as writer_of
from ttsbatch.sinks.store import Store
from ttsbatch.sinks.store_files import StoreFiles
from ttsbatch.sinks.verify_failures import FailuresRead
from ttsbatch.sinks.verify_row import Checked, check_line
from ttsbatch.sinks.verify_shards import ShardFiles

_NUM_THREADS = 8  # opening a file waits on network file systems; on local ones it hardly does
_BLOCK_LINES = 128
_OURS = (*AUDIO_EXTENSIONS, ".npy")
_SHARDS = (".tar", ".parquet")

Line = tuple[int, int, bytes]  # number, offset, content


class OutputCheck:
    """What OUT holds, and what is wrong with it; all is read when it is made."""

    def __init__(self, out: Path, store: Store | None = None) -> None:
        """Check OUT.

        Args:
            out: the folder.
            store: where its audio is, if it is a copy without any of an OUT behind a URI.

        Raises:
            SinkError: not the output of a run, or the store does not answer.
        """
        run = read_run(out) if out.is_dir() else None
        if run is None:
            raise SinkError(f"{store or out}: has no run.json; expected the output of a run")
        self.out, self.run = out, run
        self.findings = Findings()
        self.in_use_by = in_use_by(out / "ledger") if store is None else writer_of(store)
        self.killed = (out / "ledger/session.json").exists()
        self.failures = FailuresRead()
        self._with_codes = bool(run["settings"].get("save_codes"))
        self._files = ShardFiles(out) if store is None else StoreFiles(out, store)
        self._named: set[bytes] = set()  # digests of the files that lines name
        self._left: set[bytes] = set()  # the same, of lines that the next run removes
        self._unledgered: dict[str, str] = {}  # id -> source; rows that the ledger doesn't have
        self._num_moved = 0
        self._read_ledger()
        if self.manifest_path.is_file():
            self._read_manifest()
        else:
            kind = "leftover" if self.killed else "ledger"
            self.findings.add(kind, None, f"{self.manifest_path.name} is not there")
        self._compare_with_ledger()
        self.failures.read(out / "failures.jsonl", self.is_made, self.findings, self.killed)
        self._find_orphans()
        self._unseen_unledgered = dict(self._unledgered)
        self._num_unseen = self.num_made

    # -- what the input is compared with

    @property
    def num_made(self) -> int:
        """Rows in the manifest, each id once."""
        return int(np.count_nonzero(self._line_at >= 0)) + len(self._unledgered)

    def is_made(self, utterance_id: str) -> bool:
        """Whether the manifest has the row."""
        found = self._find(utterance_id)
        if found is None:
            return utterance_id in self._unledgered
        return bool(self._line_at[found[1]] >= 0)

    def made_key(self, utterance_id: str) -> int | None:
        """The first half of the key that the row was made with, where the ledger has it."""
        found = self._find(utterance_id)
        return None if found is None else found[0]

    def mark_seen(self, utterance_id: str) -> None:
        """A made row that the input has; once for each."""
        if (found := self._find(utterance_id)) is not None:
            self._seen[found[1]] = True
        self._unseen_unledgered.pop(utterance_id, None)
        self._num_unseen -= 1

    @property
    def is_any_unseen(self) -> bool:
        """Whether made rows are left that were not marked as seen."""
        return self._num_unseen > 0

    def unseen(self) -> Iterator[tuple[str, str]]:
        """(id, source) of the made rows that were not marked as seen."""
        yield from self._unseen_unledgered.items()
        left = np.flatnonzero((self._line_at >= 0) & ~self._seen)
        if not len(left):
            return
        with self.manifest_path.open("rb") as file:
            for offset in self._line_at[left].tolist():
                file.seek(offset)
                row = check_line(self._files, file.readline(), with_codes=False)
                yield row.id or "", row.source

    # -- ledger

    def _read_ledger(self) -> None:
        self.manifest_path, commits, is_cut_short = whole_logs(self.out)
        if is_cut_short:
            self.findings.add("leftover", None, "the removal of replaced rows was cut short")
        none = np.zeros(0, ledger.RECORD)
        self._live, self._dead, self._last_shard = none, none, 0
        self._has_ledger = commits.exists()
        try:
            found = ledger.scan(commits, sys.maxsize)
            if found.size_bytes:
                self._live, self._dead, _ = ledger.live_rows(commits, found.size_bytes)
                self._last_shard = found.last_shard
        except SinkError as e:
            self._has_ledger = False
            self.findings.add("ledger", None, str(e))
        else:
            if self._has_ledger and (extra := commits.stat().st_size - found.size_bytes):
                kind = "leftover" if self.killed else "ledger"
                self.findings.add(
                    kind, None, f"{commits.name}: {counted(extra, 'byte')} torn at its end"
                )
        self._finished = ledger.Finished.of_live(self._live)
        self._line_at = np.full(len(self._live), -1, np.int64)
        self._seen = np.zeros(len(self._live), bool)

    def _find(self, utterance_id: str) -> tuple[int, int] | None:
        """(first half of the key, index of the live record)."""
        return self._finished.find(ledger.id_hash(utterance_id))

    # -- manifest

    def _read_manifest(self) -> None:
        records = np.concatenate([self._live, self._dead])
        committed = int((records["offset"] + records["length"]).max()) if len(records) else 0
        replaced = frozenset(self._dead["offset"].tolist())
        num_left = 0

        def lines() -> Iterator[Line]:
            nonlocal num_left
            for line in _lines(self.manifest_path):
                if line[1] in replaced or (self.killed and line[1] >= committed):
                    num_left += 1
                    paths = check_line(self._files, line[2], with_codes=False).paths
                    self._left.update(map(_digest, paths))
                else:
                    yield line

        for line, checked in _check_lines(self._files, lines(), self._with_codes):
            self._take(line, checked)
        if num_left:
            message = f"{counted(num_left, 'line')} of manifest.jsonl, replaced or not committed"
            self.findings.add("leftover", None, message)

    def _take(self, line: Line, checked: Checked) -> None:
        number, offset, content = line
        where = f"manifest.jsonl:{number}"
        found = None if checked.id is None else self._find(checked.id)
        if found is not None and self._line_at[found[1]] >= 0:
            self.findings.add("doubled", checked.id, f"{where}: its second line")
            return
        if checked.id in self._unledgered:
            self.findings.add("doubled", checked.id, f"{where}: its second line")
            return
        for kind, message in checked.problems:
            self.findings.add(kind, checked.id, f"{where}: {message}")
        doubled = self._name(checked)
        if doubled is not None:
            self.findings.add("doubled", checked.id, f"{where}: {doubled} is another row's too")
        if checked.id is None:
            return
        if found is None:
            self._unledgered[checked.id] = checked.source
            if self._has_ledger:
                self.findings.add("ledger", checked.id, f"{where}: the ledger lacks the row")
            return
        self._line_at[found[1]] = offset
        record = self._live[found[1]]
        self._num_moved += (offset, len(content)) != (record["offset"], record["length"])
        ours = int(record["num_samples"]), int(record["sample_rate_hz"])
        is_sound = all(kind == "unpublished" for kind, _ in checked.problems)
        if is_sound and ours != (checked.num_samples, checked.sample_rate_hz):
            message = f"{where}: the ledger says {counted(ours[0], 'sample')} at {ours[1]:,} Hz"
            self.findings.add("ledger", checked.id, message)

    def _name(self, checked: Checked) -> str | None:
        """Note the files of a line; returns one that an earlier line names."""
        doubled = None
        for path in checked.paths:
            digest = _digest(path)
            doubled = path if digest in self._named else doubled
            self._named.add(digest)
        return doubled

    def _compare_with_ledger(self) -> None:
        if not self._has_ledger and self._unledgered and not self.findings.count(["ledger"]):
            self.findings.add("ledger", None, "ledger/commits.bin is not there")
        if num_lost := int(np.count_nonzero(self._line_at < 0)):
            message = f"{counted(num_lost, 'finished row')} without a line in manifest.jsonl"
            self.findings.add("ledger", None, message)
        if self._num_moved:
            message = f"{counted(self._num_moved, 'line')} not where the ledger has them"
            self.findings.add("ledger", None, message)

    # -- files

    def _find_orphans(self) -> None:
        for path in self._files.names():
            if path.endswith(_OURS):
                self._check_named(path)
            elif path.count("/") == 1 and path.endswith(_SHARDS):
                self._check_shard(path)

    def _check_named(self, path: str) -> None:
        digest = _digest(path)
        if digest not in self._named and digest not in self._left:
            is_left = self.killed and _shard(path) >= self._last_shard
            kind = "leftover" if is_left else "orphan_file"
            self.findings.add(kind, None, f"{path}: no line names it")

    def _check_shard(self, path: str) -> None:
        """What is wrong with a shard as a whole, and rows in it that no line names."""
        if path not in self._files.problems:  # no line names any row of it
            try:
                self._files.content(path)
            except OSError as e:
                self.findings.add("torn_file", None, f"{path}: cannot be read: {e.strerror or e}")
                return
        problem, doubled = self._files.problems[path]
        if problem is not None:
            self.findings.add("torn_file", None, f"{path}: {problem}")
        for key in sorted(doubled):
            self.findings.add("doubled", None, f"{path}#{key}: is there twice")
        for member in self._files.members(path):
            self._check_named(f"{path}#{member}")


def _digest(path: str) -> bytes:
    return hashlib.blake2b(os.fsencode(path), digest_size=12).digest()


def _shard(path: str) -> int:
    number = re.match(r"(?:audio|codes)/shard-(\d+)[/.]", path)
    return int(number[1]) if number else -1


def _lines(path: Path) -> Iterator[Line]:
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield number, offset, line
            offset += len(line)


def _check_lines(
    files: ShardFiles, lines: Iterable[Line], with_codes: bool
) -> Iterator[tuple[Line, Checked]]:
    """The lines and what their files say, in order, several blocks at a time."""

    def check(block: list[Line]) -> list[tuple[Line, Checked]]:
        with files.at_hand(line[2] for line in block):
            return [(line, check_line(files, line[2], with_codes)) for line in block]

    blocks = _blocks(lines)
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        pending: deque[Future[Any]] = deque()
        for block in blocks:
            pending.append(pool.submit(check, block))
            if len(pending) > 2 * _NUM_THREADS:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()


def _blocks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    rest = iter(lines)
    while block := list(itertools.islice(rest, _BLOCK_LINES)):
        yield block
