"""A row's codes are its own: alone, in any batch, order and slot, fresh or refilled.

Sampled at the checkpoint's own settings through the real prompts and the slot engine, fp32 CPU.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from tests.parity.qwen3 import model
from ttsbatch.engine import decode
from ttsbatch.engine.budget import make_job
from ttsbatch.engine.decode import DecodeLoop, FinishedFrames
from ttsbatch.engine.queue import JobQueue, Prefetch
from ttsbatch.engine.slots import Job
from ttsbatch.models.protocol import PreparedPrompt
from ttsbatch.types import EngineStats, Sampling, Segment, Utterance

ROWS = [  # id, text, voice, language, seed, frames
    ("short", "Hi.", "ryan", "en", 11, 3),
    ("one", "Yes, one frame.", "serena", "auto", 12, 1),
    (
        "long",
        "A much longer line, of many more words than the others have.",
        "vivian",
        "en",
        13,
        20,
    ),
    ("german", "Guten Morgen, Berlin!", "ryan", "de", 14, 4),
    ("chinese", "你好，世界。今天天气很好。", "eric", "zh", 15, 6),
    ("same text", "Hi.", "ryan", "en", 16, 3),
    ("dialect", "吃了吗？", "dylan", "auto", 17, 2),
    ("digits", "Call 555-0199 at 7:45.", "vivian", "en", 18, 8),
]


@pytest.fixture(autouse=True)
def _small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of every size down to one slot: rows change slots as others end."""
    monkeypatch.setattr(decode, "FEWEST_SLOTS_CAPTURED", 1)


def segment(name: str, attempt: int = 0, index: int = 0, seed: int | None = None) -> Segment:
    row = next(r for r in ROWS if r[0] == name)
    _, text, voice, language, own_seed, frames = row
    utterance = Utterance(
        id=name,
        text=text,
        spoken_text=text,
        source="rows.jsonl",
        line=1,
        voice=voice,
        language=language,
        seed=own_seed if seed is None else seed,
        max_seconds=frames / model("custom-voice").spec.frame_rate_hz,
    )
    return Segment(utterance, index, text, attempt)


def job(said: Segment) -> Job:
    m = model("custom-voice")
    prompt = m.prepare(said)
    assert isinstance(prompt, PreparedPrompt)
    return make_job(prompt, m.spec)


def speak(jobs: list[Job], num_slots: int) -> list[FinishedFrames]:
    """Codes of the jobs, seated in the order given."""
    loop = DecodeLoop(
        model("custom-voice"),
        num_slots,
        num_pages=num_slots * 8 + 1,
        max_positions=128,
        stats=EngineStats(),
    )
    with Prefetch(jobs, 64, "jobs") as incoming:
        done = list(loop.run(JobQueue(incoming, lookahead=1)))  # type: ignore[arg-type]
    out = [f for f in done if isinstance(f, FinishedFrames)]
    assert len(out) == len(jobs)
    return out


@cache
def alone(name: str) -> np.ndarray:
    """The row's codes in a loop of one slot that has never held another."""
    (finished,) = speak([job(segment(name))], num_slots=1)
    return finished.frames.numpy()


def check(done: list[FinishedFrames]) -> None:
    for finished in done:
        u = finished.job.prompt.segment.utterance
        np.testing.assert_array_equal(finished.frames.numpy(), alone(u.id), err_msg=u.id)


def every_row() -> list[Job]:
    return [job(segment(name)) for name, *_ in ROWS]


def test_rows_are_sampled_not_greedy() -> None:
    draw = job(segment("long")).prompt.draw
    assert draw.temperature == (0.9, 0.9)
    assert draw.top_k == (50, 50)
    greedy = segment("long")
    greedy = replace(greedy, utterance=replace(greedy.utterance, sampling=Sampling(0.0)))
    (finished,) = speak([job(greedy)], 1)
    assert not np.array_equal(finished.frames.numpy(), alone("long"))
    assert len(np.unique(alone("long"))) > 20


def test_a_row_comes_out_the_same_again() -> None:
    for name in ("digits", "dialect"):
        check(speak([job(segment(name))], num_slots=1))


@pytest.mark.parametrize(("num_slots", "shuffle"), [(1, 0), (3, 1), (8, 2)])
def test_a_row_is_the_same_in_any_batch_order_and_slot(num_slots: int, shuffle: int) -> None:
    jobs = every_row()
    random.Random(shuffle).shuffle(jobs)
    check(speak(jobs, num_slots))


def test_a_row_is_the_same_in_rounds_of_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decode.FRAMES_PER_ROUND, "cpu", 4)
    check(speak([job(segment(n)) for n in ("long", "one", "short", "german", "dialect")], 2))


@pytest.mark.parametrize("place", range(4))
def test_a_row_is_the_same_in_every_slot(place: int) -> None:
    others = [job(segment(n)) for n in ("german", "chinese", "digits")]
    check(speak([*others[:place], job(segment("long")), *others[place:]], num_slots=4))


def test_a_row_is_the_same_beside_slots_that_end_and_stay_empty() -> None:
    check(speak([job(segment(n)) for n in ("one", "long", "short")], num_slots=8))


def test_a_row_is_the_same_beside_slots_that_are_refilled() -> None:
    refills = ["short", "one", "dialect", "same text", "short", "one", "german"]
    check(speak([job(segment(n)) for n in ["long", *refills]], num_slots=2))


def test_a_refilled_slot_is_as_good_as_a_fresh_one() -> None:
    """One slot: short rows after the longest prompt, and the longest after short ones."""
    names = ["long", "short", "digits", "one", "long", "one", "chinese", "dialect"]
    check(speak([job(segment(n)) for n in names], num_slots=1))


def test_a_row_beside_itself_says_the_same_twice() -> None:
    check(speak([job(segment("digits")) for _ in range(5)], num_slots=3))


def test_another_seed_attempt_or_piece_says_something_else() -> None:
    said = [
        segment("digits"),
        segment("digits", seed=18 + 1),
        segment("digits", seed=18 + (1 << 32)),
        segment("digits", attempt=1),
        segment("digits", attempt=2),
        segment("digits", index=1),
    ]
    together = [f.frames.numpy() for f in speak([job(s) for s in said], num_slots=3)]
    assert len({codes.tobytes() for codes in together}) == len(said)
    first = {codes[0].tobytes() for codes in together}
    assert len(first) == len(said)  # different from the first frame on


def test_the_same_words_of_another_row_are_drawn_with_its_own_seed() -> None:
    short, same = alone("short"), alone("same text")
    common = min(len(short), len(same))
    assert not np.array_equal(short[:common], same[:common])


def test_neighbours_with_other_settings_do_not_change_a_row() -> None:
    wild = Sampling(temperature=3.0, top_k=5, top_p=0.5, repetition_penalty=2.0)
    others = []
    for name in ("german", "chinese", "short"):
        said = segment(name)
        others.append(job(replace(said, utterance=replace(said.utterance, sampling=wild))))
    done = speak([others[0], job(segment("long")), *others[1:], job(segment("digits"))], 3)
    plain = [f for f in done if f.job.prompt.segment.utterance.sampling == Sampling()]
    assert len(plain) == 2
    check(plain)


def test_threads_of_torch_are_one() -> None:
    """Float sums repeat only with a fixed number of threads."""
    assert torch.get_num_threads() == 1
