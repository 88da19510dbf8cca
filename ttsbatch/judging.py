"""A row's pieces become one recording that is measured: joined, trimmed, checked.

It costs a core 2.4 ms a row of 5 s, and a GPU makes 450 rows a second: there, processes do it. On
threads it would hold up everything else, as most of it is many short numpy calls.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import ThreadpoolController

from ttsbatch.audio.join import join_segments
from ttsbatch.audio.trim import trim_tail
from ttsbatch.processes import RunContext
from ttsbatch.quality import check, silent_tail_s
from ttsbatch.text.segment import pauses_s
from ttsbatch.types import FinishReason, SegmentNote, ShardRecord, Utterance, VoiceProfile, Waveform

MIN_TRIM_TAIL_S = 0.8  # a row that ran on into silence this long has said its text
MOST_PROCESSES = 4  # for a GPU
_NO_SAMPLES = np.empty(0, np.int16)
GROUP_ROWS = 8
CORES_PER_PROCESS = 4  # the others feed the GPU, encode and write


@dataclass(frozen=True, slots=True)
class Take:
    """All pieces of one attempt at a row, in any order, at least one."""

    utterance: Utterance
    spoken: list[Waveform]
    attempt: int
    key: str
    profile: VoiceProfile | None


def judge(take: Take) -> ShardRecord:
    """The recording of a take, with its checks."""
    utterance = take.utterance
    spoken = sorted(take.spoken, key=lambda w: w.segment.index)
    waves, trimmed_s = trim_run_ons(spoken)
    pauses = pauses_s(utterance.spoken_text, [w.segment.text for w in waves])
    samples = join_segments(waves, pauses)
    finish_reason: FinishReason = (
        "length" if any(w.finish_reason == "length" for w in waves) else "stop"
    )
    codes = [w.codes for w in waves if w.codes is not None]
    return ShardRecord(
        utterance=utterance,
        key=take.key,
        samples=samples,
        sample_rate_hz=waves[0].sample_rate_hz,
        finish_reason=finish_reason,
        num_frames=sum(w.num_frames for w in waves),
        attempts=take.attempt + 1,
        segments=tuple(_note(w, utterance.seed) for w in waves),
        checks=check(samples, waves, profile=take.profile, trimmed_s=trimmed_s),
        codes=np.concatenate(codes) if codes else None,
    )


def trim_run_ons(waves: Sequence[Waveform]) -> tuple[list[Waveform], list[float]]:
    """The segments without long silent tails, and the seconds that each lost.

    Only a segment that ran on to a cap which its row did not ask for is trimmed: what it was to
    say is said, and the model has missed its end.
    """
    kept, trimmed_s = [], []
    for wave in waves:
        tail_s = 0.0
        if wave.finish_reason == "length" and wave.segment.utterance.max_seconds is None:
            tail_s = silent_tail_s(wave.samples, wave.sample_rate_hz)
        one, lost_s = trim_tail(wave, tail_s) if tail_s >= MIN_TRIM_TAIL_S else (wave, 0.0)
        kept.append(one)
        trimmed_s.append(lost_s)
    return kept, trimmed_s


def _note(wave: Waveform, row_seed: int) -> SegmentNote:
    segment = wave.segment
    seed = None if segment.utterance.seed == row_seed else segment.utterance.seed
    return SegmentNote(segment.text, wave.finish_reason, len(wave.samples), segment.attempt, seed)


class _Group:
    """Takes that go to a process together."""

    def __init__(self) -> None:
        self.takes: list[Take] = []
        self.future: Future[list[ShardRecord]] | None = None  # None: not sent yet


@dataclass(frozen=True, slots=True)
class Judgement:
    """A take that is being judged, or has been."""

    take: Take
    group: _Group | None  # None: judged when it is asked for
    index: int = 0  # in its group
    send: Callable[[_Group], None] = lambda group: None

    @property
    def done(self) -> bool:
        """Whether `result` need not wait for a process."""
        if self.group is None:
            return True
        return self.group.future is not None and self.group.future.done()

    def result(self) -> ShardRecord:
        """The recording; of a process that died, made here."""
        if self.group is not None:
            self.send(self.group)
            try:
                if self.group.future is not None:
                    return _filled(self.group.future.result()[self.index], self.take)
            except BrokenProcessPool:
                pass
        return judge(self.take)


class Judges:
    """Processes that judge takes; a context manager.

    While they are all at work takes gather, and go to a process by the group: that costs the
    caller a quarter of what it does one by one.
    """

    def __init__(self, num_processes: int) -> None:
        """Start them; 0: takes are judged by whoever asks for their result."""
        _leave_cores_alone()
        self._num_processes = num_processes
        self._gathering = _Group()
        self._sent: deque[Future[list[ShardRecord]]] = deque()
        self._pool: ProcessPoolExecutor | None = None
        if num_processes:
            self._pool = ProcessPoolExecutor(num_processes, RunContext(), initializer=_begin)
            for _ in range(num_processes):
                self._pool.submit(_nothing)  # each submission starts a process

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def submit(self, take: Take) -> Judgement:
        """Have a take judged."""
        if self._pool is None:
            return Judgement(take, None)
        group = self._gathering
        group.takes.append(take)
        judgement = Judgement(take, group, len(group.takes) - 1, self._send)
        while self._sent and self._sent[0].done():
            self._sent.popleft()
        if len(group.takes) == GROUP_ROWS or len(self._sent) < self._num_processes:
            self._send(group)
        return judgement

    def _send(self, group: _Group) -> None:
        if group.future is not None or self._pool is None:
            return
        self._gathering = _Group()
        try:
            group.future = self._pool.submit(_judge_there, group.takes)
        except BrokenProcessPool:
            self._pool = None
            return
        self._sent.append(group.future)


def num_judges(devices: Sequence[str]) -> int:
    """How many processes pay: none beside a model that takes the CPU itself."""
    if all(name == "cpu" for name in devices):
        return 0
    most = MOST_PROCESSES * len(devices)
    return min(most, (os.cpu_count() or 1) // CORES_PER_PROCESS)


def _judge_there(takes: list[Take]) -> list[ShardRecord]:
    """In a process: what the parent has already does not go back to it."""
    records = []
    for take in takes:
        record = judge(take)
        if len(take.spoken) == 1 and len(record.samples) == len(take.spoken[0].samples):
            record = replace(record, samples=_NO_SAMPLES, codes=None)
        records.append(record)
    return records


def _filled(record: ShardRecord, take: Take) -> ShardRecord:
    only = take.spoken[0]
    if len(take.spoken) == 1 and len(only.samples) and not len(record.samples):
        return replace(record, samples=only.samples, codes=only.codes)
    return record


def _begin() -> None:
    """In a new process: go when the parent has gone."""
    _leave_cores_alone()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _leave_cores_alone() -> None:
    """One thread for numpy's products: they are small, and threads would wait for each other.

    With 16 threads in each of four processes a row of 5 s took 24 ms instead of 2.4. The libraries
    of torch are others, and stay as they are.
    """
    for library in ThreadpoolController().lib_controllers:
        if library.user_api == "blas" and "numpy" in library.filepath:
            library.set_num_threads(1)


def _nothing() -> None:
    """Work that is done at once."""
