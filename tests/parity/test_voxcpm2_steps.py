"""Solver steps of the tiny VoxCPM2: as many evaluations as rows of a run ask, none of them felt.

fp32 on a CPU.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from tests.parity.voxcpm2 import ATOL, CPU, FIXTURE, network
from tests.parity.voxcpm2_rows import model, run, segment
from ttsbatch.engine.budget import make_job
from ttsbatch.engine.slots import Job
from ttsbatch.models.protocol import PreparedPrompt
from ttsbatch.models.voxcpm2.card import open_card
from ttsbatch.models.voxcpm2.model import VoxCPM2, load
from ttsbatch.types import MOST_STEPS, Demand, Failure, Sampling


@cache
def loaded(*steps: int | None) -> VoxCPM2:
    """The checkpoint for a run whose rows ask for these steps."""
    return load(open_card(str(FIXTURE)), CPU, torch.float32, Demand(steps=frozenset(steps)))


def job(m: VoxCPM2, name: str, steps: int | None) -> Job:
    said = segment("long", sampling=Sampling(steps=steps), max_seconds=1.0)
    prompt = m.prepare(replace(said, utterance=replace(said.utterance, id=name)))
    assert isinstance(prompt, PreparedPrompt)
    return make_job(prompt, m.spec)


def alone(m: VoxCPM2, steps: int | None) -> Tensor:
    return run(m, [job(m, "row", steps)], 1)["row"].frames


@pytest.mark.parametrize(
    ("steps", "evaluations"),
    [((6,), 5), ((None,), 9), ((6, None), 9), ((12, None, 3), 11), ((20,), 19), ((), 9)],
)
def test_a_patch_has_the_evaluations_of_the_most_steps_that_a_row_asks(
    steps: tuple[int | None, ...], evaluations: int
) -> None:
    m = loaded(*steps)
    calls = []
    velocity = m.network.dit.velocity
    m.network.dit.velocity = lambda *a: calls.append(1) or velocity(*a)  # type: ignore
    try:
        frames = run(m, [job(m, "row", next(iter(steps), None))], 1)["row"].frames
    finally:
        del m.network.dit.velocity
    assert len(calls) == evaluations * len(frames) > 0


@pytest.mark.parametrize("most", [10, 12, 20, MOST_STEPS])
def test_evaluations_that_a_row_does_not_need_change_no_bit_of_it(most: int) -> None:
    expected = alone(loaded(6), 6)
    assert len(expected) == 6
    assert torch.equal(alone(loaded(6, most), 6), expected)
    assert torch.equal(alone(loaded(None, most), None), alone(model(), None))


def test_a_row_of_6_steps_is_the_same_alone_and_beside_rows_of_12() -> None:
    m = loaded(6, 12)
    rows = [("six", 6), ("twelve", 12), ("ten", None), ("again", 6), ("more", 12)]
    done = run(m, [job(m, name, steps) for name, steps in rows], 3)
    for name, steps in rows:
        expected = alone(loaded(steps), steps)
        torch.testing.assert_close(done[name].frames, expected, atol=ATOL, rtol=0)
    assert (done["six"].frames[0] - done["twelve"].frames[0]).abs().max() > 1e-3


def test_the_time_that_a_row_hears_does_not_depend_on_the_steps_of_others() -> None:
    few, many = (network().dit.schedule(n) for n in (6, MOST_STEPS))
    assert few.num_evaluations == 5
    assert torch.equal(few.time[6], many.time[6, :5])
    assert torch.equal(few.width[6], many.width[6, :5])
    assert (many.width[6, 5:] == 0).all()


@pytest.mark.parametrize("steps", [12, None])
def test_steps_that_the_model_was_not_loaded_for_are_refused(steps: int | None) -> None:
    refused = loaded(6).prepare(segment("long", sampling=Sampling(steps=steps)))
    assert isinstance(refused, Failure)
    assert refused.reason == "unsupported_option"
    assert f"takes {steps or 10} solver steps; the model was loaded for 2 to 6" in refused.message
