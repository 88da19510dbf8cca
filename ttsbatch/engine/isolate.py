"""What becomes of the rows in flight when the device runs out of memory in the middle of a run.

They are decoded again apart from the others, all, then in halves, until what is left fits or is a
single row that fails alone. A row's draws depend on its own seed alone, so a row that is decoded
twice is the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ttsbatch.engine.device import is_out_of_memory
from ttsbatch.engine.queue import JobQueue, Prefetch, Refusal, engine_failure
from ttsbatch.engine.slots import Job, SlotTable
from ttsbatch.types import Waveform

Item = Waveform | Refusal
Decode = Callable[[JobQueue], Iterator[Item]]


class WatchedQueue(JobQueue):
    """A queue that knows which of the jobs that it handed out are still to come back."""

    def __init__(
        self, incoming: Prefetch[Job | Refusal] | None, lookahead: int, jobs: Iterable[Job] = ()
    ) -> None:
        super().__init__(incoming, lookahead, jobs)
        self._in_flight: dict[tuple[str, int, int], Job] = {}

    def next_fitting(self, slots: SlotTable) -> Job | None:
        """As of any queue."""
        job = super().next_fitting(slots)
        if job is not None:
            self._in_flight[job.prompt.segment.key] = job
        return job

    def decoded_by(self, decode: Decode) -> Iterator[Item]:
        """What `decode` makes of this queue."""
        for item in decode(self):
            segment = item.segment if isinstance(item, Waveform) else item[0]
            self._in_flight.pop(segment.key, None)
            yield item

    def take_back(self) -> list[Job]:
        """The jobs in flight, which are this queue's no more."""
        jobs = list(self._in_flight.values())
        self._in_flight.clear()
        return jobs


def isolate(jobs: list[Job], decode: Decode, give_back: Callable[[], None]) -> Iterator[Item]:
    """Decode jobs that ran out of memory together; a job that does so alone is refused.

    Args:
        jobs: what was in flight.
        decode: runs a queue to its end.
        give_back: called after each failure, to free what it left.
    """
    queue = WatchedQueue(None, len(jobs), jobs)
    try:
        yield from queue.decoded_by(decode)
        return
    except Exception as e:
        if not is_out_of_memory(e):
            raise
        message = str(e).partition("\n")[0]
    give_back()
    left = queue.take_back() + queue.waiting()
    if len(jobs) == 1:
        segment = jobs[0].prompt.segment
        yield segment, engine_failure(segment, f"out of memory with this row alone: {message}")
        return
    half = -(-len(left) // 2)
    for part in (left[:half], left[half:]):
        if part:
            yield from isolate(part, decode, give_back)
