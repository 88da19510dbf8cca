"""ShardSink: the finished rows of a run, into OUT, each exactly once whatever happens.

The order of a commit is the whole trick: files durable under temporary names, then their final
names, then the manifest lines, then the ledger. What the ledger holds is finished; whatever else
a crash left is removed by the next run, which makes those rows again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from ttsbatch.errors import SinkError
from ttsbatch.plan import RunPlan
from ttsbatch.sinks import ledger
from ttsbatch.sinks.compact import files_of
from ttsbatch.sinks.durable import (
    as_sink_error,
    remove_files,
    replace_file,
    sink_error,
    write_file,
)
from ttsbatch.sinks.encode import Encoded, Encoder
from ttsbatch.sinks.failures import FailureFile, count_failures
from ttsbatch.sinks.journal import Journal
from ttsbatch.sinks.keys import content_key, run_settings, settings_fingerprint
from ttsbatch.sinks.layout import Row
from ttsbatch.sinks.layouts import make_layout
from ttsbatch.sinks.lock import OutLock
from ttsbatch.sinks.manifest import manifest_line
from ttsbatch.sinks.mirror import Mirror, NoMirror
from ttsbatch.sinks.names import NameBook
from ttsbatch.sinks.outdir import check_settings, claim_folder, read_run
from ttsbatch.sinks.run_file import RunFile
from ttsbatch.sinks.totals import FLAG_FLAGGED, Spent, Totals
from ttsbatch.sinks.writer import GroupWriter
from ttsbatch.types import Failure, ModelCard, ShardRecord, Utterance

GROUP_SECONDS = 0.5  # the most that a kill can cost, in finished but uncommitted work
GROUP_ROWS = 256


class ShardSink:
    """OUT of one run; a context manager.

    Opening takes the lock, checks that OUT holds this run and puts right what a crash left.
    Methods are for one thread; encoding and writing happen on another.
    """

    def __init__(
        self,
        out: Path,
        plan: RunPlan,
        card: ModelCard,
        *,
        keep_old: bool = False,
        mirror: Mirror | None = None,
        group_seconds: float = GROUP_SECONDS,
        group_rows: int = GROUP_ROWS,
    ) -> None:
        """Open OUT.

        Args:
            out: the folder.
            plan: of the run.
            card: of its model.
            keep_old: a row that replaces another never takes its file's name, so that a kill
                leaves the old one or the new one.
            group_seconds: how long a finished row waits for others to be committed with.
            group_rows: the most rows of a commit.

        Raises:
            PlanError: OUT was begun with other settings; nothing in it was changed.
            SinkError: OUT is in use, somebody else's, damaged, or cannot be written.
        """
        self.out = out
        self.stage_seconds = {"encode": 0.0, "write": 0.0}
        self.on_span: Callable[[str, float], None] | None = None  # told of busy times as they end
        self.num_written = self.num_flagged = 0  # the flagged ones of those
        self._mirror = mirror or NoMirror()
        self.name = self._mirror.name or str(out)
        self._model = card.name
        # Behind a URI an object is never overwritten: what a crash leaves is the old or the new.
        self._keep_old = keep_old or self._mirror.name is not None
        settings = run_settings(plan, card)
        self._fingerprint = settings_fingerprint(settings)
        folder = claim_folder(out)
        self._temp_folder = folder / "tmp"
        self._journal = Journal(out, folder, self._temp_folder)
        self._lock = OutLock(folder)
        try:
            self._open(plan, card, settings)
        except OSError as e:
            self._lock.release()
            raise sink_error(e, out) from e
        except BaseException:
            self._lock.release()
            raise
        self._writer = GroupWriter(
            self._commit, min(group_rows, ledger.MAX_GROUP_ROWS), group_seconds
        )

    def _open(self, plan: RunPlan, card: ModelCard, settings: dict[str, object]) -> None:
        run = read_run(self.out)
        if run is not None and run["settings"] != settings and self._journal.has_rows():
            check_settings(self.name, run, settings, card.name)
        self._lock.sign()
        self._temp_folder.mkdir(exist_ok=True)
        remove_files([p for p in self._temp_folder.iterdir() if p.is_file()], self._temp_folder)
        self._run_file = RunFile(self.out, self._temp_folder, plan, card)
        self._run_file.begin(run, settings)
        for name in ("manifest.jsonl", "failures.jsonl"):
            if not (self.out / name).exists():
                write_file(self.out / name, b"")
        self.names = NameBook()
        self._layout = make_layout(
            plan, self.out, self._temp_folder, self.names, card.sample_rate_hz
        )
        self._encoder = Encoder(plan.audio)
        self._failures = FailureFile(self.out / "failures.jsonl", self._temp_folder)
        journal = self._journal
        journal.finish_compaction()
        journal.read()
        if journal.num_replaced:
            journal.cut()
            self._compact()
            journal.read()
        lines = journal.lines_of_last_shard()
        journal.cut()
        self._mirror.bring_open_shards(journal.last_shard)
        self._layout.recover(journal.last_shard, lines, journal.lines_of)
        self._mirror.opened()
        self._lost: dict[int, str] = {}  # position in the ledger -> audio path
        self._num_withdrawn = 0
        self._to_withdraw: list[tuple[int, int]] = []

    def _compact(self) -> None:
        self._mirror.committed()
        self._mirror.settle()  # so that the store too knows that the rows are no more
        self._journal.compact(self._mirror)
        self._mirror.committed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # On the way out of an error, that error is the one to show, not a second one from here.
        with contextlib.suppress(SinkError) if error is not None else contextlib.nullcontext():
            self.close()

    # -- what is finished

    @property
    def totals(self) -> Totals:
        """Of all rows that are committed, of every session."""
        return self._journal.totals

    @property
    def session(self) -> int:
        """This session's number."""
        return self._journal.session

    @property
    def num_finished(self) -> int:
        """Rows that were finished when OUT was opened."""
        return len(self._journal.finished)

    def key_of(self, utterance: Utterance) -> str:
        """The resume key of a row under this run's settings, for its ShardRecord."""
        return content_key(utterance, self._fingerprint)

    def is_finished(self, utterance: Utterance) -> bool:
        """Whether an earlier session made this very row: same id, content and settings."""
        found = self._journal.finished.find(ledger.id_hash(utterance.id))
        if found is None or found[1] in self._lost:
            return False
        return found[0] == ledger.key_hash(self.key_of(utterance))[0]

    def is_flagged(self, utterance_id: str) -> bool:
        """Whether an earlier session made a row of this id, and flagged it."""
        found = self._journal.finished.find(ledger.id_hash(utterance_id))
        return found is not None and self._journal.is_flagged(found[1])

    def has(self, utterance_id: str) -> bool:
        """Whether an earlier session made a row of this id, whatever it said, and it is whole."""
        found = self._journal.finished.find(ledger.id_hash(utterance_id))
        return found is not None and found[1] not in self._lost

    def find_lost(self) -> list[str]:
        """Audio paths of finished rows whose files are gone or cut short.

        From now on those rows count as not finished.

        Raises:
            SinkError: the manifest was changed by hand.
        """
        with as_sink_error(self.out):
            if size_of := self._mirror.list_files(self._journal.last_shard):
                self._layout.size_of = size_of
            self._lost = self._journal.find_lost(self._layout.is_whole)
            self._mirror.remove_strays()
        return list(self._lost.values())

    def line_of(self, utterance_id: str) -> dict[str, Any] | None:
        """The manifest line of a finished row, or None."""
        found = self._journal.finished.find(ledger.id_hash(utterance_id))
        return None if found is None else self._journal.line_at(found[1])

    # -- rows that are not made

    @property
    def num_rejected(self) -> int:
        """Rejected rows of this session's corpus."""
        return self._failures.num_rejected

    @property
    def num_failed(self) -> int:
        """Rows that failed in this session."""
        return self._failures.num_failed

    def listed_failures(self) -> tuple[int, int]:
        """(rejected, failed) rows that failures.jsonl lists, of whichever session."""
        return count_failures(self._failures.path)

    @property
    def changed(self) -> bool:
        """Whether this session wrote anything."""
        return self.num_written > 0 or self._num_withdrawn > 0 or self._failures.changed

    def reject(self, failures: Iterable[Failure]) -> int:
        """Write the rejects of the whole corpus; the iterator is pulled once, to its end.

        A finished row that is rejected now is taken out: an id is in one place.

        Returns:
            Their number.

        Raises:
            SinkError: failures.jsonl cannot be written.
        """
        num = self._failures.reject(self._withdrawing(failures))
        self._mirror.rejected()
        return num

    def _withdrawing(self, failures: Iterable[Failure]) -> Iterator[Failure]:
        for failure in failures:
            if failure.reason != "duplicate_id":
                self._withdraw_later(failure.utterance_id)
            yield failure
        self._run_file.corpus_is_read()
        self._withdraw()  # before their lines get their name: an id missing is no id doubled

    def fail(self, failure: Failure) -> None:
        """Add a row that failed as it was made; it is tried again by the next session.

        An older version of the row is taken out: it is not what the corpus says any more.

        Raises:
            SinkError: failures.jsonl, or a row that is queued, cannot be written.
        """
        self._withdraw_later(failure.utterance_id)
        if self._to_withdraw:
            self._writer.flush()
            self._withdraw()  # before the line, as in `reject`
        with as_sink_error(self._failures.path):
            self._failures.fail(failure)

    def _withdraw_later(self, utterance_id: str | None) -> None:
        if utterance_id is not None:
            hashed = ledger.id_hash(utterance_id)
            if self._journal.finished.find(hashed) is not None:
                self._to_withdraw.append(hashed)

    def _withdraw(self) -> None:
        """Take rows out of the ledger, while the writer has nothing to do."""
        for i in range(0, len(self._to_withdraw), ledger.MAX_GROUP_ROWS):
            hashes = self._to_withdraw[i : i + ledger.MAX_GROUP_ROWS]
            with as_sink_error(self._journal.commits_path):
                self._journal.write_gone(hashes)
            for hashed in hashes:
                self._journal.take_off(hashed)
            self._mirror.committed()
        self._num_withdrawn += len(self._to_withdraw)
        self._to_withdraw.clear()

    # -- rows that are made

    def write(self, record: ShardRecord, spent: Spent = Spent()) -> None:
        """Queue a finished row.

        Raises:
            SinkError: this or an earlier row could not be written.
        """
        self._run_file.row_comes()
        self._writer.put((record, spent), record.samples.nbytes)

    def flush(self) -> None:
        """Wait until every row so far is committed; `totals` then hold them.

        Raises:
            SinkError: a row could not be written.
        """
        self._writer.flush()
        self._withdraw()
        self._mirror.settle()

    def live_lines(self) -> Iterator[bytes]:
        """The manifest lines of all rows that are made, replaced ones left out. After `flush` only.

        Raises:
            SinkError: manifest or ledger cannot be read.
        """
        with as_sink_error(self._journal.manifest_path):
            yield from self._journal.live_lines()

    def note_session(self) -> None:
        """Put this session into the ledger even if it has made no row. After `flush` only.

        Raises:
            SinkError: the ledger cannot be written.
        """
        with as_sink_error(self._journal.commits_path):
            self._journal.note_session()

    def replace(self, name: str, data: bytes) -> None:
        """Write a file at the top of OUT as a whole, such as report.json.

        Raises:
            SinkError: it cannot be written.
        """
        with as_sink_error(self.out / name):
            replace_file(self.out / name, data, self._temp_folder)

    def close(self) -> None:
        """Commit what is queued, take replaced rows out, and free the lock.

        Raises:
            SinkError: a row could not be written. What was committed before stays valid.
        """
        ended = False
        try:
            with as_sink_error(self.out):
                self._writer.close()
                self._withdraw()
                self._layout.finish()
                if self._journal.num_replaced:
                    self._compact()
                self._failures.forget_old()
            self._mirror.finish()
            ended = True
        finally:
            self._encoder.close()
            self._journal.close()
            self._lock.release(ended)

    # -- the writer thread

    def _commit(self, group: list[tuple[ShardRecord, Spent]]) -> None:
        start = time.perf_counter()
        encoded = self._encoder.encode([record for record, _ in group])
        encoded_at = time.perf_counter()
        self._count("encode", encoded_at - start)
        with as_sink_error(self.out):
            self._commit_group(
                [(row, spent) for row, (_, spent) in zip(encoded, group, strict=True)]
            )
        self._count("write", time.perf_counter() - encoded_at)

    def _count(self, stage: str, seconds: float) -> None:
        self.stage_seconds[stage] += seconds
        if self.on_span is not None:
            self.on_span(stage, seconds)

    def _commit_group(self, group: list[tuple[Encoded, Spent]]) -> None:
        rows, old = [], []
        for encoded, _ in group:
            files = self._old_files(encoded.record)
            placed = self._layout.place(encoded.record, files if self._keep_old else ())
            line = manifest_line(
                encoded.record,
                self._model,
                placed.audio_path,
                placed.codes_path,
                len(encoded.audio),
            )
            rows.append(Row(encoded, placed, line))
            old.append(files)
        self._layout.stage(rows)
        overwritten = [
            ledger.id_hash(row.encoded.record.utterance.id)
            for row, files in zip(rows, old, strict=True)
            if not files.isdisjoint({row.placed.audio_path, row.placed.codes_path})
        ]
        self._journal.write_gone(overwritten)
        self._layout.publish()
        records = self._journal.write_made(rows, [spent for _, spent in group])
        self._layout.settle()
        for row, files in zip(rows, old, strict=True):
            if files:
                self._journal.take_off(ledger.id_hash(row.encoded.record.utterance.id))
        self._journal.totals.add(records)
        self.num_written += len(rows)
        self.num_flagged += int(np.count_nonzero(records["flags"] & FLAG_FLAGGED))
        self._mirror.committed()

    def _old_files(self, record: ShardRecord) -> set[str]:
        """The files of the row that a record replaces; none where it replaces none."""
        line = self.line_of(record.utterance.id)
        return set() if line is None else set(files_of(line))
