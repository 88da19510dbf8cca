"""peek(): what a run would find in OUT, without a byte written and without the lock.

It refuses what `ShardSink` would, and tells rows that are finished as it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ttsbatch.plan import RunPlan
from ttsbatch.sinks import ledger, tar
from ttsbatch.sinks.compact import whole_logs
from ttsbatch.sinks.durable import as_sink_error
from ttsbatch.sinks.keys import content_key, run_settings, settings_fingerprint
from ttsbatch.sinks.layout import Layout
from ttsbatch.sinks.layouts import make_layout
from ttsbatch.sinks.listing import Listing
from ttsbatch.sinks.lock import in_use_by, in_use_error
from ttsbatch.sinks.lost import find_lost
from ttsbatch.sinks.names import NameBook
from ttsbatch.sinks.outdir import check_settings, claim_folder, read_run
from ttsbatch.sinks.owner import in_use_by as writer_of
from ttsbatch.sinks.packed import split_packed, spool_path
from ttsbatch.sinks.remote import check_ours, name_of, opened_for_reading
from ttsbatch.sinks.store import Store
from ttsbatch.sinks.store_mirror import NUM_UPLOADS
from ttsbatch.types import ModelCard, Utterance


def peek(out: Path | str, plan: RunPlan, card: ModelCard) -> Peek:
    """What OUT, a folder or a URI, holds of a run; it need not exist.

    Raises:
        PlanError: OUT was begun with other settings.
        SinkError: OUT is in use, somebody else's, damaged, or could not be written.
    """
    with opened_for_reading(out) as (folder, store):
        if store is None:
            claim_folder(folder, make=False)
            holder = in_use_by(folder / "ledger")
        else:
            check_ours(store, is_new=True)
            holder = writer_of(store)
        if holder is not None:
            raise in_use_error(name_of(out), holder)
        with as_sink_error(folder):
            return Peek(folder, store, plan, card, name_of(out))


class Peek:
    """The finished rows of an OUT; all is read when it is made."""

    def __init__(
        self, folder: Path, store: Store | None, plan: RunPlan, card: ModelCard, name: str
    ) -> None:
        """Read the ledger, and look at the size of every row's files.

        Args:
            folder: OUT, or a copy without audio of one in a store.
            store: where its audio is then.
            plan: of the run to come.
            card: of its model.
            name: OUT in messages.

        Raises:
            PlanError: rows were made with other settings.
            SinkError: a damaged ledger, or a manifest that was changed by hand.
        """
        settings = run_settings(plan, card)
        self._fingerprint = settings_fingerprint(settings)
        manifest, commits, _ = whole_logs(folder)
        found = ledger.scan(commits, manifest.stat().st_size if manifest.exists() else 0)
        run = read_run(folder)
        if run is not None and run["settings"] != settings and len(found.finished):
            check_settings(name, run, settings, card.name)
        live = np.zeros(0, ledger.RECORD)
        if found.size_bytes:
            live, _, _ = ledger.live_rows(commits, found.size_bytes)
        self._finished = ledger.Finished.of_live(live)
        layout = make_layout(plan, folder, folder / "ledger/tmp", NameBook(), card.sample_rate_hz)
        self._lost: set[int] = set()  # offsets of their manifest lines
        if store is not None:
            layout.size_of = _listing(store).size_of
        is_whole = _Waiting(folder / "ledger", layout, plan.audio.file_format.extension).is_whole
        for position in find_lost(manifest, commits, found.size_bytes, is_whole):
            self._lost.add(int(ledger.read_record(commits, position)[0]["offset"]))
        self._offsets = live["offset"]

    def has(self, utterance_id: str) -> bool:
        """Whether a row of this id is made, whatever it said, and whole."""
        found = self._finished.find(ledger.id_hash(utterance_id))
        return found is not None and int(self._offsets[found[1]]) not in self._lost

    def is_finished(self, utterance: Utterance) -> bool:
        """Whether this very row is made and whole: same id, content and settings."""
        found = self._finished.find(ledger.id_hash(utterance.id))
        if found is None or int(self._offsets[found[1]]) in self._lost:
            return False
        return found[0] == ledger.key_hash(content_key(utterance, self._fingerprint))[0]


def _listing(store: Store) -> Listing:
    with ThreadPoolExecutor(NUM_UPLOADS) as pool:

        def on_threads(call: Callable[[str], None], names: Iterable[str]) -> None:
            for _ in pool.map(call, names):
                pass

        return Listing(store, on_threads, 0)


class _Waiting:
    """A layout's look at files, and at the rows of tar and Parquet that wait for their shard.

    The layout itself reads those as it recovers, which changes files.
    """

    def __init__(self, ledger_folder: Path, layout: Layout, extension: str) -> None:
        self._ledger_folder, self._layout, self._extension = ledger_folder, layout, extension
        self._shard, self._keys = "", frozenset[str]()

    def is_whole(
        self, audio_path: str, num_samples: int, num_bytes: int | None, line: bytes
    ) -> bool:
        if (packed := split_packed(audio_path)) is not None:
            shard, member = packed
            if shard != self._shard:  # rows come in the order of the shards
                path = spool_path(self._ledger_folder, shard)
                rows = tar.read_index(path).rows if path.exists() else []
                self._shard, self._keys = shard, frozenset(row.key for row in rows)
            if member.removesuffix(self._extension) in self._keys:
                return True
        return self._layout.is_whole(audio_path, num_samples, num_bytes, line)
