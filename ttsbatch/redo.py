"""redo_rows(): single rows of an OUT, or one piece of a row, spoken again and put in their place.

The settings are those of run.json; a row is the one that the corpus has. Its key stays, so the
next `synth` takes the new audio for finished. The old version is there until the new one is
committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ttsbatch.corpus.find import find_rows
from ttsbatch.corpus.open import STDIN
from ttsbatch.errors import CorpusError, PlanError, SinkError
from ttsbatch.pipeline import Load, open_plan, standing_by, timed_load
from ttsbatch.plan import EnginePlan, RunPlan
from ttsbatch.production import Production, cut
from ttsbatch.progress import Progress, Tally
from ttsbatch.quality.extras import Measuring, load_extras
from ttsbatch.report import Ended, Meter, finish_report
from ttsbatch.sinks.failures import REJECTING_STAGES
from ttsbatch.sinks.manifest import last_lines
from ttsbatch.sinks.outdir import read_run
from ttsbatch.sinks.remote import OpenOut, name_of, opened_for_writing
from ttsbatch.sinks.shards import ShardSink
from ttsbatch.sinks.totals import Spent
from ttsbatch.stop import Stop
from ttsbatch.text.duration import expected_seconds
from ttsbatch.types import Demand, EngineStats, Failure, Segment, ShardRecord, Utterance


@dataclass(frozen=True, slots=True)
class Redo:
    """What is to be made again."""

    ids: tuple[str, ...]
    seed: int | None = None  # None: the next take of the seed that the row has
    segment: int | None = None  # the only piece to speak anew; None: all


@dataclass(slots=True)
class Redone:
    """What came of it."""

    lines: list[dict[str, Any]] = field(default_factory=list)  # of the manifest, the new ones
    problems: dict[str, str] = field(default_factory=dict)  # id -> why it is as it was


@dataclass(frozen=True, slots=True)
class _Task:
    """One row, and how its pieces are drawn."""

    row: Utterance  # as the corpus has it: what the key is made of
    spoken: Utterance  # the same with the seed that it gets
    seed: int  # of the pieces that are spoken anew
    first_attempt: int  # of those
    num_before: int  # takes that the row has had with its seed
    segment: int | None
    old: tuple[Mapping[str, Any], ...]  # the manifest's segments, where a piece is kept

    def pieces(self, attempt: int) -> list[Segment]:
        """The pieces to speak; a kept one is drawn as it was."""
        pieces = []
        for piece in cut(self.spoken):
            seed, take = self.seed, self.first_attempt + attempt
            if self.is_kept(piece.index):
                seed, take = _draw_of(self.old[piece.index], self.spoken.seed)
            utterance = replace(self.spoken, seed=seed)
            pieces.append(replace(piece, utterance=utterance, attempt=take))
        return pieces

    def is_kept(self, index: int) -> bool:
        """Whether a piece is to sound as it did."""
        return self.segment is not None and index != self.segment

    def strayed(self, record: ShardRecord) -> list[int]:
        """The kept pieces that did not come out as they were."""
        return [
            i
            for i, note in enumerate(record.segments)
            if self.is_kept(i)
            and (note.num_samples, note.finish_reason)
            != (self.old[i]["num_samples"], self.old[i]["finish_reason"])
        ]


def redo_rows(
    out: Path | str,
    redo: Redo,
    progress: Progress,
    stop: Stop | None = None,
    engine: EnginePlan | None = None,
    load: Load | None = None,
) -> Redone:
    """Make rows of an OUT again; the others stay as they are.

    Args:
        out: the output of a run: a folder, or its URI.
        redo: which rows, and how.
        progress: told of phases and rows.
        stop: ends it early when asked.
        engine: device, dtype and slots, in place of run.json's.
        load: makes the speaker, in place of `open_speaker`.

    Returns:
        The new manifest lines, and the problems of the rows that stay as they were.

    Raises:
        PlanError: an id that neither OUT nor its corpus has; a segment that a row has not.
        TTSBatchError: as `synthesize`. Nothing was changed, but for rows committed before.
    """
    stop = stop or Stop()
    with opened_for_writing(out, is_new=False) as opened:
        return _redo(opened, name_of(out), redo, progress, stop, engine, load)


def _redo(
    opened: OpenOut,
    name: str,
    redo: Redo,
    progress: Progress,
    stop: Stop,
    engine: EnginePlan | None,
    load: Load | None,
) -> Redone:
    out = opened.folder
    run = read_run(out) if out.is_dir() else None
    if run is None:
        raise SinkError(f"{name}: has no run.json; expected the output of a run")
    plan = RunPlan.from_json(run.get("plan"))
    if engine is not None:
        plan = replace(plan, engine=engine)
    if STDIN in plan.corpus.sources:
        raise CorpusError(
            "-: the corpus came from stdin and was not kept; its rows cannot be redone"
        )
    card = open_plan(plan)
    redone = Redone()
    with ExitStack() as stack:
        sink = stack.enter_context(ShardSink(out, plan, card, keep_old=True, mirror=opened.mirror))
        standby = stack.enter_context(standing_by(card, plan, load))
        progress.phase("finding rows")
        lines = {row_id: sink.line_of(row_id) for row_id in redo.ids}
        found = find_rows(plan, card, {i: _place(lines[i]) for i in redo.ids}, sink.is_finished)
        listed = _failures(out / "failures.jsonl", {i for i in redo.ids if lines[i] is None})
        tasks = _tasks(redo, sink, lines, found, listed, redone.problems)
        meter, tally, stats = Meter(), Tally(), EngineStats()
        tally.rows = len(tasks)
        tally.expected_s = sum(
            expected_seconds(task.spoken.spoken_text, task.spoken.language)
            for task in tasks.values()
        )
        ended: Ended = "failed"
        try:
            if tasks and not stop.requested:
                progress.phase(f"loading {card.name}")
                demand = Demand(
                    num_parallel=sum(len(task.pieces(0)) for task in tasks.values()),
                    steps=frozenset(task.row.sampling.steps for task in tasks.values()),
                )
                measuring = None
                if extras := load_extras(plan.checks):
                    measuring = stack.enter_context(Measuring(extras))
                speaker = timed_load(card, plan, load, meter, demand, standby)
                stack.callback(speaker.close)
                stats = speaker.stats
                rows = _RedoSink(sink, tasks, redone.problems)
                Production(
                    plan.output,
                    speaker,
                    rows,
                    meter,
                    tally,
                    progress,
                    stop,
                    lambda u, attempt: tasks[u.id].pieces(attempt),
                    measuring,
                ).run(task.spoken for task in tasks.values())
            ended = "interrupted" if stop.requested else "finished"
        except KeyboardInterrupt:
            ended = "interrupted"
            raise
        finally:
            finish_report(sink, meter, stats, ended, whole_corpus=False)
    redone.lines = [json.loads(x) for x in last_lines(out / "manifest.jsonl", sink.num_written)]
    return redone


class _RedoSink:
    """Rows under their own key, with all their takes counted; a row that fails stays."""

    def __init__(self, sink: ShardSink, tasks: dict[str, _Task], problems: dict[str, str]) -> None:
        self._sink, self._tasks, self._problems = sink, tasks, problems

    def key_of(self, utterance: Utterance) -> str:
        """Of the row as the corpus has it, whatever seed it is spoken with."""
        return self._sink.key_of(self._tasks[utterance.id].row)

    def write(self, record: ShardRecord, spent: Spent) -> None:
        """Commit a row whose kept pieces are what they were."""
        task = self._tasks[record.utterance.id]
        if strayed := task.strayed(record):
            self._problems[task.row.id] = (
                f"stays as it was: piece {', '.join(map(str, strayed))} did not come out again as "
                "it was (the device, its slots or the version differ); redo the whole row"
            )
            return
        self._sink.write(replace(record, attempts=task.num_before + record.attempts), spent)

    def flush(self) -> None:
        """As the sink's."""
        self._sink.flush()

    def fail(self, failure: Failure) -> None:
        """Say why a row stays as it was."""
        assert failure.utterance_id is not None
        self._problems[failure.utterance_id] = (
            f"stays as it was: {failure.reason}: {failure.message}"
        )


def _tasks(
    redo: Redo,
    sink: ShardSink,
    lines: Mapping[str, dict[str, Any] | None],
    found: Mapping[str, Utterance | Failure],
    listed: Mapping[str, dict[str, Any]],
    problems: dict[str, str],
) -> dict[str, _Task]:
    tasks: dict[str, _Task] = {}
    for row_id in redo.ids:
        line, row = lines[row_id], found.get(row_id)
        if line is None and row is None and row_id not in listed:
            raise PlanError(f"--id {row_id!r}: neither {sink.name} nor its corpus has such a row")
        if row_id in listed and line is None:
            failure = listed[row_id]
            verb = "was rejected" if failure["stage"] in REJECTING_STAGES else "failed"
            problems[row_id] = (
                f"{verb}, so there is nothing to redo: {failure['reason']}: {failure['message']}"
            )
        elif line is None:
            problems[row_id] = "is not made yet; the synth command makes it"
        elif row is None:
            problems[row_id] = "stays as it was: the corpus of run.json does not have it any more"
        elif isinstance(row, Failure):
            problems[row_id] = f"stays as it was: {row.source}:{row.line}: {row.message}"
        elif redo.segment is None:
            tasks[row_id] = _whole(redo, row, line, is_edited=not sink.is_finished(row))
        elif not sink.is_finished(row):
            problems[row_id] = "stays as it was: it was edited since, so its pieces are others"
        else:
            tasks.update(_one_piece(redo.segment, redo, row, line, problems))
    return tasks


def _whole(redo: Redo, row: Utterance, line: Mapping[str, Any], is_edited: bool) -> _Task:
    if redo.seed is not None or is_edited:
        seed = row.seed if redo.seed is None else redo.seed
        return _Task(row, replace(row, seed=seed), seed, 0, 0, None, ())
    seed, before = line["seed"], _num_takes(line)
    return _Task(row, replace(row, seed=seed), seed, before, before, None, ())


def _one_piece(
    segment: int,
    redo: Redo,
    row: Utterance,
    line: Mapping[str, Any],
    problems: dict[str, str],
) -> dict[str, _Task]:
    old = line["segments"]
    if not 0 <= segment < len(old):
        have = "one piece" if len(old) == 1 else f"{len(old)} pieces"
        raise PlanError(
            f"--segment is {segment}; {row.id!r} has {have}, expected 0 to {len(old) - 1}"
        )
    spoken = replace(row, seed=line["seed"])
    is_drawn = all("attempt" in s and "num_samples" in s for s in old)
    if not is_drawn or [s["text"] for s in old] != [p.text for p in cut(spoken)]:
        problems[row.id] = (
            "stays as it was: it was made by a version that cut it otherwise; redo the whole row"
        )
        return {}
    before = _num_takes(line)
    if redo.seed is None:
        seed, first = _draw_of(old[segment], spoken.seed)[0], before
    else:
        seed, first = redo.seed, 0
    return {row.id: _Task(row, spoken, seed, first, before, segment, tuple(old))}


def _draw_of(segment: Mapping[str, Any], row_seed: int) -> tuple[int, int]:
    """(seed, attempt) that a piece of the manifest was drawn with."""
    return segment.get("seed", row_seed), segment["attempt"]


def _num_takes(line: Mapping[str, Any]) -> int:
    """Takes so far: the next one's number."""
    takes: list[int] = [s.get("attempt", 0) + 1 for s in line["segments"]]
    takes.append(line["attempts"])
    return max(takes)


def _place(line: Mapping[str, Any] | None) -> tuple[str, int] | None:
    return None if line is None else (line["source"], line["line"])


def _failures(path: Path, ids: set[str]) -> dict[str, dict[str, Any]]:
    """The lines of failures.jsonl that have one of these ids and are no later duplicates."""
    found: dict[str, dict[str, Any]] = {}
    if not ids:
        return found
    with path.open("rb") as file:
        for line in file:
            row = json.loads(line)
            if row["id"] in ids and row["reason"] != "duplicate_id":
                found.setdefault(row["id"], row)
    return found
