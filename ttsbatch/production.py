"""Production: rows go to the speaker; takes are joined, checked, retried and written.

A row that a check flags is spoken again with another seed, in the same stream while the corpus
lasts; its best take is kept and marked.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from ttsbatch.corpus.plainjson import plain_json
from ttsbatch.errors import EngineError
from ttsbatch.judging import Judgement, Judges, Take
from ttsbatch.models.protocol import Speaker
from ttsbatch.plan import OutputPlan
from ttsbatch.progress import Progress, Tally
from ttsbatch.quality.extras import Measuring
from ttsbatch.report import Meter
from ttsbatch.sinks.totals import Spent
from ttsbatch.stop import Stop
from ttsbatch.text.duration import expected_seconds
from ttsbatch.text.segment import pauses_s, split_text
from ttsbatch.types import (
    Failure,
    Segment,
    ShardRecord,
    Utterance,
    Waveform,
)

MOST_JUDGED_AHEAD = 256  # rows in work there: 60 MB at 5 s and 24 kHz
MIN_ROOM = 1.5  # `max_seconds` over the expected seconds: a piece has less to spare than a row


@dataclass(slots=True)
class _Open:
    """A row that is being spoken: its takes so far."""

    utterance: Utterance
    num_segments: int
    expected_s: float  # of the whole text, as it was counted beforehand
    attempt: int = 0
    spoken: list[Waveform] = field(default_factory=list)  # of this attempt
    failure: Failure | None = None  # of this attempt
    num_over: int = 0  # segments of this attempt that came back
    best: ShardRecord | None = None


class RowSink(Protocol):
    """Where rows go; `sinks.ShardSink` is one."""

    def key_of(self, utterance: Utterance) -> str:
        """The row's resume key."""
        ...

    def write(self, record: ShardRecord, spent: Spent) -> None:
        """Take a finished row."""
        ...

    def fail(self, failure: Failure) -> None:
        """Take a row that was not made."""
        ...

    def flush(self) -> None:
        """Wait until what was taken is on the disk."""
        ...


class Production:
    """Speak, join, check, retry, write."""

    def __init__(
        self,
        plan: OutputPlan,
        speaker: Speaker,
        sink: RowSink,
        meter: Meter,
        tally: Tally,
        progress: Progress,
        stop: Stop,
        pieces: Callable[[Utterance, int], list[Segment]] | None = None,
        measuring: Measuring | None = None,
        judges: Judges | None = None,
    ) -> None:
        """Wire it up; `pieces(utterance, attempt)` are what is spoken, in place of `cut`."""
        self._pieces = pieces or cut
        self._plan, self._speaker = plan, speaker
        self._sink, self._meter, self._tally = sink, meter, tally
        self._progress, self._stop = progress, stop
        self._num_notes = 0  # of the speaker's, passed on
        self._measuring = measuring
        self._open: dict[str, _Open] = {}
        self._judges = judges or Judges(0)
        self._judging: deque[tuple[_Open, Judgement]] = deque()
        self._again: deque[Segment] = deque()  # filled here, emptied on the speaker's thread

    def run(self, rows: Iterator[Utterance]) -> None:
        """Make these rows and their retries, or as many as there are before a stop.

        Raises:
            TTSBatchError: the speaker or the sink failed as a whole, or rows went missing.
        """
        self._tally.start()
        self._meter.begin_speaking()
        self._progress.update(self._tally)
        self._pass_notes_on()
        self._stop.watch(self._speaker)
        try:
            self._round(self._segments(rows))
            while self._again and not self._stop.requested:
                self._round(self._segments(iter(())))
            self._sink.flush()  # a row counts once it is on the disk, and so does its time
            self._see_that_all_came_back()
        finally:
            self._meter.end_speaking()
            self._stop.watch(None)

    def _round(self, segments: Iterator[Segment]) -> None:
        try:
            for item in self._speaker.speak(segments):
                self._take(item)
        finally:
            self._collect(wait=True)  # what a broken speaker made before stays made

    def _see_that_all_came_back(self) -> None:
        if self._open and not self._stop.requested:
            first = next(iter(self._open))
            raise EngineError(
                f"rows that never came back from the model: {len(self._open):,}, the first "
                f"{first!r}; the same command makes them"
            )

    def _take(self, item: Waveform | tuple[Segment, Failure]) -> None:
        segment = item.segment if isinstance(item, Waveform) else item[0]
        row = self._open[segment.utterance.id]
        if isinstance(item, Waveform):
            row.spoken.append(item)
        else:
            row.failure = item[1]
        row.num_over += 1
        if row.num_over == row.num_segments:
            self._attempt_over(row.utterance, row)
        self._collect()
        self._progress.update(self._tally)
        self._pass_notes_on()

    def _pass_notes_on(self) -> None:
        notes = self._speaker.stats.notes
        while self._num_notes < len(notes):
            self._progress.message(notes[self._num_notes])
            self._num_notes += 1

    def _segments(self, rows: Iterator[Utterance]) -> Iterator[Segment]:
        """Retries first, then new rows. Runs on the speaker's thread."""
        for utterance in rows:
            while self._again:
                yield self._again.popleft()
            if self._stop.requested:
                return
            segments = self._pieces(utterance, 0)
            self._meter.begin_row(utterance.id)
            whole_s = expected_seconds(utterance.spoken_text, utterance.language)
            self._open[utterance.id] = _Open(utterance, len(segments), whole_s)
            yield from segments
        while self._again and not self._stop.requested:
            yield self._again.popleft()

    def _attempt_over(self, utterance: Utterance, row: _Open) -> None:
        if row.failure:
            self._judged(utterance, row, None)
        else:
            key = self._sink.key_of(utterance)
            profile = self._speaker.card.profiles.get(utterance.voice or "")
            take = Take(utterance, row.spoken, row.attempt, key, profile)
            self._judging.append((row, self._judges.submit(take)))

    def _collect(self, wait: bool = False) -> None:
        """Go on with the takes that are judged, in the order in which they came."""
        judging = self._judging
        while judging and (wait or judging[0][1].done or len(judging) > MOST_JUDGED_AHEAD):
            row, judgement = judging.popleft()
            take = judgement.result()
            if self._measuring is None or self._is_retried(take, row):
                self._judged(row.utterance, row, take)
            else:
                self._measuring.submit(take)
        for take in self._measuring.done(wait) if self._measuring else ():
            self._judged(take.utterance, self._open[take.utterance.id], take)
            self._progress.update(self._tally)

    def _is_retried(self, take: ShardRecord, row: _Open) -> bool:
        return take.checks["verdict"] == "flag" and row.attempt < self._plan.retries

    def _judged(self, utterance: Utterance, row: _Open, take: ShardRecord | None) -> None:
        if take is not None and (row.best is None or _rank(take) < _rank(row.best)):
            row.best = take
        if take is not None and self._is_retried(take, row):
            row.attempt += 1
            row.spoken, row.num_over = [], 0
            self._again.extend(self._pieces(utterance, row.attempt))
            return
        del self._open[utterance.id]
        self._tally.expected_done_s += row.expected_s
        if row.best is not None and not len(row.best.samples):
            u, tries = utterance, row.attempt + 1
            message = f"no audio in {tries} attempts" if tries > 1 else "no audio"
            self._failed(u, Failure(u.source, u.line, u.id, "quality", "quality", message))
        elif row.best is not None:
            self._made(row.best, attempts=row.attempt + 1)
        elif row.failure is not None:
            self._failed(utterance, row.failure)

    def _made(self, record: ShardRecord, attempts: int) -> None:
        self._sink.write(replace(record, attempts=attempts), self._meter.add(record))
        self._tally.made += 1
        self._tally.audio_s += len(record.samples) / record.sample_rate_hz
        self._tally.flagged += record.checks["verdict"] == "flag"

    def _failed(self, utterance: Utterance, failure: Failure) -> None:
        self._meter.drop_row(utterance.id)
        self._sink.fail(replace(failure, row=plain_json(utterance.given)))
        self._tally.failed += 1
        self._tally.reasons.add(failure)
        if self._plan.fail_fast:
            self._stop.request()


def cut(utterance: Utterance, attempt: int = 0) -> list[Segment]:
    """The pieces that a row is spoken in: one, the whole text, unless it is long.

    `max_seconds` bounds the row: its pauses come off, the rest is shared out by expected seconds.
    A row with a bound that leaves its text little room stays whole, so that what does not fit is
    missing at its end and not at the end of every piece.
    """
    text, language, bound_s = utterance.spoken_text, utterance.language, utterance.max_seconds
    pieces = split_text(text, language) if utterance.split else [text]
    if len(pieces) == 1:
        return [Segment(utterance, 0, text, attempt, expected_seconds(text, language))]
    seconds = [expected_seconds(p, language) for p in pieces]
    total_s, quiet_s = sum(seconds), sum(pauses_s(text, pieces))
    if bound_s is not None and bound_s < MIN_ROOM * total_s + quiet_s:
        return [Segment(utterance, 0, text, attempt, expected_seconds(text, language))]
    usable = 1.0 if bound_s is None else 1 - quiet_s / bound_s
    return [
        Segment(utterance, i, piece, attempt, piece_s, usable * piece_s / total_s)
        for i, (piece, piece_s) in enumerate(zip(pieces, seconds, strict=True))
    ]


def _rank(take: ShardRecord) -> tuple[bool, int, float, float]:
    """Lower is better: any audio, fewer faults, fewer wrong words, a duration as expected."""
    measured = take.checks
    if not len(take.samples):
        return True, 0, 0.0, 0.0
    off = abs(math.log(max(measured["duration_s"], 0.01) / max(measured["expected_s"], 0.01)))
    return False, len(measured["reasons"]), measured.get("wer") or 0.0, off
