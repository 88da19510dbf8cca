"""synthesize(): the outer loop, corpus to shards.

Two passes over the corpus. The first checks every row and writes the rejects before a model is
loaded; the second produces what is not finished yet (`production.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ttsbatch.corpus.open import spooled_stdin
from ttsbatch.corpus.references import References
from ttsbatch.corpus.rows import check_defaults
from ttsbatch.corpus.scan import scan
from ttsbatch.counts import counted
from ttsbatch.errors import EngineError, PlanError
from ttsbatch.judging import Judges, num_judges
from ttsbatch.loading import open_speaker, stand_by
from ttsbatch.models import check_engine_plan, open_card
from ttsbatch.models.protocol import Speaker
from ttsbatch.plan import RunPlan, check_rate
from ttsbatch.production import Production
from ttsbatch.progress import Progress, Tally
from ttsbatch.quality.extras import Measuring, check_extras, load_extras
from ttsbatch.reasons import Reasons
from ttsbatch.report import Ended, Meter, RunReport, finish_report
from ttsbatch.sinks.remote import opened_for_writing
from ttsbatch.sinks.shards import ShardSink
from ttsbatch.stop import Stop
from ttsbatch.text.duration import expected_seconds
from ttsbatch.text.segment import SEGMENT_S
from ttsbatch.timeline import Timeline
from ttsbatch.types import (
    Demand,
    EngineStats,
    Failure,
    ModelCard,
    Utterance,
)
from ttsbatch.workers.standby import Standby

_MOST_SHOWN = 10  # rows that are told of one by one

Load = Callable[[ModelCard, RunPlan], Speaker]


def open_plan(plan: RunPlan) -> ModelCard:
    """The card of the plan's model, once all options are known to fit it.

    Raises:
        PlanError: an option that the model has no use for.
        ModelError: no such model.
    """
    card = open_card(plan.model)
    check_defaults(plan.rows, card, plan.corpus.unsupported_language)
    check_engine_plan(card, plan.engine)
    rate_hz = plan.audio.rate_of(card.sample_rate_hz)
    check_rate(plan.audio, rate_hz, f"the sample rate of {card.name}")
    if plan.output.save_codes and not card.num_codebooks:
        raise PlanError(f"--save-codes: {card.name} has no codec codes")
    if plan.checks.speaker is not None and "ref_audio" not in card.options:
        raise PlanError(f"--check-speaker: {card.name} clones no references")
    check_extras(plan.checks)
    return card


def synthesize(
    plan: RunPlan,
    out: Path | str,
    progress: Progress,
    stop: Stop | None = None,
    load: Load | None = None,
    timeline: Timeline | None = None,
    reasons: Reasons | None = None,
) -> RunReport:
    """Make every row of the corpus that `out` does not hold yet.

    Args:
        plan: what to make.
        out: the output folder, or its URI; one that holds the same run is resumed.
        progress: told of phases, rows and warnings.
        stop: ends the run early when asked.
        load: makes the speaker, in place of `open_speaker`.
        timeline: gathers when each stage was busy.
        reasons: gathers why rows were rejected or failed.

    Raises:
        TTSBatchError: the run as a whole cannot go on; what was committed stays.
    """
    stop = stop or Stop()
    card = open_plan(plan)
    with ExitStack() as stack:
        stdin = stack.enter_context(spooled_stdin(plan.corpus.sources))
        opened = stack.enter_context(opened_for_writing(out))
        sink = stack.enter_context(ShardSink(opened.folder, plan, card, mirror=opened.mirror))
        standby = stack.enter_context(standing_by(card, plan, load))
        meter, tally = Meter(), Tally(reasons=reasons or Reasons())
        corpus = _Corpus(plan, card, sink, meter, tally, stdin, stop)
        progress.phase("checking rows")
        _say_what_is_lost(sink.find_lost(), progress)
        corpus.validate(progress)
        stats = EngineStats()
        ended: Ended = "failed"
        try:
            if tally.rows > tally.finished_before and not stop.requested:
                measuring = None
                if extras := load_extras(plan.checks):
                    measuring = stack.enter_context(Measuring(extras))
                progress.phase(f"loading {card.name}")
                speaker = timed_load(card, plan, load, meter, tally.demand, standby)
                stack.callback(speaker.close)
                stats = speaker.stats
                if timeline is not None:
                    stats.on_span = sink.on_span = timeline.add
                judges = stack.enter_context(Judges(num_judges(stats.devices)))
                production = Production(
                    plan.output,
                    speaker,
                    sink,
                    meter,
                    tally,
                    progress,
                    stop,
                    measuring=measuring,
                    judges=judges,
                )
                production.run(corpus.todo())
                if tally.done < tally.rows and not stop.requested:
                    raise EngineError(
                        f"{counted(tally.rows - tally.done, 'row')} of the corpus not reached; "
                        "the same command makes the rest"
                    )
            ended = "interrupted" if stop.requested else "finished"
        except KeyboardInterrupt:
            ended = "interrupted"
            raise
        finally:
            report = finish_report(sink, meter, stats, ended, corpus.is_checked)
        return report


@contextmanager
def standing_by(card: ModelCard, plan: RunPlan, load: Load | None) -> Iterator[Standby | None]:
    """The processes that `timed_load` will need, where it needs any; those not taken end."""
    standby = stand_by(card, plan.engine) if load is None else None
    try:
        yield standby
    finally:
        if standby is not None:
            standby.close()


def timed_load(
    card: ModelCard,
    plan: RunPlan,
    load: Load | None,
    meter: Meter,
    demand: Demand,
    standby: Standby | None,
) -> Speaker:
    """Load the plan's model for rows that ask this of it; the time goes to the meter."""
    started = time.perf_counter()
    if load is None:
        speaker = open_speaker(card, plan.engine, plan.output.save_codes, demand, standby=standby)
    else:
        speaker = load(card, plan)
    elapsed = time.perf_counter() - started
    known = speaker.stats.stage_seconds
    meter.load_s = max(0.0, elapsed - known.get("load", 0.0) - known.get("warmup", 0.0))
    return speaker


class _Corpus:
    """The two passes."""

    def __init__(
        self,
        plan: RunPlan,
        card: ModelCard,
        sink: ShardSink,
        meter: Meter,
        tally: Tally,
        stdin: Path | None,
        stop: Stop,
    ) -> None:
        self._plan, self._card, self._sink = plan, card, sink
        self._meter, self._tally = meter, tally
        self._stdin, self._stop = stdin, stop
        self._references = References()
        self.is_checked = False  # whether the first pass saw all rows

    def validate(self, progress: Progress) -> None:
        """Write the rejects, count the rest."""
        self._sink.reject(self._rejects(progress))

    def todo(self) -> Iterator[Utterance]:
        """The valid rows that are not finished."""
        for row in self._scan(None):
            if isinstance(row, Utterance) and not self._sink.is_finished(row):
                yield row

    def _rejects(self, progress: Progress) -> Iterator[Failure]:
        tally, num_kept = self._tally, 0
        for row in self._scan(progress.message):
            if self._stop.requested:
                return
            if isinstance(row, Failure) and self._is_kept(row):
                self._count(row.utterance_id, finished=True)
                tally.rows += 1
                tally.finished_before += 1
                num_kept += 1
                if num_kept <= _MOST_SHOWN:
                    progress.message(f"{row.source}:{row.line}: kept as it was made: {row.message}")
                continue
            if isinstance(row, Failure):
                tally.rejected += 1
                tally.reasons.add(row)
                yield row
                if self._plan.output.fail_fast:
                    self._stop.request()
                continue
            finished = self._sink.is_finished(row)
            self._count(row.id, finished)
            self._sink.names.note(row)
            tally.rows += 1
            tally.finished_before += finished
            if not finished:
                seconds = _expected_s(row)
                tally.expected_s += seconds
                if row.split:
                    seconds = min(seconds, SEGMENT_S)
                longest_s = min(seconds, row.max_seconds or seconds)
                tally.longest_s = max(tally.longest_s, longest_s)
                tally.steps.add(row.sampling.steps)
        self.is_checked = True
        if num_kept > _MOST_SHOWN:
            progress.message(f"{num_kept:,} rows were kept so")

    def _count(self, utterance_id: str | None, finished: bool) -> None:
        is_flagged = finished and utterance_id is not None and self._sink.is_flagged(utterance_id)
        self._meter.count_row(finished, is_flagged)

    def _is_kept(self, failure: Failure) -> bool:
        """Whether a finished row is only short of its reference, which may be back tomorrow."""
        return is_kept(failure, self._sink.has)

    def _scan(self, warn: Callable[[str], None] | None) -> Iterator[Utterance | Failure]:
        return scan(
            self._plan.corpus,
            self._plan.rows,
            self._card,
            stdin=self._stdin,
            warn=warn,
            references=self._references,
        )


def is_kept(failure: Failure, has: Callable[[str], bool]) -> bool:
    """Whether a rejected row stays as it was made: `has` knows it, and only its clip is away."""
    row, row_id = failure.row, failure.utterance_id
    names_clip = isinstance(row, Mapping) and bool(row.get("ref_audio"))
    is_away = names_clip and failure.reason in ("ref_missing", "ref_unreadable")
    return is_away and row_id is not None and has(row_id)


def _say_what_is_lost(paths: list[str], progress: Progress) -> None:
    if paths:
        more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
        progress.message(f"made again, since gone or cut short: {paths[0]}{more}")


def _expected_s(utterance: Utterance) -> float:
    return expected_seconds(utterance.spoken_text, utterance.language)
