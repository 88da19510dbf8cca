"""The first patches of a golden run of VoxCPM2, in which every operation launches its kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.parity.voxcpm2 import ATOL, config, golden
from tests.parity.voxcpm2_rows import golden_model, golden_prompt, run
from ttsbatch.engine.budget import make_job
from ttsbatch.kernels import (
    advance_rows,
    guided_step,
    launch,
    local_attention,
    packed_attention,
    paged_attention,
    rms_norm,
    rope_store,
    silu_mul,
)

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="needs Triton's interpreter")

KERNELS = (
    (advance_rows, "_advance_rows_kernel"),
    (guided_step, "_guided_step_kernel"),
    (local_attention, "_local_attention_kernel"),
    (packed_attention, "_packed_attention_kernel"),
    (paged_attention, "_attend_kernel"),
    (rms_norm, "_rms_norm_kernel"),
    (rope_store, "_rope_store_kernel"),
    (silu_mul, "_silu_mul_kernel"),
)
NUM_PATCHES = 2
EVALUATIONS = 9  # of ten solver steps


@pytest.fixture(autouse=True)
def _kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "INTERPRET", True)


def test_patches_through_every_kernel_are_the_golden_ones(
    launches: Callable[..., list[str]],
) -> None:
    mode, m = "zero_shot", golden_model()
    prompt = golden_prompt(mode)
    job = replace(make_job(prompt, m.spec), cap_frames=NUM_PATCHES)
    logs = [launches(module, name) for module, name in KERNELS]

    found = run(m, [job], 1)[mode].frames

    latents = golden(f"gen.{mode}.vae_input")[0].T.unflatten(0, (-1, config().patch_size))
    torch.testing.assert_close(found, latents[:NUM_PATCHES].flatten(1), atol=ATOL, rtol=0)
    counts = Counter(name for log in logs for name in log)
    steps = counts["_advance_rows_kernel"]  # one each; the end is read a step late
    c = config()
    paged = c.lm.num_layers + c.residual.num_layers
    inner = EVALUATIONS * c.dit.num_layers + c.encoder.num_layers
    assert steps >= NUM_PATCHES
    assert counts == {
        "_advance_rows_kernel": steps,
        "_guided_step_kernel": EVALUATIONS * steps,
        "_local_attention_kernel": inner * steps,
        "_packed_attention_kernel": paged,
        "_attend_kernel": paged * steps,
        # Two a layer and one before each stack; LocDiT's tokens that stay are normed once.
        "_rms_norm_kernel": (2 * paged + 2) * (1 + steps) + (2 * inner + EVALUATIONS + 2) * steps,
        "_rope_store_kernel": paged * (1 + steps),
        "_silu_mul_kernel": paged * (1 + steps) + inner * steps,
    }
