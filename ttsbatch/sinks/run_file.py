"""RunFile: run.json of an open OUT, which holds the plan of the last run that wrote to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ttsbatch.plan import RunPlan
from ttsbatch.sinks.durable import as_sink_error, replace_file
from ttsbatch.sinks.outdir import plan_of, run_json
from ttsbatch.types import ModelCard


class RunFile:
    """Takes the plan of a session, once it is known to be one that works.

    A corpus that cannot be read leaves the plan of the run before. How the model runs and how
    large shards are says nothing of rows that are there, so a change of these alone waits for the
    first row, and a rerun with nothing to do changes no byte.
    """

    def __init__(self, out: Path, temp_folder: Path, plan: RunPlan, card: ModelCard) -> None:
        self._path, self._temp_folder = out / "run.json", temp_folder
        self._plan, self._card = plan, card
        self._next: bytes | None = None  # what it is to be
        self._reads_otherwise = self._is_corpus_read = False

    def begin(self, run: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> None:
        """Write it at once if there is none, or one that has other settings and made nothing.

        Args:
            run: what it is now.
            settings: what must not change between the sessions of one OUT.

        Raises:
            OSError: it cannot be written.
        """
        plan = self._plan
        if run is None or run["settings"] != settings:
            replace_file(self._path, run_json(plan, self._card, settings), self._temp_folder)
            return
        old = plan_of(run)
        if old != plan:
            self._next = run_json(plan, self._card, settings, run.get("created"))
            as_now = old and replace(old, engine=plan.engine, output=plan.output)
            self._reads_otherwise = as_now != plan

    def corpus_is_read(self) -> None:
        """The plan's corpus was read to its end; SinkError if run.json cannot be written."""
        self._is_corpus_read = True
        if self._reads_otherwise:
            self._put()

    def row_comes(self) -> None:
        """A row of the session is made; SinkError if run.json cannot be written.

        Rows that come before the corpus is read are those of `redo`, whose device is for once.
        """
        if self._is_corpus_read:
            self._put()

    def _put(self) -> None:
        if self._next is not None:
            with as_sink_error(self._path):
                replace_file(self._path, self._next, self._temp_folder)
            self._next = None
