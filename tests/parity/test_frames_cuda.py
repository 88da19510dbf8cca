"""Sampled rows of every family on a GPU in float32: graphs = eager, in any batch and order = alone.

The tiny checkpoints through all kernels. Another device sums in another order, so what is compared
with a CPU is rows whose frames follow from no rounded reference, and latents within a bound.
"""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from tests.families import CODEC_LMS, ONE_OF_EACH, Family
from tests.parity.rows import alone, jobs, speak
from ttsbatch.kernels.launch import fallbacks

pytestmark = pytest.mark.gpu
ATOL = 1e-3  # of latents; a patch feeds the next


def check(family: Family, found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    atol = ATOL if family.frame_atol else 0.0
    torch.testing.assert_close(found.cpu(), expected.cpu(), atol=atol, rtol=0)


@pytest.mark.usefixtures("small_frames")
@pytest.mark.parametrize("use_graphs", [True, False], ids=["graphs", "eager"])
@pytest.mark.parametrize("num_slots", [3, 16])
@pytest.mark.parametrize("family", CODEC_LMS, ids=lambda f: f.name)
def test_a_row_is_the_same_with_and_without_graphs_in_any_batch_and_order(
    family: Family, num_slots: int, use_graphs: bool
) -> None:
    names = [r["id"] for r in family.rows]
    random.Random(num_slots).shuffle(names)
    rows = jobs(family, *names, device="cuda")
    before = fallbacks.copy()
    for finished in speak(family, rows, num_slots, "cuda", use_graphs):
        name = finished.job.prompt.segment.utterance.id
        check(family, finished.frames, alone(family.name, name, "cuda"))
    assert fallbacks == before


@pytest.mark.parametrize("name", ["short", "same", "one", "long"])
@pytest.mark.parametrize("family", ONE_OF_EACH, ids=lambda f: f.name)
def test_a_row_is_the_one_that_a_cpu_makes(family: Family, name: str) -> None:
    check(family, alone(family.name, name, "cuda"), alone(family.name, name))
