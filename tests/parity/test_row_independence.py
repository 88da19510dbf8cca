"""A row's frames are its own: alone, in any batch, order and slot, fresh or refilled.

Sampled at the checkpoint's own settings through the real prompts and the slot engine, fp32 CPU.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import Tensor

from tests.families import CODEC_LMS, ONE_OF_EACH, QWEN3_CUSTOM_VOICE, Family
from tests.parity.rows import alone, job, jobs, speak
from ttsbatch.engine import decode
from ttsbatch.engine.decode import FinishedFrames
from ttsbatch.types import Sampling

pytestmark = pytest.mark.usefixtures("small_frames")
each_checkpoint = pytest.mark.parametrize("family", CODEC_LMS, ids=lambda f: f.name)
each_family = pytest.mark.parametrize("family", ONE_OF_EACH, ids=lambda f: f.name)
NEW = 0.1  # by which the first frames of two draws differ at least: another code, or latents


def check(family: Family, done: list[FinishedFrames]) -> None:
    for finished in done:
        name = finished.job.prompt.segment.utterance.id
        same(family, finished.frames, alone(family.name, name))


def same(family: Family, found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=family.frame_atol, rtol=0)


def other_names(family: Family) -> list[str]:
    """Rows that differ in kind from the usual ones."""
    return [r["id"] for r in family.rows if r["id"] not in ("short", "one", "long", "same")]


def test_rows_are_sampled_not_greedy() -> None:
    family = QWEN3_CUSTOM_VOICE
    draw = job(family, "long").prompt.draw
    assert draw.temperature == (0.9, 0.9)
    assert draw.top_k == (50, 50)
    (finished,) = speak(family, [job(family, "long", temperature=0.0)], 1)
    assert not torch.equal(finished.frames, alone(family.name, "long"))
    assert len(alone(family.name, "long").unique()) > 20


@each_family
def test_a_row_comes_out_the_same_again(family: Family) -> None:
    for name in ("short", other_names(family)[0]):
        check(family, speak(family, jobs(family, name), num_slots=1))


@each_checkpoint
@pytest.mark.parametrize(("num_slots", "shuffle"), [(1, 0), (3, 1), (8, 2)])
def test_a_row_is_the_same_in_any_batch_order_and_slot(
    family: Family, num_slots: int, shuffle: int
) -> None:
    names = [r["id"] for r in family.rows]
    random.Random(shuffle).shuffle(names)
    check(family, speak(family, jobs(family, *names), num_slots))


@each_family
def test_a_row_is_the_same_in_rounds_of_several_frames(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "CPU_FRAMES_PER_ROUND", 4)
    names = ["long", "one", "short", *other_names(family)[:2]]
    check(family, speak(family, jobs(family, *names), 2))


@each_family
@pytest.mark.parametrize("place", range(4))
def test_a_row_is_the_same_in_every_slot(family: Family, place: int) -> None:
    others = other_names(family)[:3]
    names = [*others[:place], "long", *others[place:]]
    check(family, speak(family, jobs(family, *names), num_slots=4))


@each_family
def test_a_row_is_the_same_beside_slots_that_end_and_stay_empty(family: Family) -> None:
    check(family, speak(family, jobs(family, "one", "long", "short"), num_slots=8))


@each_family
def test_a_row_is_the_same_beside_slots_that_are_refilled(family: Family) -> None:
    refills = ["short", "one", other_names(family)[-1], "same", "short", "one"]
    check(family, speak(family, jobs(family, "long", *refills), num_slots=2))


@each_family
def test_a_refilled_slot_is_as_good_as_a_fresh_one(family: Family) -> None:
    """One slot: short rows after the longest prompt, and the longest after short ones."""
    names = ["long", "short", other_names(family)[-1], "one", "long", "one"]
    check(family, speak(family, jobs(family, *names), num_slots=1))


@each_family
def test_a_row_beside_itself_says_the_same_twice(family: Family) -> None:
    check(family, speak(family, jobs(family, *["same"] * 5), num_slots=3))


@each_family
def test_another_seed_attempt_or_piece_says_something_else(family: Family) -> None:
    said = [
        job(family, "same", seed=18),
        job(family, "same", seed=18 + 1),
        job(family, "same", seed=18 + (1 << 32)),
        job(family, "same", seed=18, attempt=1),
        job(family, "same", seed=18, attempt=2),
        job(family, "same", seed=18, index=1),
    ]
    firsts = [f.frames[0].float() for f in speak(family, said, num_slots=3)]
    for one, other in itertools.combinations(firsts, 2):  # from the first frame on
        assert (one - other).abs().max() > NEW


@each_family
def test_the_same_words_of_another_row_are_drawn_with_its_own_seed(family: Family) -> None:
    short, same_words = alone(family.name, "short"), alone(family.name, "same")
    assert (short[0].float() - same_words[0]).abs().max() > NEW


@each_family
def test_neighbours_with_other_settings_do_not_change_a_row(family: Family) -> None:
    wild = itertools.cycle(family.other_sampling)
    names = ("same", *other_names(family)[:2])
    others = [job(family, n, **dict(s)) for n, s in zip(names, wild, strict=False)]
    plain = jobs(family, "long", "short")
    done = speak(family, [others[0], plain[0], *others[1:], plain[1]], 3)
    usual = [f for f in done if f.job.prompt.segment.utterance.sampling == Sampling()]
    assert len(usual) == 2
    check(family, usual)
