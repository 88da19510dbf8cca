"""The loop: every row once, whole and its own, whatever the slots, rounds and neighbours."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.fake import (
    NUM_CODES,
    SPEC,
    FakeLM,
    FakeState,
    check,
    job,
    loop_of,
    queue_of,
    segment,
)
from ttsbatch.engine import decode
from ttsbatch.engine.decode import DecodeLoop, FinishedFrames
from ttsbatch.engine.queue import JobQueue, Prefetch
from ttsbatch.engine.slots import Job
from ttsbatch.models.protocol import PAGE_SIZE, Seat
from ttsbatch.types import EngineStats, Failure, Segment

ROUNDS = [1, 4]


@pytest.fixture(params=ROUNDS, ids=lambda n: f"{n} frames per round")
def round_frames(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A round of one frame, as on a CPU, and of four, as on a GPU."""
    monkeypatch.setattr(decode, "CPU_FRAMES_PER_ROUND", request.param)
    return int(request.param)


@pytest.fixture(autouse=True)
def _small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of every size down to one slot, so that rows move in nearly every test."""
    monkeypatch.setattr(decode, "FEWEST_SLOTS_CAPTURED", 1)


def mixed(count: int) -> list[Segment]:
    """Rows of all lengths, half ended by themselves, half by their cap."""
    out = []
    for i in range(count):
        frames = 1 + i % 13
        if i % 2:
            out.append(segment(f"end {frames}", seed=i, name=str(i), cap=40))
        else:
            out.append(segment("run", seed=i, name=str(i), cap=frames))
    return out


def run(jobs: list[Job], num_slots: int, model: FakeLM | None = None) -> list[str]:
    """Ids in the order in which they end, each checked."""
    return [check(f) for f in loop_of(model or FakeLM(), num_slots).run(queue_of(jobs))]


@pytest.mark.parametrize("num_slots", [1, 2, 3, 8, 100])
def test_every_row_comes_once_and_right(num_slots: int, round_frames: int) -> None:
    jobs = [job(s) for s in mixed(40)]
    assert sorted(run(jobs, num_slots)) == sorted(str(i) for i in range(40))


@pytest.mark.parametrize("first", range(1, 9))
def test_rows_that_end_anywhere_in_a_round_do_not_touch_the_next_owner(
    first: int, round_frames: int
) -> None:
    """One slot: each row follows a row that ended at another place of its round."""
    texts = [f"end {first + i}" if i % 2 else "run" for i in range(9)]
    jobs = [
        job(segment(t, seed=i, name=str(i), cap=20 if i % 2 else first + i, expected_frames=9 - i))
        for i, t in enumerate(texts)
    ]
    assert sorted(run(jobs, 1)) == [str(i) for i in range(9)]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(-1, 12), st.integers(1, 12), st.integers(1, 40)), max_size=12
    ),
    num_slots=st.integers(1, 5),
    round_frames=st.sampled_from([1, 2, 3, 4, 8]),
    spare_pages=st.integers(0, 8),
)
def test_any_rows_in_any_slots_and_pages(
    rows: list[tuple[int, int, int]], num_slots: int, round_frames: int, spare_pages: int
) -> None:
    jobs = [
        job(
            segment(
                "run" if ends < 0 else f"end {ends}",
                seed=i,
                name=str(i),
                cap=cap,
                positions=positions,
            )
        )
        for i, (ends, cap, positions) in enumerate(rows)
    ]
    num_pages = 1 + max((j.num_pages for j in jobs), default=1) + spare_pages
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "CPU_FRAMES_PER_ROUND", round_frames)
        done = [check(f) for f in loop_of(FakeLM(), num_slots, num_pages).run(queue_of(jobs))]
    assert sorted(done) == sorted(str(i) for i in range(len(rows)))


def test_sizes_are_halves_of_all_slots_down_to_the_smallest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert decode.frame_sizes(1) == [1]
    assert decode.frame_sizes(5) == [1, 2, 3, 5]
    monkeypatch.setattr(decode, "FEWEST_SLOTS_CAPTURED", 16)
    assert decode.frame_sizes(512) == [16, 32, 64, 128, 256, 512]
    assert decode.frame_sizes(7) == [7]


def test_frames_get_smaller_as_the_last_rows_end(round_frames: int) -> None:
    """One row outlives the others by far: it must not cost frames of all slots."""
    model, stats = FakeLM(), EngineStats()
    rows = [segment("run", seed=i, name=str(i), cap=8) for i in range(7)]
    rows.append(segment("run", seed=7, name="7", cap=100, expected_frames=1))  # seated last
    done = [check(f) for f in loop_of(model, 8, stats=stats).run(queue_of(map(job, rows)))]
    assert sorted(done) == [str(i) for i in range(8)]
    assert model.slots_stepped[0] == 8
    assert set(model.slots_stepped[8 + 2 * round_frames :]) == {1}
    assert stats.total_slot_steps == sum(model.slots_stepped)


def test_frames_grow_again_for_rows_that_come_later(round_frames: int) -> None:
    """A row that needs all pages holds the others up: alone first, then they fill the slots."""
    model = FakeLM()
    rows = [segment("run", seed=0, name="0", cap=4 * PAGE_SIZE - 3, expected_frames=99)]
    rows += [segment("run", seed=i, name=str(i), cap=10) for i in range(1, 5)]
    done = [check(f) for f in loop_of(model, 4, 5).run(queue_of(map(job, rows)))]
    assert sorted(done) == [str(i) for i in range(5)]
    assert model.slots_stepped[0] == 1
    assert max(model.slots_stepped) == 4


def test_no_rows_end_at_once(round_frames: int) -> None:
    model = FakeLM()
    assert run([], 4, model) == []
    assert model.num_steps == 0


def test_rows_of_one_frame(round_frames: int) -> None:
    jobs = [job(segment("run", seed=i, name=str(i), cap=1)) for i in range(7)]
    assert len(run(jobs, 3)) == 7


def test_a_row_that_ends_before_its_first_frame_comes_back_empty(round_frames: int) -> None:
    jobs = [job(segment("end 0", name="none")), job(segment("end 2", seed=2, name="two"))]
    done = {check(f): f for f in loop_of(FakeLM(), 2).run(queue_of(jobs))}
    empty = done["none"]
    assert isinstance(empty, FinishedFrames)
    assert tuple(empty.frames.shape) == (0, SPEC.frame_width)
    assert empty.finish_reason == "stop"


def test_caps_are_kept_whatever_the_round(round_frames: int) -> None:
    jobs = [job(segment("run", seed=i, name=str(i), cap=i)) for i in range(1, 14)]
    for finished in loop_of(FakeLM(), 4).run(queue_of(jobs)):
        assert isinstance(finished, FinishedFrames)
        assert len(finished.frames) == finished.job.cap_frames
        assert finished.finish_reason == "length"


def test_codes_are_int16_and_a_copy(round_frames: int) -> None:
    loop = loop_of(FakeLM(), 1)
    jobs = [job(segment("run", seed=i, name=str(i), cap=5)) for i in range(3)]
    done = list(loop.run(queue_of(jobs)))  # later rows have overwritten the ring
    assert all(isinstance(f, FinishedFrames) and f.frames.dtype == torch.int16 for f in done)
    assert sorted(check(f) for f in done) == ["0", "1", "2"]


def test_the_longest_is_seated_first(round_frames: int) -> None:
    model = FakeLM()
    lengths = [3, 12, 7, 30, 1]
    jobs = [
        job(segment("run", seed=i, name=str(n), cap=n, expected_frames=n))
        for i, n in enumerate(lengths)
    ]
    run(jobs, 2, model)
    assert [name for _, _, name in model.seated] == ["30", "12", "7", "3", "1"]


@pytest.mark.parametrize("frames", range(1, 10))
def test_a_slot_is_refilled_in_the_round_after_its_flag_is_read(
    frames: int, round_frames: int
) -> None:
    """A row ends in round r; its flag is read behind the launch of r + 1; r + 2 has the next."""
    model = FakeLM()
    jobs = [
        job(segment("run", name="long", cap=60, expected_frames=60)),
        job(segment(f"end {frames}", seed=2, name="short", cap=60, expected_frames=9)),
        job(segment("end 1", seed=3, name="next", expected_frames=1)),
    ]
    run(jobs, 2, model)
    started = {name: steps for steps, _, name in model.seated}
    slots = {name: slot for _, slot, name in model.seated}
    rounds = -(-(frames + 1) // round_frames)  # the step that draws the end counts
    assert started == {"long": 0, "short": 0, "next": (rounds + 1) * round_frames}
    assert slots["next"] == slots["short"] != slots["long"]


@pytest.mark.parametrize("frames", range(1, 10))
def test_nothing_is_launched_for_rows_that_are_known_to_be_full(
    frames: int, round_frames: int
) -> None:
    model = FakeLM()
    jobs = [job(segment("run", seed=i, name=str(i), cap=frames)) for i in range(2)]
    run(jobs, 2, model)
    assert model.num_steps == -(-frames // round_frames) * round_frames


def test_every_slot_is_refilled(round_frames: int) -> None:
    model = FakeLM()
    jobs = [job(s) for s in mixed(60)]
    random.Random(0).shuffle(jobs)
    run(jobs, 4, model)
    uses = [slot for _, slot, _ in model.seated]
    assert len(uses) == 60
    assert min(uses.count(slot) for slot in range(4)) >= 3


def test_steps_have_few_shapes_and_the_seat_is_reset_before_its_first_step(
    round_frames: int,
) -> None:
    class Watched(FakeLM):
        shapes: set[torch.Size] = set()  # noqa: RUF012

        def step(self, state, rows, draw, bound):  # type: ignore[no-untyped-def]
            frame = super().step(state, rows, draw, bound)
            self.shapes.add(frame.values.shape)
            assert rows.age[rows.active].lt(rows.cap[rows.active]).all()
            return frame

    model = Watched()
    run([job(s) for s in mixed(20)], 3, model)
    sizes = {shape[0] for shape in model.shapes}
    assert {3} < sizes <= {1, 2, 3}


def test_the_fake_shows_a_slot_that_was_not_reset() -> None:
    class Forgets(FakeLM):
        def stage(self, state: FakeState, seats: list[Seat]) -> int:
            dirt = state.dirt.clone()
            num_tokens = super().stage(state, seats)
            if self.num_steps:
                state.dirt.copy_(dirt)
            return num_tokens

    jobs = [job(segment("end 3", seed=i, name=str(i))) for i in range(4)]
    with pytest.raises(AssertionError):
        run(jobs, 1, Forgets())


def test_prompts_are_packed_into_passes_of_bounded_size() -> None:
    model = FakeLM()
    jobs = [job(segment("end 3", seed=i, name=str(i), positions=150 + i)) for i in range(40)]
    assert len(run(jobs, 40, model)) == 40
    assert sum(model.staged_tokens) == sum(150 + i for i in range(40))
    assert max(model.staged_tokens) <= decode.PREFILL_BUCKETS[-1]
    assert len(model.staged_tokens) == 4  # 6780 tokens


def test_a_prompt_longer_than_a_pass_has_its_own() -> None:
    model = FakeLM(spec=replace(SPEC, max_positions=8192))
    longest = decode.PREFILL_BUCKETS[-1]
    positions = [3, longest + 700, 5, longest, longest - 1]
    jobs = [
        job(segment("end 3", seed=i, name=str(i), positions=n)) for i, n in enumerate(positions)
    ]
    loop = DecodeLoop(model, 8, 4096, 8192, EngineStats())
    assert sorted(check(f) for f in loop.run(queue_of(jobs))) == [str(i) for i in range(5)]
    assert model.staged_tokens.count(longest + 700) == 1


def test_rows_wait_for_pages_and_are_still_all_made(round_frames: int) -> None:
    """Pages for two rows, slots for eight."""
    model = FakeLM()
    cap = 3 * PAGE_SIZE - 3
    jobs = [job(segment(f"end {5 + i}", seed=i, name=str(i), cap=cap)) for i in range(6)]
    done = [check(f) for f in loop_of(model, 8, num_pages=7).run(queue_of(jobs))]
    assert sorted(done) == [str(i) for i in range(6)]
    assert [steps for steps, _, _ in model.seated].count(0) == 2


def test_refusals_come_out_and_the_others_go_on(round_frames: int) -> None:
    items: list[object] = []
    for i in range(12):
        said = segment("refuse" if i % 3 == 0 else f"end {i}", seed=i, name=str(i))
        made = FakeLM().prepare(said)
        items.append((said, made) if isinstance(made, Failure) else job(said))
    done = list(loop_of(FakeLM(), 2).run(queue_of(items)))  # type: ignore[arg-type]
    refused = [f for f in done if not isinstance(f, FinishedFrames)]
    assert sorted(s.utterance.id for s, _ in refused) == ["0", "3", "6", "9"]
    made_ids = [check(f) for f in done if isinstance(f, FinishedFrames)]
    assert sorted(made_ids, key=int) == [str(i) for i in range(12) if i % 3]


def test_only_refusals_end_the_loop_without_a_step() -> None:
    model = FakeLM()
    said = segment("refuse")
    failure = model.prepare(said)
    assert isinstance(failure, Failure)
    done = list(loop_of(model, 2).run(queue_of([(said, failure)] * 5)))
    assert len(done) == 5
    assert model.num_steps == 0


def test_stop_finishes_what_is_seated_and_begins_nothing_more(round_frames: int) -> None:
    model = FakeLM()
    jobs = [job(segment(f"end {3 + 5 * i}", seed=i, name=str(i), cap=200)) for i in range(30)]
    queue = queue_of(jobs)
    done: list[str] = []
    for finished in loop_of(model, 4).run(queue):
        done.append(check(finished))
        queue.stop()
    assert sorted(done) == sorted(name for _, _, name in model.seated)
    assert len(done) == 4


def test_a_loop_runs_again_after_its_end(round_frames: int) -> None:
    loop = loop_of(FakeLM(), 3)
    for _ in range(3):
        done = [check(f) for f in loop.run(queue_of([job(s) for s in mixed(10)]))]
        assert sorted(done, key=int) == [str(i) for i in range(10)]


def test_an_error_while_preparing_surfaces() -> None:
    def items() -> Iterator[Job]:
        yield job(segment("end 3"))
        raise OSError("disk gone")

    with (
        Prefetch(items(), 4, "test") as incoming,
        pytest.raises(OSError, match="disk gone"),
    ):
        list(loop_of(FakeLM(), 2).run(JobQueue(incoming, 4)))  # type: ignore[arg-type]


def test_finished_rows_are_not_kept() -> None:
    alive: weakref.WeakSet[object] = weakref.WeakSet()
    most = 0

    def items() -> Iterator[Job]:
        for i in range(400):
            made = job(segment(f"end {1 + i % 3}", seed=i, name=str(i)))
            alive.add(made.prompt.payload)
            yield made

    gc.disable()  # nothing may need the cycle collector
    try:
        with Prefetch(items(), 5, "test") as incoming:
            for finished in loop_of(FakeLM(), 4).run(JobQueue(incoming, 5)):  # type: ignore[arg-type]
                check(finished)
                del finished
                most = max(most, len(alive))
    finally:
        gc.enable()
    # Seated, looked ahead, prepared and in hand; a round's finished rows and their late flags.
    assert most <= 5 + 5 + 1 + 3 * 4


def test_stats_count_frames_and_slot_steps(round_frames: int) -> None:
    stats, model = EngineStats(), FakeLM()
    jobs = [job(s) for s in mixed(20)]
    done = list(loop_of(model, 3, stats=stats).run(queue_of(jobs)))
    frames = sum(len(f.frames) for f in done if isinstance(f, FinishedFrames))
    assert stats.num_slots == 3
    assert stats.busy_slot_steps == frames
    assert stats.num_steps == model.num_steps
    assert 3 * model.num_steps > stats.total_slot_steps == sum(model.slots_stepped) >= frames
    assert stats.prefill_tokens == sum(j.prompt.num_positions for j in jobs)
    assert stats.stage_seconds["decode"] > 0
    assert stats.stage_seconds["prefill"] > 0


def test_codes_differ_between_the_fakes_rows() -> None:
    """Or none of the above would show a row in another's place."""
    jobs = [job(s) for s in mixed(20)]
    firsts = {
        int(f.frames[0, 0])
        for f in loop_of(FakeLM(), 4).run(queue_of(jobs))
        if isinstance(f, FinishedFrames)
    }
    assert len(firsts) == 20
    assert max(firsts) < NUM_CODES
