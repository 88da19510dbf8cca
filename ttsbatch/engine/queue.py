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
from ttsbatch.types import Failure, Segment

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

    def __init__(self, incoming: Prefetch[Job | Refusal], lookahead: int) -> None:
        self._incoming, self._lookahead = incoming, lookahead
        self._heap: list[tuple[int, int, Job]] = []
        self._taken = 0
        self._stopped = False
        self.refusals: list[Refusal] = []

    @property
    def num_waiting(self) -> int:
        """Jobs that could be handed out now."""
        return len(self._heap)

    @property
    def exhausted(self) -> bool:
        """No job waits and none will come."""
        return not self._heap and (self._stopped or self._incoming.ended)

    def stop(self) -> None:
        """Hand out nothing more: what sits in a slot is finished, what waits is not begun."""
        self._stopped = True
        self._heap.clear()

    def fill(self) -> None:
        """Take jobs in until the look-ahead is full or there are no more, waiting for each.

        What is handed out then depends on the rows alone, not on how fast they were prepared: the
        longest really come first, and a run can be repeated.
        """
        while not self._stopped and max(len(self._heap), len(self.refusals)) < self._lookahead:
            item = self._incoming.take()
            if item is None or self._stopped:
                return
            if isinstance(item, Job):
                # Among equals first come, first served.
                heapq.heappush(self._heap, (-item.expected_frames, self._taken, item))
                self._taken += 1
            else:
                self.refusals.append(item)

    def next_fitting(self, slots: SlotTable) -> Job | None:
        """The longest job if it fits; a job that waits for pages lets no other past it."""
        if self._heap and slots.fits(self._heap[0][2]):
            return heapq.heappop(self._heap)[2]
        return None


def prepared(
    segments: Iterable[Segment], prepare: Callable[[Segment], Job | Failure]
) -> Iterator[Job | Refusal]:
    """Each segment as a job, or with the reason why it is none."""
    for segment in segments:
        made = prepare(segment)
        yield (segment, made) if isinstance(made, Failure) else made
