"""Rows of any family as jobs of the slot engine, and the frames that they become."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor

from tests.families import CODEC_LMS, Family
from tests.parity.loops import run_loop
from ttsbatch.engine.budget import make_job
from ttsbatch.engine.decode import FinishedFrames
from ttsbatch.engine.slots import Job
from ttsbatch.models.protocol import PreparedPrompt
from ttsbatch.types import Segment


def job(
    family: Family, name: str, attempt: int = 0, index: int = 0, device: str = "cpu", **fields: Any
) -> Job:
    """A row of the family with other fields."""
    utterance, model = family.utterance(name, **fields), family.load(device)
    prompt = model.prepare(Segment(utterance, index, utterance.spoken_text, attempt))
    assert isinstance(prompt, PreparedPrompt)
    return make_job(prompt, model.spec)


def jobs(family: Family, *names: str, device: str = "cpu") -> list[Job]:
    """Rows of the family."""
    return [job(family, name, device=device) for name in names]


def speak(
    family: Family, jobs: list[Job], num_slots: int, device: str = "cpu", use_graphs: bool = True
) -> list[FinishedFrames]:
    """Frames of the jobs, seated in the order given."""
    return run_loop(family.load(device), jobs, num_slots, use_graphs)


@cache
def alone(model: str, name: str, device: str = "cpu") -> Tensor:
    """The row's frames in a loop of one slot that has never held another, without graphs."""
    family = next(f for f in CODEC_LMS if f.name == model)
    (finished,) = speak(family, [job(family, name, device=device)], 1, device, use_graphs=False)
    return finished.frames
