"""The vocoder as a chain of fused convolutions against the plain one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.parity.qwen3_codec import FAST
from ttsbatch.kernels import launch
from ttsbatch.models.qwen3_tts import codec_vocoder
from ttsbatch.models.qwen3_tts.codec import CodecDecoder
from ttsbatch.models.qwen3_tts.codec_weights import random_decoder_weights
from ttsbatch.models.qwen3_tts.official import random_config

# Widths 24, 12 and 6: units in one launch; 3 and 2 rows per row.
SMALL = replace(FAST, upsample_rates=(3, 2), decoder_dim=24)


def weights_of(config, device="cpu"):
    return random_decoder_weights(config, torch.Generator(device).manual_seed(5), device)


def codes_of(config, batch, frames, device="cpu"):
    torch.manual_seed(7)
    shape = (batch, frames, config.num_quantizers)
    return torch.randint(0, config.codebook_size, shape, device=device)


@pytest.fixture
def launches(monkeypatch):
    """Counts of the fused calls of a run."""
    log = []

    def counted(name):
        operation = getattr(codec_vocoder, name)

        def run(*args, **kwargs):
            log.append(name)
            return operation(*args, **kwargs)

        return run

    for name in ("causal_conv", "last_conv"):
        monkeypatch.setattr(codec_vocoder, name, counted(name))
    return log


def decode_interpreted(decoder, codes, monkeypatch):
    """Front half plain, the vocoder through the kernels themselves."""
    x = decoder.upsample(decoder.transform(decoder.pre_conv(decoder.dequantize(codes))))
    monkeypatch.setattr(launch, "INTERPRET", True)
    return decoder.synthesize(x)


@torch.inference_mode()
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs Triton's interpreter")
def test_fused_vocoder_equals_the_plain_one(monkeypatch, launches):
    weights, codes = weights_of(SMALL), codes_of(SMALL, 2, 6)
    expected = CodecDecoder(SMALL, weights, "cpu").decode(codes)
    fused = CodecDecoder(SMALL, weights, "cpu", fused=True)
    found = decode_interpreted(fused, codes, monkeypatch)
    assert found.dtype == torch.float32
    assert found.shape == (2, 6 * SMALL.samples_per_frame)
    assert (found - expected).abs().max() < 1e-4
    assert expected.std() > 0.01
    assert launches == ["causal_conv"] * (1 + 2 * 4) + ["last_conv"]


@torch.inference_mode()
def test_units_in_two_launches_equal_the_plain_ones(launches):
    wide = replace(FAST, upsample_rates=(2,), decoder_dim=288)  # 144 channels: past one tile
    weights, codes = weights_of(wide), codes_of(wide, 2, 3)
    expected = CodecDecoder(wide, weights, "cpu").decode(codes)
    found = CodecDecoder(wide, weights, "cpu", fused=True).decode(codes)
    assert (found - expected).abs().max() < 1e-4
    assert launches == ["causal_conv"] * (1 + 1 + 2 * 3) + ["last_conv"]


@torch.inference_mode()
def test_residual_stream_in_float32_is_closer_than_in_bfloat16():
    weights, codes = weights_of(SMALL), codes_of(SMALL, 2, 6)
    plain = CodecDecoder(SMALL, weights, "cpu")
    x = plain.upsample(plain.transform(plain.pre_conv(plain.dequantize(codes))))
    expected = plain.synthesize(x)

    def noise(residual_dtype):
        vocoder = codec_vocoder.FusedVocoder(
            SMALL, weights, torch.device("cpu"), torch.bfloat16, residual_dtype
        )
        return float((vocoder(x) - expected).square().mean() / expected.square().mean())

    assert noise(torch.float32) < noise(torch.bfloat16) < 1e-3  # -30 dB


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_vocoder_on_a_cpu_is_plain(dtype):
    assert CodecDecoder(SMALL, weights_of(SMALL), "cpu", dtype).fused is None


@pytest.mark.gpu
def test_half_precision_on_a_gpu_is_fused_and_float32_is_plain():
    weights = weights_of(SMALL)
    assert CodecDecoder(SMALL, weights, "cuda").fused is None
    assert CodecDecoder(SMALL, weights, "cuda", torch.bfloat16).fused is not None


@pytest.mark.gpu
def test_a_plain_vocoder_on_a_gpu_counts_as_a_fallback():
    weights, codes = weights_of(SMALL), codes_of(SMALL, 1, 2).cuda()
    before = launch.fallbacks.copy()
    CodecDecoder(SMALL, weights, "cuda", torch.bfloat16).decode(codes)
    assert launch.fallbacks == before
    CodecDecoder(SMALL, weights, "cuda").decode(codes)
    assert launch.fallbacks - before == {"codec vocoder": 1}


@pytest.mark.gpu
@torch.inference_mode()
@pytest.mark.parametrize("size", ["small", "published"])
def test_fused_bfloat16_decode_in_a_graph_is_close_to_float32(size):
    published = random_config("qwen3-tts-1.7b-base").codec.decoder
    config = {"small": SMALL, "published": published}[size]
    weights = weights_of(config, "cuda")
    codes = codes_of(config, 3, 13, "cuda")
    right = CodecDecoder(config, weights, "cuda").decode(codes)
    fused = CodecDecoder(config, weights, "cuda", torch.bfloat16)
    eager = fused.decode(codes)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = fused.decode(codes)
    graph.replay()
    assert torch.equal(captured, eager)
    noise = (eager - right).square().mean() / right.square().mean()
    assert noise < 0.01  # -20 dB


@torch.inference_mode()
@pytest.mark.parametrize("one_launch", [True, False])
def test_trial_calls_launch_every_variant_of_a_decode(one_launch, monkeypatch):
    """What is compiled for a convolution depends on its weight and on what is fused with it."""
    monkeypatch.setattr(codec_vocoder, "takes_pointwise", lambda *_: one_launch)
    decoder = CodecDecoder(SMALL, weights_of(SMALL), "cpu", fused=True)
    variants = set()

    def noted(x, weight, bias, dilation=1, **fused):
        given = tuple(sorted(name for name, value in fused.items() if value is not None))
        variants.add((weight.shape, given))
        return causal_conv(x, weight, bias, dilation=dilation, **fused)

    causal_conv = codec_vocoder.causal_conv
    monkeypatch.setattr(codec_vocoder, "causal_conv", noted)
    decoder.decode(codes_of(SMALL, 1, 2))
    decoded = variants.copy()
    variants.clear()
    for call in decoder.fused.trial_calls():
        call()
    assert variants == decoded
    assert len(variants) == (7 if one_launch else 9)
