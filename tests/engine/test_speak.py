"""The speaker: prepare, decode and vocode as one, over the fake model."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.fake import SPEC, FakeLM, FakeState, expected_codes, job, segment
from ttsbatch.engine import decode, speak
from ttsbatch.engine.speak import FEWEST_SLOTS, MOST_SLOTS, CodecLMSpeaker, choose_sizes
from ttsbatch.errors import EngineError
from ttsbatch.models.protocol import PAGE_SIZE, Draw, Frame, PreparedPrompt, SlotTensors
from ttsbatch.types import Failure, Segment, Waveform

CPU = torch.device("cpu")
PAGE_BYTES = SPEC.kv_bytes_per_position * PAGE_SIZE


def texts(count: int) -> list[Segment]:
    return [
        segment(f"end {1 + i % 17}", seed=i, name=str(i), attempt=i % 3, index=i % 4)
        for i in range(count)
    ]


def check(item: object) -> str:
    """A waveform that is its segment's own."""
    assert isinstance(item, Waveform)
    codes, reason = expected_codes(job(item.segment))
    audio = FakeLM().decode_audio(torch.from_numpy(codes)[None])[0].numpy()
    np.testing.assert_array_equal(item.samples, np.round(audio * np.float32(32767)))
    assert item.num_frames == len(codes)
    assert item.finish_reason == reason
    assert item.num_nonfinite == 0
    return item.segment.utterance.id


@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("round_frames", [1, 4])
def test_every_segment_is_spoken_once(
    slots: int, round_frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "CPU_FRAMES_PER_ROUND", round_frames)
    done = [check(w) for w in CodecLMSpeaker(FakeLM(), slots).speak(texts(50))]
    assert sorted(done, key=int) == [str(i) for i in range(50)]


def test_no_segments_give_nothing() -> None:
    assert list(CodecLMSpeaker(FakeLM(), 2).speak([])) == []


def test_a_speaker_speaks_again_after_its_end() -> None:
    speaker = CodecLMSpeaker(FakeLM(), 3)
    for _ in range(3):
        done = [check(w) for w in speaker.speak(texts(12))]
        assert sorted(done, key=int) == [str(i) for i in range(12)]


def test_another_attempt_and_another_piece_are_other_speech() -> None:
    segments = [
        segment("end 5", seed=1, attempt=attempt, index=index)
        for attempt in range(3)
        for index in range(3)
    ]
    waves = list(CodecLMSpeaker(FakeLM(), 4).speak(segments))
    for wave in waves:
        check(wave)
    assert len({w.samples.tobytes() for w in waves if isinstance(w, Waveform)}) == 9


def test_a_retry_fed_in_while_others_are_spoken_is_spoken_too() -> None:
    again: list[Segment] = []
    fed = 0

    def feed() -> Iterator[Segment]:
        nonlocal fed
        yield from texts(40)
        while again:
            fed += 1
            yield again.pop()

    speaker = CodecLMSpeaker(FakeLM(), 2)
    done: list[str] = []
    for wave in speaker.speak(feed()):
        done.append(check(wave))
        if isinstance(wave, Waveform) and wave.segment.attempt == 0:
            again.append(replace(wave.segment, attempt=5))
    done += [check(w) for w in speaker.speak(list(again))]  # those that came too late
    assert len(done) == 40 + fed + len(again)
    assert sorted(set(done), key=int) == [str(i) for i in range(40)]


def test_refused_segments_come_with_their_failure_and_the_others_go_on() -> None:
    segments = [
        segment("refuse" if i % 4 == 0 else "end 6", seed=i, name=str(i)) for i in range(20)
    ]
    done = list(CodecLMSpeaker(FakeLM(), 3).speak(segments))
    failures = [x for x in done if not isinstance(x, Waveform)]
    assert sorted(s.line for s in (s.utterance for s, _ in failures)) == [0, 4, 8, 12, 16]
    for said, failure in failures:
        assert failure.utterance_id == said.utterance.id
        assert (failure.stage, failure.reason) == ("prepare", "ref_unreadable")
    assert sum(isinstance(x, Waveform) for x in done) == 15


def test_a_prompt_that_cannot_fit_is_too_long_and_the_others_are_made() -> None:
    long_prompt = segment("run", seed=7, name="prompt", cap=5, positions=256)
    fits = segment("run", seed=9, name="fits", cap=253)  # 3 + 253 = 256 positions
    done = list(CodecLMSpeaker(FakeLM(), 2).speak([*texts(5), long_prompt, fits]))
    ((said, failure),) = [x for x in done if isinstance(x, tuple)]
    assert said is long_prompt
    assert (failure.stage, failure.reason) == ("prepare", "too_long")
    assert "the prompt takes 256 positions, there are 256" in failure.message
    assert {check(x) for x in done if isinstance(x, Waveform)} == {*"01234", "fits"}


def test_text_that_cannot_be_fed_in_frame_by_frame_is_too_long_however_short_the_row() -> None:
    endless = segment("run", seed=7, name="endless", cap=5, following=254)
    fits = segment("run", seed=9, name="fits", cap=5, following=253)  # 3 + 253 = 256 positions
    done = list(CodecLMSpeaker(FakeLM(), 2).speak([*texts(5), endless, fits]))
    ((said, failure),) = [x for x in done if isinstance(x, tuple)]
    assert (said, failure.stage, failure.reason) == (endless, "prepare", "too_long")
    assert "the prompt takes 257 positions, there are 256" in failure.message
    assert {check(x) for x in done if isinstance(x, Waveform)} == {*"01234", "fits"}


def lengths(done: list[Waveform | tuple[Segment, Failure]]) -> dict[str, tuple[int, str]]:
    """Frames and end of each row made."""
    waves = [x for x in done if isinstance(x, Waveform)]
    return {w.segment.utterance.id: (w.num_frames, w.finish_reason) for w in waves}


def test_speech_that_cannot_fit_is_cut_where_the_pages_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speak, "CPU_KV_BYTES", 5 * PAGE_BYTES)
    segments = [segment("run", seed=n, name=str(n), cap=n) for n in (5, 30, 77, 78, 200)]
    made = lengths(list(CodecLMSpeaker(FakeLM(), 4).speak(segments)))
    expected = {"5": 5, "30": 30, "77": 77, "78": 77, "200": 77}  # 5 pages of 16 less the prompt
    assert made == {name: (frames, "length") for name, frames in expected.items()}


def test_no_row_passes_the_positions_of_the_model() -> None:
    model = FakeLM(spec=replace(SPEC, max_positions=100))
    segments = [segment("run", seed=n, name=str(n), cap=n) for n in (96, 106)]
    made = lengths(list(CodecLMSpeaker(model, 2).speak(segments)))
    assert made == {"96": (96, "length"), "106": (97, "length")}


def test_a_row_without_a_frame_fails_and_the_others_are_made() -> None:
    segments = [segment("end 0", seed=4, name="none"), segment("end 2", seed=5, name="two")]
    done = list(CodecLMSpeaker(FakeLM(), 2).speak(segments))
    ((said, failure),) = [x for x in done if isinstance(x, tuple)]
    assert said is segments[0]
    assert (failure.stage, failure.reason) == ("engine", "engine_error")
    assert failure.message == "the model ended before the first frame"
    assert [check(x) for x in done if isinstance(x, Waveform)] == ["two"]


def test_an_error_of_the_segments_surfaces() -> None:
    def broken() -> Iterator[Segment]:
        yield from texts(3)
        raise OSError("corpus gone")

    with pytest.raises(OSError, match="corpus gone"):
        list(CodecLMSpeaker(FakeLM(), 2).speak(broken()))


def test_a_bug_in_prepare_fails_its_row_and_the_others_are_made() -> None:
    segments = [segment("end 3"), segment("crash", seed=2, name="bad"), segment("end 4", seed=3)]
    done = list(CodecLMSpeaker(FakeLM(), 2).speak(segments))
    ((said, failure),) = [x for x in done if isinstance(x, tuple)]
    assert said is segments[1]
    assert (failure.stage, failure.reason) == ("prepare", "engine_error")
    assert failure.message == "RuntimeError: a bug in prepare"
    assert len({check(x) for x in done if isinstance(x, Waveform)}) == 2


def test_segments_are_pulled_on_another_thread_which_ends_with_the_speech() -> None:
    threads: set[threading.Thread] = set()

    def watched() -> Iterator[Segment]:
        for said in texts(10):
            threads.add(threading.current_thread())
            yield said

    assert len(list(CodecLMSpeaker(FakeLM(), 2).speak(watched()))) == 10
    assert threading.current_thread() not in threads
    assert not any(t.is_alive() for t in threads)


def test_the_thread_ends_when_the_speech_is_given_up() -> None:
    threads: set[threading.Thread] = set()

    def endless() -> Iterator[Segment]:
        threads.add(threading.current_thread())
        seed = 0
        while True:
            seed += 1
            yield segment("end 3", seed=seed)

    speech = CodecLMSpeaker(FakeLM(), 2).speak(endless())
    next(speech)
    speech.close()  # type: ignore[attr-defined]
    assert threads
    assert not any(t.is_alive() for t in threads)


def test_speech_that_is_given_up_does_not_wait_for_the_end_of_a_row() -> None:
    class Slow(FakeLM):
        def step(self, state: FakeState, rows: SlotTensors, draw: Draw, bound: int) -> Frame:
            time.sleep(0.1)
            return super().step(state, rows, draw, bound)

    model = Slow()
    speech = CodecLMSpeaker(model, 2).speak([segment("end 1"), segment("run", seed=2, cap=250)])
    next(speech)
    speech.close()  # type: ignore[attr-defined]
    assert model.num_steps < 50


def test_a_speaker_that_was_given_up_speaks_again() -> None:
    speaker = CodecLMSpeaker(FakeLM(), 2)
    speech = speaker.speak(texts(50))
    next(speech)
    speech.close()  # type: ignore[attr-defined]
    done = [check(w) for w in speaker.speak(texts(50))]
    assert sorted(done, key=int) == [str(i) for i in range(50)]


@pytest.mark.parametrize("error", [MemoryError("malloc failed"), OSError("disk gone")])
def test_an_error_of_the_source_is_not_taken_for_the_devices(error: Exception) -> None:
    def source() -> Iterator[Segment]:
        yield from texts(20)
        raise error

    speaker = CodecLMSpeaker(FakeLM(), 4)
    with pytest.raises(type(error), match=str(error)):
        list(speaker.speak(source()))
    assert speaker.stats.notes == []
    assert speaker.stats.num_slots == 4


def test_stop_finishes_what_is_seated_and_begins_nothing_more() -> None:
    model = FakeLM()
    speaker = CodecLMSpeaker(model, 3)
    done: list[str] = []
    begun = 0
    for wave in speaker.speak(segment("run", seed=i, name=str(i), cap=150) for i in range(500)):
        done.append(check(wave))
        if not begun:
            speaker.stop()
            begun = len(model.seated)
    assert sorted(done) == sorted(name for _, _, name in model.seated)
    assert len(done) <= begun + 3  # the loop's thread may have been seating just then
    assert len(done) < 500


def test_a_speaker_stopped_before_it_speaks_begins_nothing() -> None:
    model = FakeLM()
    speaker = CodecLMSpeaker(model, 3)
    speaker.stop()
    assert list(speaker.speak(texts(10))) == []


def test_the_corpus_is_never_held_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speak, "MIN_LOOKAHEAD", 8)
    monkeypatch.setattr(speak, "LOOKAHEAD_PER_SLOT", 2)
    monkeypatch.setattr(speak, "WAVEFORMS_AHEAD", 8)
    monkeypatch.setattr(speak, "PREPARED_AHEAD", 2)
    alive: weakref.WeakSet[object] = weakref.WeakSet()

    class Watched(FakeLM):
        def prepare(self, segment: Segment) -> PreparedPrompt | Failure:
            made = super().prepare(segment)
            assert isinstance(made, PreparedPrompt)
            alive.add(made.payload)
            return made

    most = pulled = 0

    def source() -> Iterator[Segment]:
        nonlocal pulled
        for i in range(300):
            pulled += 1
            yield segment(f"end {5 + i % 9}", seed=i, name=str(i))

    gc.disable()
    try:
        spoken = 0
        for wave in CodecLMSpeaker(Watched(), 4).speak(source()):
            assert isinstance(wave, Waveform)
            spoken += 1
            del wave
            most = max(most, len(alive), pulled - spoken)
    finally:
        gc.enable()
    assert spoken == 300
    # 2 prepared, 8 queued, 4 seated, 8 made; a few of each in hand or with late flags.
    assert most < 2 + 8 + 4 + 8 + 12


def test_codes_come_with_the_waveform_on_request() -> None:
    for wave in CodecLMSpeaker(FakeLM(), 3, keep_codes=True).speak(texts(10)):
        assert isinstance(wave, Waveform)
        codes, _ = expected_codes(job(wave.segment))
        assert wave.codes is not None
        assert wave.codes.dtype == np.int16
        np.testing.assert_array_equal(wave.codes, codes)
    for wave in CodecLMSpeaker(FakeLM(), 3).speak(texts(4)):
        assert isinstance(wave, Waveform)
        assert wave.codes is None


def test_stats_name_device_slots_and_stages() -> None:
    speaker = CodecLMSpeaker(FakeLM(), 3)
    frames = sum(w.num_frames for w in speaker.speak(texts(30)) if isinstance(w, Waveform))
    assert speaker.stats.devices == ["cpu"]
    assert speaker.stats.num_slots == 3
    assert speaker.stats.busy_slot_steps == frames
    assert {"prepare", "prefill", "decode", "codec"} <= set(speaker.stats.stage_seconds)
    assert all(s > 0 for s in speaker.stats.stage_seconds.values())


def test_slots_get_pages_for_their_longest_rows() -> None:
    sizes = choose_sizes(SPEC, CPU, 4, 1 << 30)
    assert (sizes.num_slots, sizes.num_pages) == (4, 4 * 16 + 1)  # page 0 is nobody's
    assert sizes.max_positions == SPEC.max_positions


def test_without_a_wish_device_memory_and_job_decide_on_slots() -> None:
    cuda = torch.device("cuda")
    row = 16 * PAGE_BYTES  # of the fake's longest row
    assert choose_sizes(SPEC, CPU, None, 1 << 40).num_slots == MOST_SLOTS["cpu"]
    assert choose_sizes(SPEC, cuda, None, 1 << 40).num_slots == MOST_SLOTS["cuda"]
    assert choose_sizes(SPEC, cuda, None, 100 * row).num_slots == 100
    assert choose_sizes(SPEC, cuda, None, 1 << 40, num_parallel=21).num_slots == 24
    assert choose_sizes(SPEC, cuda, None, 1 << 40, num_parallel=500).num_slots == 512
    assert choose_sizes(SPEC, cuda, None, 1 << 40, num_parallel=1).num_slots == FEWEST_SLOTS
    assert choose_sizes(SPEC, cuda, 4, 1 << 40, num_parallel=1).num_slots == 4


def not_captured() -> EngineError:
    """As a capture raises it, from what it met."""
    error = EngineError("cuda:0: a frame of 32 slots of size 1024 cannot be captured: CUBLAS")
    error.__cause__ = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")
    return error


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
        not_captured(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_out_of_memory_at_the_start_halves_the_slots_and_says_so(error: Exception) -> None:
    class ShortOfMemory(FakeLM):
        def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> Any:
            if num_slots > 8:
                raise error
            return super().new_state(num_slots, num_pages, max_positions)

    speaker = CodecLMSpeaker(ShortOfMemory(), 32)
    assert speaker.stats.num_slots == 8
    assert speaker.stats.notes == [
        "out of memory with 32 slots; trying 16",
        "out of memory with 16 slots; trying 8",
    ]
    assert len(list(speaker.speak(texts(12)))) == 12


def test_memory_for_no_slots_is_an_error() -> None:
    class Full(FakeLM):
        def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(EngineError, match="out of memory"):
        CodecLMSpeaker(Full(), 32)


@pytest.mark.parametrize("error", [EngineError("a frame cannot be captured"), TypeError("none")])
def test_other_errors_at_the_start_are_not_met_with_fewer_slots(error: Exception) -> None:
    class Broken(FakeLM):
        def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> Any:
            slots_made.append(num_slots)
            raise error

    slots_made: list[int] = []
    with pytest.raises(type(error), match=str(error)):
        CodecLMSpeaker(Broken(), 32)
    assert slots_made == [32]


@pytest.mark.parametrize("pages", [4, 5, 15, 16, 17, 63, 64, 65])
def test_little_memory_gives_fewer_pages_and_shorter_rows(pages: int) -> None:
    sizes = choose_sizes(SPEC, CPU, 4, pages * PAGE_BYTES + PAGE_BYTES - 1)
    assert sizes.num_pages == min(pages, 64) + 1
    assert sizes.max_positions == min(pages, 16) * PAGE_SIZE


@pytest.mark.parametrize("pages", [0, 3])
def test_less_than_a_page_per_slot_is_an_error_that_says_what_helps(pages: int) -> None:
    with pytest.raises(EngineError, match=rf"hold {pages} pages .* 4 slots .* fewer --slots"):
        choose_sizes(SPEC, CPU, 4, pages * PAGE_BYTES)


def test_rows_of_a_run_that_broke_off_do_not_come_out_of_the_next() -> None:
    speaker = CodecLMSpeaker(FakeLM(), 4)
    first = speaker.speak(texts(20))
    next(first)
    first.close()  # type: ignore[attr-defined]
    later = [segment("end 3", seed=n, name=f"later {n}") for n in range(6)]
    made = [x.segment.utterance.id for x in speaker.speak(later) if isinstance(x, Waveform)]
    assert sorted(made) == sorted(f"later {n}" for n in range(6))
