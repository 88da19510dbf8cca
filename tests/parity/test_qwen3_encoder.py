"""The codec encoder against the published code: equal codes on a CPU."""

from __future__ import annotations

import json

import pytest
import torch

from tests.parity.qwen3_codec import FOLDER, load
from ttsbatch.models.qwen3_tts.codec_config import parse_codec_config
from ttsbatch.models.qwen3_tts.codec_encoder import CodecEncoder
from ttsbatch.models.qwen3_tts.codec_weights import load_codec_weights, random_encoder_weights

CLIPS = ["ref0", "ref1", "enc_odd"]
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def raw():
    return json.loads((FOLDER / "config.json").read_text())


@pytest.fixture(scope="module")
def encoder(raw):
    config = parse_codec_config(raw, "config.json")
    weights = load_codec_weights(FOLDER / "model.safetensors", config)[1]
    return CodecEncoder(config.encoder, weights, "cpu")


@pytest.fixture(scope="module")
def golden():
    return load("codec.npz")


@pytest.fixture(scope="module")
def waves():
    return load("waves.npz")


@pytest.mark.parametrize("clip", CLIPS)
def test_codes_of_a_single_clip_equal_the_published_ones(clip, encoder, golden, waves):
    codes = encoder.encode(waves[clip][None])
    assert codes.shape == (1, -(-len(waves[clip]) // 1920), 16)
    assert torch.equal(codes[0].int(), golden[f"encode.{clip}.codes"])


@pytest.mark.gpu
@pytest.mark.parametrize("clip", CLIPS)
def test_codes_on_a_gpu_differ_in_one_frame_at_most(clip, raw, golden, waves):
    config = parse_codec_config(raw, "config.json")
    weights = load_codec_weights(FOLDER / "model.safetensors", config)[1]
    before = torch.backends.cudnn.conv.fp32_precision
    codes = CodecEncoder(config.encoder, weights, "cuda").encode(waves[clip][None].cuda())
    assert torch.backends.cudnn.conv.fp32_precision == before
    # The closest decision in the goldens has a margin of 1e-5, so a tie may fall the other way.
    differing = (codes[0].int().cpu() != golden[f"encode.{clip}.codes"]).any(dim=1)
    assert differing.sum() <= 1


@torch.inference_mode()
def test_every_stage_equals_the_published_codec(encoder, golden, waves):
    convolved = encoder.convolve(waves["enc_odd"][None])
    transformed = encoder.transform(convolved)
    downsampled = encoder.downsample(transformed)
    for found, name in (
        (convolved[0], "conv_out"),
        (transformed[0].T, "transformer_out"),
        (downsampled[0], "downsampled"),
    ):
        expected = golden[f"encode.enc_odd.{name}"]
        assert found.shape == expected.shape
        assert (found - expected).abs().max() < TOLERANCE, name


def test_clips_of_any_lengths_get_the_codes_they_get_alone(encoder, golden, waves):
    names = [*CLIPS, "ref1", "enc_odd"]
    together = encoder.encode_clips([waves[x] for x in names])
    assert len(together) == len(names)
    for name, codes in zip(names, together, strict=True):
        assert torch.equal(codes.int(), golden[f"encode.{name}.codes"])


def test_clip_of_whole_frames_may_be_padded(encoder, golden, waves):
    odd = waves["enc_odd"]
    padded = torch.nn.functional.pad(waves["ref0"], (0, len(odd) - len(waves["ref0"])))
    codes = encoder.encode(torch.stack([padded, odd]))
    assert torch.equal(codes[0, :16].int(), golden["encode_batch.row0.codes"])
    assert torch.equal(codes[1].int(), golden["encode_batch.row1.codes"])


@pytest.mark.parametrize("num_samples", [1, 959, 1920, 1921])
def test_shortest_clips_fill_up_their_last_frame(num_samples, encoder):
    codes = encoder.encode(torch.randn(1, num_samples) * 0.1)
    assert codes.shape == (1, -(-num_samples // 1920), 16)
    assert 0 <= codes.min() <= codes.max() < 64


@pytest.mark.parametrize(
    ("samples_per_frame", "quantizers", "positions"), [(960, 8, 1), (3840, 4, 4)]
)
def test_other_rates_and_codebook_counts_work(raw, samples_per_frame, quantizers, positions):
    changed = raw | {
        "encode_downsample_rate": samples_per_frame,
        "encoder_valid_num_quantizers": quantizers,
    }
    config = parse_codec_config(changed, "config.json").encoder
    assert config.downsampling == positions
    weights = random_encoder_weights(config, torch.Generator().manual_seed(2), "cpu")
    codes = CodecEncoder(config, weights, "cpu").encode(torch.randn(2, 9000) * 0.1)
    assert codes.shape == (2, -(-9000 // samples_per_frame), quantizers)
    assert len(codes.unique()) > 2


def test_more_residual_layers_per_stage_are_numbered_in_order(raw):
    changed = raw | {"encoder_config": raw["encoder_config"] | {"num_residual_layers": 2}}
    config = parse_codec_config(changed, "config.json").encoder
    weights = random_encoder_weights(config, torch.Generator().manual_seed(2), "cpu")
    assert "encoder.layers.2.block.1.conv.weight" in weights  # the second unit
    assert "encoder.layers.4.conv.weight" in weights  # then an activation, then the strided one
    encoder = CodecEncoder(config, weights, "cpu")
    assert [unit.narrow.dilation for unit in encoder.stages[0][0]] == [1, 2]
    assert encoder.encode(torch.randn(1, 4000)).shape == (1, 3, 16)
