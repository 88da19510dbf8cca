"""Preparing ahead on a thread, and handing out longest first."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.engine.fake import FakeLM, job, queue_of, segment
from tests.waiting import until
from ttsbatch.engine.queue import JobQueue, Prefetch, prepared
from ttsbatch.engine.slots import Job, SlotTable
from ttsbatch.models.protocol import PAGE_SIZE
from ttsbatch.types import Failure

WAIT_S = 10.0  # for a thread: never reached on a machine that works


def ids(jobs: list[Job]) -> list[str]:
    return [j.prompt.segment.utterance.id for j in jobs]


def drain(queue: JobQueue, slots: SlotTable) -> list[Job]:
    out = []
    while (j := queue.next_fitting(slots)) is not None:
        out.append(j)
        slots.take(j)
    return out


def test_items_come_in_order_and_then_none() -> None:
    with Prefetch(range(100), 3, "test") as p:
        assert [p.take() for _ in range(100)] == list(range(100))
        assert not p.ended
        assert p.take() is None
        assert p.ended
        assert p.take() is None


def test_no_more_than_depth_is_prepared_ahead() -> None:
    pulled: list[int] = []

    def items() -> Iterator[int]:
        for i in range(100):
            pulled.append(i)
            yield i

    with Prefetch(items(), 4, "test") as p:
        until(lambda: len(pulled) == 5, WAIT_S)  # four wait, one is in hand
        time.sleep(0.05)
        assert len(pulled) == 5
        p.take()
        until(lambda: len(pulled) == 6, WAIT_S)


def test_items_run_on_another_thread_that_ends_with_the_block() -> None:
    threads: list[threading.Thread] = []

    def items() -> Iterator[int]:
        threads.append(threading.current_thread())
        yield from range(1000)

    with Prefetch(items(), 2, "ttsbatch-test") as p:
        p.take()
    assert threads[0] is not threading.current_thread()
    assert threads[0].name == "ttsbatch-test"
    assert not threads[0].is_alive()


def test_an_error_of_the_items_is_raised_after_what_came_before() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("disk gone")

    with Prefetch(items(), 4, "test") as p:
        assert p.take() == 1
        with pytest.raises(OSError, match="disk gone"):
            p.take()


def test_prepared_keeps_order_and_pairs_refusals_with_their_segment() -> None:
    model = FakeLM()
    segments = [segment("run", seed=1), segment("refuse", seed=2), segment("end 3", seed=3)]

    def make(said: object) -> Job | Failure:
        made = model.prepare(said)  # type: ignore[arg-type]
        return made if isinstance(made, Failure) else job(said)  # type: ignore[arg-type]

    first, second, third = prepared(segments, make)
    assert isinstance(first, Job)
    assert isinstance(third, Job)
    assert not isinstance(second, Job)
    assert second[0] is segments[1]
    assert second[1].reason == "ref_unreadable"


def test_the_longest_goes_first_and_among_equals_the_first() -> None:
    lengths = [5, 30, 30, 7, 90, 30]
    jobs = [
        job(segment("run", seed=i, name=str(i), expected_frames=n)) for i, n in enumerate(lengths)
    ]
    queue = queue_of(jobs)
    queue.fill()
    assert ids(drain(queue, SlotTable(10, 1000))) == ["4", "1", "2", "5", "3", "0"]


def test_no_more_than_the_lookahead_is_sorted() -> None:
    jobs = [job(segment("run", seed=i, name=str(i), expected_frames=i + 1)) for i in range(5)]
    queue = queue_of(jobs, lookahead=2)
    queue.fill()
    assert ids(drain(queue, SlotTable(10, 1000))) == ["1", "0"]
    queue.fill()
    assert ids(drain(queue, SlotTable(10, 1000))) == ["3", "2"]
    queue.fill()
    assert ids(drain(queue, SlotTable(10, 1000))) == ["4"]
    assert queue.exhausted


def test_a_job_that_waits_for_pages_lets_no_other_past() -> None:
    big = job(segment("run", name="big", cap=4 * PAGE_SIZE - 3, expected_frames=60))
    small = job(segment("run", name="small", cap=PAGE_SIZE - 3, expected_frames=5))
    slots = SlotTable(3, 6)
    seated = slots.take(job(segment("run", cap=2 * PAGE_SIZE - 3)))
    queue = queue_of([small, big])
    queue.fill()
    assert queue.next_fitting(slots) is None
    slots.release(seated)
    assert ids(drain(queue, slots)) == ["big", "small"]


def test_refusals_are_kept_apart_and_do_not_hold_up_the_queue() -> None:
    model = FakeLM()
    refused = []
    for seed in range(3):
        said = segment("refuse", seed=seed)
        failure = model.prepare(said)
        assert isinstance(failure, Failure)
        refused.append((said, failure))
    queue = queue_of([refused[0], job(segment("run")), refused[1], refused[2]])
    queue.fill()
    assert queue.refusals == refused
    assert len(drain(queue, SlotTable(4, 100))) == 1
    assert queue.exhausted


def test_fill_waits_for_slow_jobs_so_that_the_longest_is_first_whatever_the_timing() -> None:
    gate = threading.Event()

    def items() -> Iterator[Job]:
        yield job(segment("run", name="early", expected_frames=5))
        gate.wait(WAIT_S)
        yield job(segment("run", name="late", expected_frames=50))

    with Prefetch(items(), 4, "test") as incoming:
        queue = JobQueue(incoming, 4)  # type: ignore[arg-type]
        opener = threading.Timer(0.1, gate.set)
        opener.start()
        queue.fill()
        opener.join()
        assert ids(drain(queue, SlotTable(2, 100))) == ["late", "early"]


def test_refusals_do_not_pile_up_while_jobs_are_awaited() -> None:
    said = segment("refuse")
    failure = FakeLM().prepare(said)
    assert isinstance(failure, Failure)
    queue = queue_of([(said, failure)] * 10, lookahead=3)
    queue.fill()
    assert len(queue.refusals) == 3


def test_a_stopped_queue_hands_out_nothing_that_waits() -> None:
    queue = queue_of([job(segment("run", seed=i)) for i in range(4)], lookahead=2)
    queue.fill()
    queue.stop()
    assert queue.next_fitting(SlotTable(4, 100)) is None
    queue.fill()
    assert queue.next_fitting(SlotTable(4, 100)) is None
    assert queue.exhausted


def test_a_queue_may_be_stopped_at_any_moment_of_handing_out() -> None:
    queue = queue_of([job(segment("run", seed=i)) for i in range(3)], lookahead=3)
    queue.fill()

    class Meanwhile(SlotTable):
        def fits(self, job: Job) -> bool:
            queue.stop()  # as another thread or a signal's handler may
            return super().fits(job)

    assert queue.next_fitting(Meanwhile(4, 100)) is not None  # was being handed out
    assert queue.next_fitting(SlotTable(4, 100)) is None
    assert (queue.num_waiting, queue.waiting()) == (0, [])


def test_a_queue_knows_the_error_of_its_source() -> None:
    error = MemoryError("the corpus")

    def items() -> Iterator[Job]:
        yield job(segment("run"))
        raise error

    with Prefetch(items(), 4, "test") as incoming:
        queue = JobQueue(incoming, 4)  # type: ignore[arg-type]
        with pytest.raises(MemoryError):
            queue.fill()
        assert queue.source_error is error
        assert queue.num_waiting == 1


def test_a_queue_stopped_while_it_waits_hands_out_nothing() -> None:
    gate, waiting = threading.Event(), threading.Event()

    def items() -> Iterator[Job]:
        waiting.set()
        gate.wait(WAIT_S)
        yield job(segment("run", name="late"))

    with Prefetch(items(), 4, "test") as incoming:
        queue = JobQueue(incoming, 4)  # type: ignore[arg-type]
        filling = threading.Thread(target=queue.fill)
        filling.start()
        assert waiting.wait(WAIT_S)
        time.sleep(0.05)  # it waits in `take` now
        queue.stop()
        gate.set()
        filling.join()
        assert queue.next_fitting(SlotTable(1, 100)) is None
        assert queue.exhausted
