"""A short greedy generation, and its codec, in which every operation launches its kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.parity.qwen3 import FIXTURE, check, generate, model, rows
from ttsbatch.kernels import (
    advance_rows,
    causal_conv,
    embed_rms_norm,
    embed_sum,
    last_conv,
    launch,
    packed_attention,
    paged_attention,
    predictor_attention,
    qk_norm_rope,
    rms_norm,
    sampler,
    silu_mul,
    snake_beta,
)
from ttsbatch.models.qwen3_tts.codec import CodecDecoder
from ttsbatch.models.qwen3_tts.codec_weights import load_codec_weights

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="needs Triton's interpreter")

DECODE_KERNELS = (
    (advance_rows, "_advance_rows_kernel"),
    (embed_rms_norm, "_embed_rms_norm_kernel"),
    (embed_sum, "_embed_sum_kernel"),
    (packed_attention, "_packed_attention_kernel"),
    (paged_attention, "_attend_kernel"),
    (paged_attention, "_merge_kernel"),
    (predictor_attention, "_predictor_attention_kernel"),
    (qk_norm_rope, "_qk_norm_rope_kernel"),
    (rms_norm, "_rms_norm_kernel"),
    (sampler, "_sampler_kernel"),
    (silu_mul, "_silu_mul_kernel"),
)
SAMPLES_PER_FRAME = 1920


@pytest.fixture(autouse=True)
def _kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "INTERPRET", True)


def test_greedy_codes_through_every_kernel_are_the_golden_ones(
    monkeypatch: pytest.MonkeyPatch, launches: Callable[..., list[str]]
) -> None:
    case, index = "cv_instruct_b3", 2  # 4 frames, then the end token
    row = rows(case)[index]
    # The first frames attend in one pass, the later ones in splits.
    assert row.prompt.num_positions == 20
    monkeypatch.setattr(paged_attention, "ONE_PASS_LENGTH", 22)
    monkeypatch.setattr(paged_attention, "TOKENS_PER_SPLIT", 16)
    logs = [launches(module, name) for module, name in DECODE_KERNELS]

    check(row, generate([row], num_slots=1)[f"{case}/{index}"])

    counts = Counter(name for log in logs for name in log)
    steps = counts["_embed_sum_kernel"]  # one each; the end is read a step late
    split = steps - 3  # bounds 20, 21 and 22 are one pass
    config = model("custom-voice").config
    layers, passes = config.talker.stack.num_layers, config.talker.num_codebooks - 1
    inner = config.predictor.stack.num_layers * passes  # layers of a frame's predictor
    assert steps >= 5
    assert counts == {
        "_advance_rows_kernel": steps,
        "_embed_rms_norm_kernel": passes * steps,
        "_embed_sum_kernel": steps,
        "_packed_attention_kernel": layers,
        "_attend_kernel": layers * steps,
        "_merge_kernel": layers * split,
        "_predictor_attention_kernel": inner * steps,
        "_qk_norm_rope_kernel": layers * (1 + steps),
        # Two a layer; one before the first in prefill and step, not in the predictor's lookup.
        "_rms_norm_kernel": (2 * layers + 1) * (1 + steps) + 2 * inner * steps,
        "_sampler_kernel": (1 + passes) * steps,
        "_silu_mul_kernel": layers * (1 + steps) + inner * steps,
    }


@pytest.mark.parametrize("fused", [True, False])
@torch.inference_mode()
def test_samples_through_the_codec_kernels_are_the_golden_ones(
    fused: bool, launches: Callable[..., list[str]]
) -> None:
    row = rows("cv_b3")[0]
    codes, expected = row.golden("codes"), row.golden("wav")
    assert codes is not None
    assert expected is not None
    config = model("custom-voice").config.codec
    file = FIXTURE / "custom-voice" / "speech_tokenizer" / "model.safetensors"
    weights, _ = load_codec_weights(file, config)
    decoder = CodecDecoder(config.decoder, weights, "cpu", fused=fused)
    norms = launches(rms_norm, "_rms_norm_kernel")
    convolutions = launches(causal_conv, "_causal_conv_kernel")
    last = launches(last_conv, "_last_conv_kernel")
    snakes = launches(snake_beta, "_snake_beta_kernel")

    frames = 1  # the codec is causal: a prefix decodes to the prefix
    found = decoder.decode(torch.from_numpy(codes[None, :frames]).long())[0]

    np.testing.assert_allclose(found, expected[: frames * SAMPLES_PER_FRAME], atol=1e-4)
    blocks = len(config.decoder.upsample_rates)
    assert len(norms) == 2 * config.decoder.num_layers + 1
    assert len(last) == int(fused)
    assert len(snakes) == (0 if fused else 7 * blocks + 1)
    assert (len(convolutions) > 4 * blocks) if fused else not convolutions
