"""WorkerPool: a `Speaker` whose models live in processes, one per device.

Segments go to the worker that has the fewest waiting, in groups; each worker takes its own prompts
in and orders its own slots. Nothing of this depends on what a worker runs.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from ttsbatch.errors import EngineError
from ttsbatch.models.protocol import Speaker
from ttsbatch.processes import RunContext
from ttsbatch.types import EngineStats, Failure, ModelCard, Segment, Waveform
from ttsbatch.workers.messages import (
    Begin,
    Broken,
    End,
    Key,
    Over,
    Ready,
    Refused,
    Report,
    Segments,
    Span,
    Spoken,
    Status,
    Taken,
    light,
    receive_waveform,
)
from ttsbatch.workers.worker import run_worker

GROUP_SEGMENTS = 32  # in a message, at most
GROUP_SHARE = 16  # of what was sent before: a short corpus goes to all workers, one by one
MOST_WAITING = 256  # segments of a worker that it has not begun to prepare
POLL_S = 0.2
EXIT_S = 10.0  # for a worker to give its device back
_PARALLEL_STAGES = ("load", "warmup")  # all workers at once: the slowest one counts


@dataclass(slots=True)
class _Worker:
    name: str  # of its device
    process: Any
    pipe: Connection
    control: Connection
    num_waiting: int = 0  # sent, not taken
    open: dict[Key, Segment] = field(default_factory=dict)  # sent, not come back
    stats: EngineStats = field(default_factory=EngineStats)
    num_notes: int = 0  # passed on


class WorkerPool:
    """Speaks in processes; see `models.protocol.Speaker`."""

    def __init__(
        self, card: ModelCard, devices: Sequence[str], openers: Sequence[Callable[[], Speaker]]
    ) -> None:
        """Start the workers, and wait until each has loaded its model.

        Args:
            card: of the model.
            devices: their names, for messages.
            openers: what each worker opens its speaker with; picklable.

        Raises:
            TTSBatchError: what a worker raised while it loaded; EngineError if it died.
        """
        self.card, self.stats = card, EngineStats()
        self._with_room = threading.Condition()
        self._stopped = False
        self._source_error: BaseException | None = None
        self._feeder: threading.Thread | None = None
        self._idle = True  # no worker is in the middle of something
        self._workers: list[_Worker] = []
        try:
            for name, opener in zip(devices, openers, strict=True):
                self._workers.append(_start(name, opener))
            for worker in self._workers:
                message = self._receive(worker)
                assert isinstance(message, Ready)
                worker.stats = message.stats
        except BaseException:
            self._idle = False
            self.close()
            raise
        self._merge()

    def speak(self, segments: Iterable[Segment]) -> Iterator[Waveform | tuple[Segment, Failure]]:
        """Speak every segment once; see `models.protocol.Speaker`.

        Raises:
            TTSBatchError: what a worker raised while it spoke; EngineError if it died.
            BaseException: what reading `segments` raised, once all that was read before is spoken.
        """
        self._idle, self._source_error = False, None
        for worker in self._workers:
            _sent(worker, Begin(with_spans=self.stats.on_span is not None))
        self._feeder = threading.Thread(
            target=self._feed, args=(segments,), name="ttsbatch-feed", daemon=True
        )
        self._feeder.start()
        yield from self._until_over()
        self._feeder.join()
        self._idle = True
        if self._source_error is not None:
            raise self._source_error

    def stop(self) -> None:
        """Begin nothing more; what is being spoken still comes. Any thread, any signal handler."""
        self._stopped = True
        for worker in self._workers:
            with suppress(OSError):  # it has gone, which whoever reads from it will notice
                os.write(worker.control.fileno(), b"s")

    def close(self) -> None:
        """End the processes; those in the middle of something at once."""
        self._stopped = True
        for worker in self._workers:
            if self._idle:
                worker.pipe.close()
            else:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join(EXIT_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        if self._feeder is not None:
            self._feeder.join(EXIT_S)  # a pipe that it writes to must not be closed
        for worker in self._workers:
            worker.pipe.close()
            worker.control.close()
        self._workers = []

    # ------------------------------------------------------------------ segments, on a thread

    def _feed(self, segments: Iterable[Segment]) -> None:
        """Send segments out until there are no more or the run is stopped."""
        try:
            for group in filter(None, _groups(segments)):
                worker = self._worker_with_room(group)
                if worker is None or not _sent(worker, Segments([light(s) for s in group])):
                    break
        except BaseException as e:
            self._source_error = e
        for worker in self._workers:
            _sent(worker, End())

    def _worker_with_room(self, group: list[Segment]) -> _Worker | None:
        """The worker that is to get a group, once there is one; None: stopped before."""
        with self._with_room:
            while not self._stopped:
                worker = min(self._workers, key=lambda w: w.num_waiting)
                if worker.num_waiting < MOST_WAITING:
                    worker.num_waiting += len(group)
                    worker.open.update((s.key, s) for s in group)
                    return worker
                self._with_room.wait(POLL_S)
        return None

    # ------------------------------------------------------------------ reports, as asked for

    def _until_over(self) -> Iterator[Waveform | tuple[Segment, Failure]]:
        """What the workers send, until each is over."""
        at_work: dict[Any, _Worker] = {worker.pipe: worker for worker in self._workers}
        while at_work:
            ready = list(at_work) if len(at_work) == 1 else wait(list(at_work))
            for worker in [at_work[pipe] for pipe in ready]:
                message = self._receive(worker)
                if isinstance(message, Taken):
                    with self._with_room:
                        worker.num_waiting -= message.count
                        self._with_room.notify()
                elif isinstance(message, Waveform):
                    yield message
                elif isinstance(message, Refused):
                    yield worker.open.pop(message.key), message.failure
                else:
                    worker.stats = message.stats
                    self._merge()
                    self._pass_on(message.spans, worker)
                    if isinstance(message, Over):
                        worker.num_waiting = 0
                        worker.open.clear()  # of a run that was stopped
                        del at_work[worker.pipe]

    def _receive(self, worker: _Worker) -> Waveform | Taken | Refused | Status:
        """A worker's next report.

        Raises:
            TTSBatchError: what it raised; EngineError if it died.
        """
        try:
            message: Report = worker.pipe.recv()
            if isinstance(message, Spoken):
                return receive_waveform(worker.pipe, message, worker.open.pop(message.key))
        except (EOFError, OSError) as e:
            worker.process.join(EXIT_S)
            raise EngineError(f"{worker.name}: {_how_it_ended(worker.process.exitcode)}") from e
        if isinstance(message, Broken):
            raise message.error from _ThereError(message.trace)
        return message

    def _merge(self) -> None:
        """The workers' counts together become the pool's."""
        parts = [w.stats for w in self._workers]
        total = self.stats
        total.stage_seconds = {
            stage: (max if stage in _PARALLEL_STAGES else sum)(
                part.stage_seconds.get(stage, 0.0) for part in parts
            )
            for stage in dict.fromkeys(s for part in parts for s in part.stage_seconds)
        }
        for name in _SUMS:
            setattr(total, name, sum(getattr(part, name) for part in parts))
        total.kernel_fallbacks = dict(sum((Counter(p.kernel_fallbacks) for p in parts), Counter()))
        total.devices = [name for part in parts for name in part.devices]
        total.peak_device_memory_bytes = max(p.peak_device_memory_bytes for p in parts)
        for worker in self._workers:
            prefix = f"{worker.name}: " if len(self._workers) > 1 else ""
            fresh = worker.stats.notes[worker.num_notes :]
            total.notes += [prefix + note for note in fresh]
            worker.num_notes += len(fresh)

    def _pass_on(self, spans: list[Span], worker: _Worker) -> None:
        if self.stats.on_span is None:
            return
        prefix = f"{worker.name} " if len(self._workers) > 1 else ""
        for stage, seconds, ended_s, thread in spans:
            self.stats.on_span(stage, seconds, ended_s, prefix + thread)


_SUMS = (
    "num_slots",
    "busy_slot_steps",
    "total_slot_steps",
    "num_steps",
    "prefill_tokens",
    "codec_graph_hits",
    "codec_graph_misses",
    "eager_steps",
    "peak_host_memory_bytes",
)


class _ThereError(Exception):
    """The traceback of an error in a worker, as its cause here."""


def _start(name: str, opener: Callable[[], Speaker]) -> _Worker:
    context = RunContext()
    pipe, theirs = context.Pipe()
    heard, control = context.Pipe(duplex=False)
    process = context.Process(
        target=run_worker, args=(theirs, heard, opener), name=f"ttsbatch {name}", daemon=True
    )
    process.start()
    theirs.close()
    heard.close()
    return _Worker(name, process, pipe, control)


def _groups(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Groups of segments; what came before an error goes out before it is raised."""
    group: list[Segment] = []
    num_before, size = 0, 1
    try:
        for segment in segments:
            group.append(segment)
            if len(group) == size:
                yield group
                num_before += size
                group, size = [], max(1, min(GROUP_SEGMENTS, num_before // GROUP_SHARE))
    except Exception:
        yield group
        raise
    yield group


def _sent(worker: _Worker, message: Begin | Segments | End) -> bool:
    """Whether the worker was there to send to; if not, whoever reads from it will notice."""
    try:
        worker.pipe.send(message)
    except OSError:
        return False
    return True


def _how_it_ended(exitcode: int | None) -> str:
    if exitcode is None:
        return "its process no longer answers"
    if exitcode < 0:
        return f"its process was killed by signal {-exitcode}; 9 may mean that memory ran out"
    return f"its process ended with exit code {exitcode}"
