"""Speakers in processes of their own: nothing lost, nothing doubled, no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.fake import segment
from tests.fake_speaker import FakeSpeaker
from tests.waiting import until
from tests.workers import openers
from tests.workers.openers import said
from ttsbatch.errors import EngineError, ModelError
from ttsbatch.models import open_card
from ttsbatch.models.protocol import Speaker
from ttsbatch.types import Segment, Waveform
from ttsbatch.workers import pool as module
from ttsbatch.workers.pool import WorkerPool

Pools = Callable[..., WorkerPool]


@pytest.fixture
def pool() -> Iterator[Pools]:
    """`pool(count, opener)`: workers that are gone after the test."""
    made: list[WorkerPool] = []

    def start(count: int = 1, opener: Callable[[], Speaker] = openers.mischief) -> WorkerPool:
        names = [f"gpu:{n}" for n in range(count)]
        made.append(WorkerPool(open_card(None), names, [opener] * count))
        return made[-1]

    yield start
    for one in made:
        processes = [w.process for w in one._workers]
        one.close()
        assert not any(p.is_alive() for p in processes)


@pytest.mark.parametrize("count", [1, 3])
def test_every_segment_comes_back_once_as_it_is_spoken_here(pool: Pools, count: int) -> None:
    segments = said(*["refuse this" if n % 7 == 3 else f"text {n}" for n in range(100)])
    here = {_name(x): x for x in FakeSpeaker(open_card(None)).speak(segments)}
    workers = pool(count)
    for _ in range(2):  # again after its end
        there = [*workers.speak(iter(segments))]
        assert sorted(map(_name, there)) == sorted(here)
        for item in there:
            expected = here[_name(item)]
            if isinstance(item, Waveform) and isinstance(expected, Waveform):
                assert item.segment is next(s for s in segments if s.key == item.segment.key)
                np.testing.assert_array_equal(item.samples, expected.samples)
                assert replace(item, samples=expected.samples) == expected
            else:
                assert item == expected
    assert workers.stats.num_steps == 200


def test_codes_and_empty_waveforms_travel(pool: Pools) -> None:
    segments = [segment(f"end {1 + n}", seed=n, name=str(n)) for n in range(9)]
    here = {_name(w): w for w in openers.fake_lm().speak(segments)}
    for item in pool(1, openers.fake_lm).speak(segments):
        expected = here[_name(item)]
        assert isinstance(item, Waveform)
        assert isinstance(expected, Waveform)
        assert item.codes is not None
        assert expected.codes is not None
        np.testing.assert_array_equal(item.codes, expected.codes)
        np.testing.assert_array_equal(item.samples, expected.samples)
    (silent,) = pool().speak([replace(said("nothing")[0], expected_s=0.0)])
    assert isinstance(silent, Waveform)
    assert silent.samples.shape == (0,)


def test_columns_that_only_ride_along_stay_here(pool: Pools) -> None:
    (one,) = said("text")
    rich = replace(one, utterance=replace(one.utterance, extra={"lock": threading.Lock()}))
    (item,) = pool().speak([rich])
    assert isinstance(item, Waveform)
    assert item.segment is rich


def test_segments_are_pulled_as_workers_take_them(pool: Pools) -> None:
    pulled = 0

    def endless() -> Iterator[Segment]:
        nonlocal pulled
        for one in said(*["text"] * 5_000):
            pulled += 1
            yield one

    spoken = pool().speak(endless())
    next(spoken)
    time.sleep(0.5)
    assert pulled <= 3 * module.MOST_WAITING
    assert sum(1 for _ in spoken) == 4_999


def test_a_stop_ends_it_after_what_was_begun(pool: Pools) -> None:
    workers = pool(2)
    spoken = workers.speak(iter(said(*["text"] * 5_000)))
    first = next(spoken)
    workers.stop()
    rest = list(spoken)
    assert 0 <= len(rest) < 4_000
    assert len({_name(x) for x in [first, *rest]}) == len(rest) + 1
    assert list(workers.speak(said("later"))) == []


def test_an_error_in_a_worker_is_raised_here_with_its_traceback(pool: Pools) -> None:
    workers = pool(2)
    with pytest.raises(EngineError, match="the device fell off") as caught:
        list(workers.speak(said("text", "break it")))
    assert "fake_speaker.py" in str(caught.value.__cause__)


def test_an_error_that_cannot_travel_is_told_in_words(pool: Pools) -> None:
    with pytest.raises(EngineError, match="_UnpicklableError: <function"):
        list(pool().speak(said("boom")))


@pytest.mark.parametrize("rows_behind", [0, 3_000])
def test_a_worker_that_dies_is_named_and_keeps_nobody_waiting(
    pool: Pools, rows_behind: int
) -> None:
    started = time.monotonic()
    with pytest.raises(EngineError, match="gpu:0: its process was killed by signal 9"):
        list(pool().speak(said("die", *["text"] * rows_behind)))
    assert time.monotonic() - started < 30


def test_a_worker_that_died_while_nothing_was_asked_of_it_is_named(pool: Pools) -> None:
    workers = pool(2)
    workers._workers[1].process.kill()
    workers._workers[1].process.join()
    with pytest.raises(EngineError, match="gpu:1: its process was killed by signal 9"):
        list(workers.speak(said("text", "text")))


def test_a_corpus_that_breaks_off_is_told_after_what_came_before(pool: Pools) -> None:
    def rows() -> Iterator[Segment]:
        yield from said(*["text"] * 70)
        raise OSError("the disk is gone")

    spoken = pool(2).speak(rows())
    assert len([next(spoken) for _ in range(70)]) == 70
    with pytest.raises(OSError, match="the disk is gone"):
        next(spoken)


def test_a_model_that_cannot_be_loaded_ends_all_workers(pool: Pools) -> None:
    with pytest.raises(ModelError, match="tensor 'a' is missing"):
        WorkerPool(open_card(None), ["gpu:0", "gpu:1"], [openers.mischief, openers.broken])


def test_a_model_that_cannot_be_loaded_waits_for_no_other_worker() -> None:
    started = time.monotonic()
    with pytest.raises(ModelError, match="tensor 'a' is missing"):
        WorkerPool(open_card(None), ["gpu:0", "gpu:1"], [openers.slow, openers.broken])
    assert time.monotonic() - started < 30


def test_a_file_that_ends_too_soon_is_no_end_of_the_run(pool: Pools) -> None:
    with pytest.raises(EOFError, match="no input left"):
        WorkerPool(open_card(None), ["gpu:0"], [openers.cut_short])


def test_counts_and_notes_are_those_of_all_workers(pool: Pools) -> None:
    workers = pool(2)
    spans: list[tuple[str, float, float | None, str | None]] = []
    workers.stats.on_span = lambda *span: spans.append(span)
    assert workers.stats.notes == ["gpu:0: loaded", "gpu:1: loaded"]
    assert workers.stats.devices == ["cpu", "cpu"]
    before_s = time.perf_counter()
    list(workers.speak(said(*["text"] * 100)))
    assert workers.stats.num_steps == 100
    assert workers.stats.stage_seconds == {"decode": 50.0, "warmup": 2.0}
    assert workers.stats.peak_host_memory_bytes > 2 << 20
    assert workers.stats.notes == ["gpu:0: loaded", "gpu:1: loaded"]
    assert len(spans) == 100
    assert {span[3] for span in spans} == {"gpu:0 MainThread", "gpu:1 MainThread"}
    assert all(before_s < span[2] < time.perf_counter() for span in spans if span[2] is not None)


def test_closing_in_the_middle_waits_for_nothing(pool: Pools) -> None:
    workers = pool(2)
    spoken = workers.speak(iter(said("text", *["wait 60"] * 200)))
    next(spoken)
    started = time.monotonic()
    spoken.close()
    workers.close()
    assert time.monotonic() - started < 30


PARENT = """
import sys
from tests.workers import openers
from tests.workers.openers import said
from ttsbatch.cli.signals import stopped_by_signals
from ttsbatch.models import open_card
from ttsbatch.stop import Stop
from ttsbatch.workers.pool import WorkerPool

if __name__ == "__main__":
    workers = WorkerPool(open_card(None), ["a", "b"], [openers.mischief] * 2)
    print(*[w.process.pid for w in workers._workers], flush=True)
    stop = Stop()
    stop.watch(workers)
    num_spoken = 0
    with stopped_by_signals(stop):
        for _ in workers.speak(said(*[sys.argv[1]] * 100)):
            num_spoken += 1
            print(num_spoken, flush=True)
            if sys.argv[2] == "leave":
                sys.exit(3)  # without a close
    workers.close()
    print("finished", flush=True)
"""


@pytest.fixture
def start(
    tmp_path: Path,
) -> Iterator[Callable[[str, str], tuple[subprocess.Popen[str], list[int]]]]:
    """`start(text, what)`: a run in a group of its own; its process and those of its workers."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    runs: list[tuple[subprocess.Popen[str], list[int]]] = []

    def started(text: str, what: str = "stay") -> tuple[subprocess.Popen[str], list[int]]:
        run = subprocess.Popen(
            [sys.executable, script, text, what],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert run.stdout is not None
        runs.append((run, [int(pid) for pid in run.stdout.readline().split()]))
        assert len(runs[-1][1]) == 2
        return runs[-1]

    yield started
    for run, pids in runs:
        run.kill()
        run.communicate()
        until(lambda pids=pids: not any(map(_runs, pids)), 30)


Start = Callable[..., tuple[subprocess.Popen[str], list[int]]]


def stopped_at_work(
    start: Start, tmp_path: Path, number: signal.Signals
) -> tuple[subprocess.Popen[str], list[int]]:
    """A run that has heard a signal to its group while a worker was at work."""
    held = tmp_path / "held"
    run, pids = start(f"hold {held}")
    until(held.exists, 60, "no worker has begun")
    os.killpg(run.pid, number)
    assert run.stderr is not None
    assert "finishing the rows in flight" in run.stderr.readline()
    assert all(map(_runs, pids))
    return run, pids


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_lets_what_was_begun_finish(
    start: Start, number: signal.Signals
) -> None:
    run, _ = start("wait 0.1")
    assert run.stdout is not None
    assert run.stdout.readline() == "1\n"
    os.killpg(run.pid, number)
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out.split()[-1]) == (0, "finished"), err
    assert "finishing the rows in flight" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_to_the_whole_group_ends_the_workers_at_once(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    run, pids = stopped_at_work(start, tmp_path, number)
    os.killpg(run.pid, number)
    _, err = run.communicate(timeout=30)
    assert "KeyboardInterrupt" in err
    assert not any(map(_runs, pids))


def test_workers_go_when_the_run_is_killed(start: Start, tmp_path: Path) -> None:
    run, _ = stopped_at_work(start, tmp_path, signal.SIGTERM)
    run.kill()  # the fixture sees its workers go


def test_a_run_that_leaves_its_workers_open_ends_with_them(start: Start) -> None:
    run, pids = start("wait 0.1", "leave")
    assert run.wait(timeout=30) == 3
    assert not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _name(item: object) -> str:
    one = item.segment if isinstance(item, Waveform) else item[0]  # type: ignore[index]
    assert isinstance(one, Segment)
    return one.utterance.id
