"""Jobs for the slots: prepared ahead on a thread, handed out longest first.

The bounded look-ahead keeps memory flat on any corpus; longest first makes the drain at the end
of a run short clips.
"""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from ttsbatch.engine.slots import Job, SlotTable
from ttsbatch.types import Failure, Segment, Stage

T = TypeVar("T")
Refusal = tuple[Segment, Failure]
POLL_S = 0.2


class Prefetch(Generic[T]):
    """Runs an iterable on a thread, at most `depth` items ahead; a context manager.

    An exception of the iterable is raised where the items are taken.
    """

    def __init__(self, items: Iterable[T], depth: int, name: str) -> None:
        self._items = items
        self._queue: queue.Queue[T | _End] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Prefetch[T]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether every item has been taken."""
        return self._ended

    def take(self) -> T | None:
        """The next item, once it is there; None after the last."""
        if self._ended:
            return None
        item = self._queue.get()
        if isinstance(item, _End):
            self._ended = True
            if item.error is not None:
                raise item.error
            return None
        return item

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                if not self._put(item):
                    return
        except BaseException as e:
            error = e
        self._put(_End(error))

    def _put(self, item: T | _End) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=POLL_S)
                return True
            except queue.Full:
                continue
        return False


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class JobQueue:
    """The jobs that wait; refusals of prepare are passed on as they come."""

    def __init__(
        self, incoming: Prefetch[Job | Refusal] | None, lookahead: int, jobs: Iterable[Job] = ()
    ) -> None:
        """A queue of these jobs and what comes in, if anything does."""
        self._incoming, self._lookahead = incoming, lookahead
        self._heap: list[tuple[int, int, Job]] = []
        self._taken = 0
        self._stopped = False
        self.abandoned = False
        """Nobody waits for what is in a slot either."""
        self.source_error: BaseException | None = None
        """What the source of the jobs has raised: no fault of the device's."""
        self.refusals: list[Refusal] = []
        for job in jobs:
            self._push(job)

    @property
    def num_waiting(self) -> int:
        """Jobs that could be handed out now."""
        return 0 if self._stopped else len(self._heap)

    @property
    def exhausted(self) -> bool:
        """No job waits and none will come."""
        if self._stopped:
            return True
        return not self._heap and (self._incoming is None or self._incoming.ended)

    def stop(self) -> None:
        """Hand out nothing more: what sits in a slot is finished, what waits is not begun.

        May be called on any thread, so the jobs that wait are not touched.
        """
        self._stopped = True

    def abandon(self) -> None:
        """End at once: what sits in a slot is not finished either. On any thread."""
        self._stopped = self.abandoned = True

    def fill(self) -> None:
        """Take jobs in until the look-ahead is full or there are no more, waiting for each.

        What is handed out then depends on the rows alone, not on how fast they were prepared: the
        longest really come first, and a run can be repeated.
        """
        if self._incoming is None:
            return
        while not self._stopped and max(len(self._heap), len(self.refusals)) < self._lookahead:
            try:
                item = self._incoming.take()
            except BaseException as e:
                self.source_error = e
                raise
            if item is None or self._stopped:
                return
            if isinstance(item, Job):
                self._push(item)
            else:
                self.refusals.append(item)

    def _push(self, job: Job) -> None:
        # Among equals first come, first served.
        heapq.heappush(self._heap, (-job.expected_frames, self._taken, job))
        self._taken += 1

    def next_fitting(self, slots: SlotTable) -> Job | None:
        """The longest job if it fits; a job that waits for pages lets no other past it."""
        if not self._stopped and self._heap and slots.fits(self._heap[0][2]):
            return heapq.heappop(self._heap)[2]
        return None

    def waiting(self) -> list[Job]:
        """The jobs that are still to be handed out, longest first."""
        if self._stopped:
            return []
        return [job for _, _, job in sorted(self._heap)]


def prepared(
    segments: Iterable[Segment], prepare: Callable[[Segment], Job | Failure]
) -> Iterator[Job | Refusal]:
    """Each segment as a job, or with the reason why it is none; an error of `prepare` is one."""
    for segment in segments:
        try:
            made = prepare(segment)
        except Exception as e:  # one row's trouble, whatever it is, must not stop the others
            made = engine_failure(segment, f"{type(e).__name__}: {e}", "prepare")
        yield (segment, made) if isinstance(made, Failure) else made


def engine_failure(segment: Segment, message: str, stage: Stage = "engine") -> Failure:
    """The failure of a segment that is no fault of its row."""
    u = segment.utterance
    return Failure(u.source, u.line, u.id, stage, "engine_error", message)
