"""Device memory runs out in the middle of a run: all rows but one that cannot fit are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine.fake import FakeLM, FakeState, segment
from tests.engine.test_speak import check, texts
from ttsbatch.engine.device import is_out_of_memory
from ttsbatch.engine.speak import CodecLMSpeaker
from ttsbatch.errors import EngineError
from ttsbatch.models.protocol import Draw, Frame, Seat, SlotTensors
from ttsbatch.types import Segment, Waveform


@dataclass
class Short(FakeLM):
    """Raises where a condition of the test holds; counts."""

    step_fails: Callable[[int], bool] = lambda num_rows: False
    stage_fails: Callable[[list[str]], bool] = lambda ids: False
    codec_fails: Callable[[int], bool] = lambda num_frames: False
    slots_made: list[int] = field(default_factory=list)
    num_failures: int = 0

    def fail_if(self, fails: bool) -> None:
        if fails:
            self.num_failures += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB\nmore")

    def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> FakeState:
        self.slots_made.append(num_slots)
        return super().new_state(num_slots, num_pages, max_positions)

    def stage(self, state: FakeState, seats: list[Seat]) -> int:
        self.fail_if(self.stage_fails([s.prompt.segment.utterance.id for s in seats]))
        return super().stage(state, seats)

    def step(self, state: FakeState, rows: SlotTensors, draw: Draw, bound: int) -> Frame:
        self.fail_if(self.step_fails(int(rows.active.sum())))
        return super().step(state, rows, draw, bound)

    def decode_audio(self, codes: Tensor) -> Tensor:
        self.fail_if(self.codec_fails(codes.shape[1]))
        return super().decode_audio(codes)


def spoken(model: FakeLM, slots: int, segments: list[Segment]) -> tuple[list[str], dict[str, str]]:
    """(ids made, each seen to be right; messages of the refused ones, by id)."""
    made, refused = [], {}
    speaker = CodecLMSpeaker(model, slots)
    for item in speaker.speak(segments):
        if isinstance(item, Waveform):
            made.append(check(item))
        else:
            assert (item[1].stage, item[1].reason) == ("engine", "engine_error")
            refused[item[0].utterance.id] = item[1].message
    return sorted(made, key=int), refused


NAMES = [str(i) for i in range(40)]


def test_too_many_rows_at_once_halve_the_slots_and_every_row_is_made() -> None:
    model = Short(step_fails=lambda num_rows: num_rows > 3)
    assert spoken(model, 8, texts(40)) == (NAMES, {})
    assert model.slots_made == [8, 4, 2]


def test_a_single_failure_repeats_no_row_in_what_comes_out() -> None:
    model = Short()
    model.step_fails = lambda num_rows: model.num_steps == 12 and model.num_failures == 0
    assert spoken(model, 8, texts(40)) == (NAMES, {})
    assert model.num_failures == 1
    assert model.slots_made == [8, 4]


def test_a_row_that_fails_alone_is_refused_and_the_slots_stay() -> None:
    model = Short(stage_fails=lambda ids: "17" in ids)
    made, refused = spoken(model, 8, texts(40))
    assert made == [n for n in NAMES if n != "17"]
    assert list(refused) == ["17"]
    assert refused["17"] == (
        "out of memory with this row alone: CUDA out of memory. Tried to allocate 20 GiB"
    )
    assert model.slots_made == [8]


def test_several_such_rows_are_each_refused() -> None:
    bad = {"0", "3", "4", "5", "39"}
    made, refused = spoken(Short(stage_fails=lambda ids: bool(bad & set(ids))), 4, texts(40))
    assert made == [n for n in NAMES if n not in bad]
    assert set(refused) == bad


def test_codec_without_memory_for_a_row_refuses_that_row() -> None:
    segments = [
        *texts(10),
        segment("end 99", seed=99, name="10", expected_frames=99),
        *texts(12)[11:],
    ]
    made, refused = spoken(Short(codec_fails=lambda frames: frames > 50), 4, segments)
    assert made == [str(i) for i in (*range(10), 11)]
    assert list(refused) == ["10"]


def test_no_memory_at_all_refuses_every_row_and_ends() -> None:
    model = Short(step_fails=lambda num_rows: True)
    made, refused = spoken(model, 4, texts(9))
    assert made == []
    assert len(refused) == 9


def test_notes_say_what_happened() -> None:
    speaker = CodecLMSpeaker(Short(step_fails=lambda num_rows: num_rows > 4), 8)
    assert len(list(speaker.speak(texts(20)))) == 20
    assert speaker.stats.notes == [
        "out of memory with 8 rows in 8 slots; to be decoded again apart from the others",
        "going on with 4 slots",
    ]
    assert speaker.stats.num_slots == 4


def test_fewer_slots_that_cannot_be_allocated_either_are_halved_on() -> None:
    class Fuller(Short):
        def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> Any:
            state = super().new_state(num_slots, num_pages, max_positions)
            self.fail_if(num_slots in (4, 2))
            return state

    model = Fuller(step_fails=lambda num_rows: num_rows > 3)
    assert spoken(model, 8, texts(20)) == (NAMES[:20], {})
    assert model.slots_made == [8, 4, 2, 1]


def test_other_errors_after_halving_are_not_met_with_fewer_slots() -> None:
    class Broken(Short):
        def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> Any:
            state = super().new_state(num_slots, num_pages, max_positions)
            if num_slots < 8:
                raise EngineError("a frame cannot be captured")
            return state

    model = Broken(step_fails=lambda num_rows: num_rows > 3)
    with pytest.raises(EngineError, match="cannot be captured"):
        spoken(model, 8, texts(20))
    assert model.slots_made == [8, 4]


def test_what_was_counted_before_halving_still_counts() -> None:
    speaker = CodecLMSpeaker(Short(step_fails=lambda num_rows: num_rows > 3), 4)
    counts = []
    for _ in speaker.speak(texts(20)):
        counts.append((speaker.stats.eager_steps, speaker.stats.codec_graph_misses))
    assert speaker.stats.num_slots == 2
    assert counts == sorted(counts)
    assert speaker.stats.eager_steps > speaker.stats.num_steps  # and the prefills
    assert speaker.stats.codec_graph_misses >= 5


def test_memory_that_never_comes_back_is_an_error() -> None:
    class Gone(Short):
        def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> Any:
            state = super().new_state(num_slots, num_pages, max_positions)
            self.fail_if(num_slots < 4)
            return state

    with pytest.raises(EngineError, match="out of memory"):
        spoken(Gone(step_fails=lambda num_rows: num_rows > 3), 4, texts(20))


def test_the_longest_row_still_fits_after_halving() -> None:
    segments = [segment("run", seed=i, name=str(i), cap=253) for i in range(6)]  # 256 positions
    made, refused = spoken(Short(step_fails=lambda num_rows: num_rows > 1), 4, segments)
    assert (made, refused) == ([str(i) for i in range(6)], {})


ILLEGAL = "CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("error", "expected", "told"),
    [
        (RuntimeError(f"{ILLEGAL}\nCompile with DSA"), EngineError, f"cpu: {ILLEGAL}"),
        (EngineError("cuda:0: CUDA: told"), EngineError, "cuda:0: CUDA: told"),
        (RuntimeError("a shape is wrong"), RuntimeError, "a shape is wrong"),
        (TypeError("CUDA"), TypeError, "CUDA"),
    ],
)
def test_other_errors_of_the_loop_still_surface(
    error: Exception, expected: type[Exception], told: str
) -> None:
    class Broken(FakeLM):
        def step(self, state: FakeState, rows: SlotTensors, draw: Draw, bound: int) -> Frame:
            raise error

    with pytest.raises(expected) as caught:
        list(CodecLMSpeaker(Broken(), 2).speak(texts(3)))
    assert str(caught.value) == told


def test_an_error_of_the_device_surfaces_as_one_while_rows_are_decoded_apart_too() -> None:
    class Lost(FakeLM):
        num_calls = 0

        def step(self, state: FakeState, rows: SlotTensors, draw: Draw, bound: int) -> Frame:
            self.num_calls += 1
            short = torch.OutOfMemoryError("CUDA out of memory")
            raise short if self.num_calls == 1 else RuntimeError(f"{ILLEGAL}\nCompile with DSA")

    with pytest.raises(EngineError, match=f"^cpu: {ILLEGAL}$"):
        list(CodecLMSpeaker(Lost(), 2).speak(texts(3)))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("[enforce] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_that_mean_no_memory_are_told_from_others(
    error: BaseException, expected: bool
) -> None:
    assert is_out_of_memory(error) is expected
