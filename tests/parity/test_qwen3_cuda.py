"""The tiny checkpoints on a GPU in fp32: kernels and graphs give the golden codes."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from tests.parity.qwen3 import CHECKPOINTS, INDEX, all_rows, generate

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("small_frames")]


@pytest.mark.parametrize("use_graphs", [True, False])
@pytest.mark.parametrize("num_slots", [3, 16])
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_codes_equal_the_goldens(checkpoint: str, num_slots: int, use_graphs: bool) -> None:
    everything = all_rows(checkpoint, "cuda")
    random.Random(0).shuffle(everything)
    done = generate(everything, num_slots, "cuda", use_graphs)
    deviations = []
    for row in everything:
        ours = done[f"{row.case}/{row.index}"].frames.cpu().numpy()
        golden = row.golden("codes")
        if ours.shape != golden.shape or not np.array_equal(ours, golden):
            case = INDEX[row.case]
            margin = min(case["min_top2_margin_talker"], case["min_top2_margin_predictor"])
            deviations.append((row.case, row.index, margin))
    assert not deviations


def test_sampled_codes_of_designed_voices_are_the_same_with_and_without_graphs() -> None:
    rows = all_rows("voice-design", "cuda", temperature=None)  # no family of `test_frames_cuda`
    graphed = generate(rows, 4, "cuda", use_graphs=True)
    eager = generate(rows, 4, "cuda", use_graphs=False)
    for name, finished in graphed.items():
        assert torch.equal(finished.frames, eager[name].frames)
