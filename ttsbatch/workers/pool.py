"""WorkerPool: a `Speaker` whose models live in processes, one per device.

Segments go to the worker that has the fewest waiting, in groups; each worker takes its own prompts
in and orders its own slots. Nothing of this depends on what a worker runs.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

from ttsbatch.models.protocol import Speaker
from ttsbatch.types import EngineStats, Failure, ModelCard, Segment, Waveform
from ttsbatch.workers.handle import EXIT_S, Worker, close_workers, start_worker
from ttsbatch.workers.messages import (
    Begin,
    End,
    Load,
    Over,
    Ready,
    Refused,
    Segments,
    Span,
    Status,
    Taken,
    light,
)
from ttsbatch.workers.standby import Standby

GROUP_SEGMENTS = 32  # in a message, at most
GROUP_SHARE = 16  # of what was sent before: a short corpus goes to all workers, one by one
MOST_WAITING = 256  # segments of a worker that it has not begun to prepare
POLL_S = 0.2
_PARALLEL_STAGES = ("load", "warmup")  # all workers at once: the slowest one counts


class WorkerPool:
    """Speaks in processes; see `models.protocol.Speaker`."""

    def __init__(
        self,
        card: ModelCard,
        devices: Sequence[str],
        openers: Sequence[Callable[[], Speaker]],
        standby: Standby | None = None,
    ) -> None:
        """Start the workers, and wait until each has loaded its model.

        Args:
            card: of the model.
            devices: their names, for messages.
            openers: what each worker opens its speaker with; picklable.
            standby: processes that are taken before others are started.

        Raises:
            TTSBatchError: what a worker raised while it loaded; EngineError if it died.
        """
        self.card, self.stats = card, EngineStats()
        self._with_room = threading.Condition()
        self._stopped = False
        self._source_error: BaseException | None = None
        self._feeder: threading.Thread | None = None
        self._idle = True  # no worker is in the middle of something
        self._workers: list[Worker] = []
        try:
            for name, opener in zip(devices, openers, strict=True):
                ready = standby.take(name) if standby is not None else None
                self._workers.append(ready or start_worker(name))
                self._workers[-1].send(Load(opener))
            self._until_loaded()
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
            worker.send(Begin(with_spans=self.stats.on_span is not None))
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
            worker.stop()

    def close(self) -> None:
        """End the processes; those in the middle of something at once."""
        self._stopped = True
        close_workers(self._workers, self._idle)
        if self._feeder is not None:
            self._feeder.join(EXIT_S)  # a pipe that it writes to must not be closed
        for worker in self._workers:
            worker.pipe.close()
            worker.control.close()
        self._workers = []

    def _until_loaded(self) -> None:
        """Take in what each tells of its loading, whoever is first."""
        loading: dict[Any, Worker] = {worker.pipe: worker for worker in self._workers}
        while loading:
            for pipe in wait(list(loading)):
                worker = loading.pop(pipe)
                message = worker.receive()
                assert isinstance(message, Ready)
                worker.stats = message.stats

    # ------------------------------------------------------------------ segments, on a thread

    def _feed(self, segments: Iterable[Segment]) -> None:
        """Send segments out until there are no more or the run is stopped."""
        try:
            for group in filter(None, _groups(segments)):
                worker = self._worker_with_room(group)
                if worker is None or not worker.send(Segments([light(s) for s in group])):
                    break
        except BaseException as e:
            self._source_error = e
        for worker in self._workers:
            worker.send(End())

    def _worker_with_room(self, group: list[Segment]) -> Worker | None:
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
        at_work: dict[Any, Worker] = {worker.pipe: worker for worker in self._workers}
        while at_work:
            ready = list(at_work) if len(at_work) == 1 else wait(list(at_work))
            for worker in [at_work[pipe] for pipe in ready]:
                message = worker.receive()
                if isinstance(message, Taken):
                    with self._with_room:
                        worker.num_waiting -= message.count
                        self._with_room.notify()
                elif isinstance(message, Waveform):
                    yield message
                elif isinstance(message, Refused):
                    yield worker.open.pop(message.key), message.failure
                else:
                    assert isinstance(message, Status)
                    worker.stats = message.stats
                    self._merge()
                    self._pass_on(message.spans, worker)
                    if isinstance(message, Over):
                        worker.num_waiting = 0
                        worker.open.clear()  # of a run that was stopped
                        del at_work[worker.pipe]

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

    def _pass_on(self, spans: list[Span], worker: Worker) -> None:
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
