"""The codec decoder against the published code, and against what its structure promises."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from tests.engine.fake import SPEC, FakeLM, job, segment
from tests.parity.qwen3_codec import FAST, FOLDER, load
from ttsbatch.engine.decode import FinishedFrames
from ttsbatch.engine.vocode import Vocoder
from ttsbatch.errors import ModelError
from ttsbatch.models.qwen3_tts.codec import CodecDecoder
from ttsbatch.models.qwen3_tts.codec_config import parse_codec_config
from ttsbatch.models.qwen3_tts.codec_specs import decoder_specs, encoder_specs, unused_codec_specs
from ttsbatch.models.qwen3_tts.codec_weights import load_codec_weights, random_decoder_weights
from ttsbatch.models.qwen3_tts.model import CODEC_CONTEXT_FRAMES, CODEC_WINDOW_FRAMES
from ttsbatch.models.qwen3_tts.official import random_config
from ttsbatch.models.tensor_specs import num_parameters
from ttsbatch.types import EngineStats

RATE = 1920
TOLERANCE = 1e-4  # float sums of another order and thread count

FAST_REACH = 16  # frames back: 2 of attention, the rest convolutions


@pytest.fixture(scope="module")
def config():
    return parse_codec_config(json.loads((FOLDER / "config.json").read_text()), "config.json")


@pytest.fixture(scope="module")
def weights(config):
    return load_codec_weights(FOLDER / "model.safetensors", config)[0]


@pytest.fixture(scope="module")
def decoder(config, weights):
    return CodecDecoder(config.decoder, weights, "cpu")


@pytest.fixture(scope="module")
def golden():
    return load("codec.npz")


@pytest.fixture(scope="module")
def fast():
    weights = random_decoder_weights(FAST, torch.Generator().manual_seed(1), "cpu")
    return CodecDecoder(FAST, weights, "cpu")


def distance(found, expected):
    assert found.shape == expected.shape
    return (found.float() - expected).abs().max().item()


def vocoded(decoder, codes, window=CODEC_WINDOW_FRAMES, context=CODEC_CONTEXT_FRAMES):
    """A row's codes [F, Q] as the engine decodes them, in passes; [N] f32, rounded to int16."""
    model = FakeLM(
        spec=replace(
            SPEC,
            frame_width=codes.shape[1],
            samples_per_frame=decoder.config.samples_per_frame,
            codec_window_frames=window,
            codec_context_frames=context,
        )
    )
    model.decode_audio = decoder.decode
    vocoder = Vocoder(model, EngineStats(), keep_codes=False)
    vocoder.add(FinishedFrames(job(segment("run")), codes.to(torch.int16), "stop"))
    (wave,) = vocoder.drain()
    return torch.from_numpy(wave.samples).float() / 32767


@torch.inference_mode()
def test_every_stage_equals_the_published_codec(decoder, golden):
    quantized = decoder.dequantize(golden["decode36.codes"][None])
    pre_conv = decoder.pre_conv(quantized)
    transformed = decoder.transform(pre_conv)
    upsampled = decoder.upsample(transformed)
    assert distance(quantized[0], golden["decode36.quantized"]) < TOLERANCE
    assert distance(pre_conv[0], golden["decode36.pre_conv"]) < TOLERANCE
    assert distance(transformed[0].T, golden["decode36.pre_transformer"]) < TOLERANCE
    assert distance(upsampled[0], golden["decode36.upsampled"]) < TOLERANCE


@pytest.mark.parametrize("name", ["decode36", "decode1"])
def test_waveform_equals_the_published_codec(name, decoder, golden):
    wave = decoder.decode(golden[f"{name}.codes"][None])
    assert wave.dtype == torch.float32
    assert wave.abs().max() <= 1
    assert distance(wave[0], golden[f"{name}.wav"]) < TOLERANCE


def test_right_padded_batch_equals_the_published_batch(decoder, golden):
    codes = golden["decode36.codes"]
    batch = torch.full((2, 20, 16), -1)
    batch[0], batch[1, :7] = codes[:20], codes[5:12]
    waves = decoder.decode(batch)
    assert distance(waves[0], golden["decode_batch.row0.wav"]) < TOLERANCE
    assert distance(waves[1, : 7 * RATE], golden["decode_batch.row1.wav"]) < TOLERANCE


def test_long_clip_is_cut_where_the_published_codec_cuts(decoder, golden):
    wave = vocoded(decoder, golden["decode326.codes"])
    tail = golden["decode326.chunked_wav_frames_292_326"]
    assert distance(wave[292 * RATE :], tail) < TOLERANCE
    assert distance(wave[::97], golden["decode326.chunked_wav_every_97th_sample"]) < TOLERANCE


def test_single_pass_over_a_long_clip_equals_the_published_one(decoder, golden):
    wave = decoder.decode(golden["decode326.codes"][None])[0]
    tail = golden["decode326.single_pass_wav_frames_292_326"]
    assert distance(wave[292 * RATE :], tail) < TOLERANCE
    # The two ways do differ, so the test above can tell them apart.
    assert distance(tail, golden["decode326.chunked_wav_frames_292_326"]) > 100 * TOLERANCE


def test_bfloat16_stays_close_to_float32(config, weights, golden):
    decoder = CodecDecoder(config.decoder, weights, "cpu", torch.bfloat16)
    wave = decoder.decode(golden["decode36.codes"][None])[0]
    right = golden["decode36.wav"]
    assert wave.dtype == torch.float32
    noise = (wave - right).square().mean() / right.square().mean()
    assert noise < 0.01  # -20 dB; bf16 keeps 8 bits


def test_other_rates_and_codebook_counts_give_their_own_sample_counts(fast):
    assert FAST.samples_per_frame == 960
    wave = fast.decode(torch.randint(0, 300, (3, 11, 8)))
    assert wave.shape == (3, 11 * 960)
    assert wave.isfinite().all()
    assert 0.01 < wave.std() < 0.7


def test_windows_with_enough_context_equal_one_pass_at_other_rates(fast):
    codes = torch.randint(0, 300, (40, 8))
    whole = fast.decode(codes[None])[0]
    assert distance(vocoded(fast, codes, window=20, context=FAST_REACH), whole) < TOLERANCE
    assert distance(vocoded(fast, codes, window=20, context=1), whole) > TOLERANCE


def test_later_frames_never_reach_back(fast):
    codes = torch.randint(0, 300, (1, 20, 8))
    other = codes.clone()
    other[:, 12:] = (other[:, 12:] + 1) % 300
    before, after = fast.decode(codes)[0], fast.decode(other)[0]
    assert distance(before[: 12 * 960], after[: 12 * 960]) < 1e-5
    assert distance(before[12 * 960 :], after[12 * 960 :]) > 0.01


def test_clip_longer_than_the_first_position_table_is_decoded(fast):
    codes = torch.randint(0, 300, (1, 530, 8))
    whole = fast.decode(codes)[0]
    tail = fast.decode(codes[:, 500:])[0]
    assert distance(whole[-10 * 960 :], tail[-10 * 960 :]) < TOLERANCE


def test_published_sizes_add_up_to_the_published_file():
    config = random_config("qwen3-tts-1.7b-base").codec
    tables = [
        decoder_specs(config.decoder),
        encoder_specs(config.encoder),
        unused_codec_specs(config),
    ]
    assert sum(len(x) for x in tables) == 496
    assert sum(num_parameters(x) for x in tables) == 170_557_441
    assert config.frame_rate_hz == 12.5


def test_random_weights_of_the_published_shape_are_neither_silent_nor_clipped():
    published = random_config("qwen3-tts-1.7b-base").codec.decoder
    narrow = replace(published, decoder_dim=192, latent_dim=128)  # the depth is what matters
    weights = random_decoder_weights(narrow, torch.Generator().manual_seed(3), "cpu")
    wave = CodecDecoder(narrow, weights, "cpu").decode(torch.randint(0, 2048, (2, 6, 16)))
    assert 0.02 < wave.std() < 0.5
    assert (wave.abs() == 1).float().mean() < 0.02


def test_wrong_tensors_are_all_named(config, tmp_path):
    from safetensors.torch import load_file, save_file

    state = load_file(FOLDER / "model.safetensors")
    del state["decoder.decoder.5.alpha"], state["encoder.downsample.conv.weight"]
    state["decoder.extra"] = torch.zeros(1)
    state["decoder.pre_conv.conv.bias"] = torch.zeros(5)
    path = tmp_path / "model.safetensors"
    save_file(state, path)
    with pytest.raises(ModelError) as e:
        load_codec_weights(path, config)
    message = str(e.value)
    assert message.startswith(str(path))
    assert "2 tensors missing: decoder.decoder.5.alpha, encoder.downsample.conv.weight" in message
    assert "1 tensor unexpected: decoder.extra" in message
    assert "decoder.pre_conv.conv.bias [5] instead of [36]" in message


def test_missing_or_damaged_file_is_a_model_error(config, tmp_path):
    with pytest.raises(ModelError, match="no such file"):
        load_codec_weights(tmp_path / "model.safetensors", config)
    (tmp_path / "model.safetensors").write_bytes(b"not a header at all")
    with pytest.raises(ModelError, match="cannot read the weights"):
        load_codec_weights(tmp_path / "model.safetensors", config)


@pytest.mark.parametrize(
    ("where", "key", "value", "message"),
    [
        (None, "decode_upsample_rate", 960, "decode_upsample_rate is 960, .* multiply to 1920"),
        (None, "encode_downsample_rate", 1000, "expected a multiple of 960"),
        (None, "encoder_valid_num_quantizers", 40, "encoder_valid_num_quantizers is 40"),
        (None, "decoder_config", None, "decoder_config is missing"),
        ("decoder_config", "head_dim", None, "decoder_config.head_dim is missing"),
        ("decoder_config", "head_dim", "64", "head_dim is '64'; expected int"),
        ("decoder_config", "upsample_rates", [8, 0], "expected a list of whole numbers"),
        ("decoder_config", "hidden_act", "relu", "only 'silu' is supported"),
        ("decoder_config", "decoder_dim", 100, "expected a multiple of 16"),
        ("decoder_config", "rms_norm_eps", -1, "expected a number above 0"),
        ("encoder_config", "use_causal_conv", False, "only True is supported"),
        ("encoder_config", "vector_quantization_hidden_dimension", 7, "expected codebook_dim"),
    ],
)
def test_config_that_cannot_work_says_why(where, key, value, message):
    raw = json.loads((FOLDER / "config.json").read_text())
    (raw if where is None else raw[where])[key] = value
    with pytest.raises(ModelError, match=message) as e:
        parse_codec_config(raw, "c.json")
    assert str(e.value).startswith("c.json")


def test_encoder_sizes_that_are_absent_are_those_of_mimi():
    raw = json.loads((FOLDER / "config.json").read_text()) | {"encoder_config": {}}
    encoder = parse_codec_config(raw, "c.json").encoder
    assert encoder == random_config("qwen3-tts-1.7b-base").codec.encoder


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_captured_decode_equals_eager_decode(dtype, config, weights, golden):
    decoder = CodecDecoder(config.decoder, weights, "cuda", dtype)
    codes = golden["decode36.codes"][None].cuda()
    eager = decoder.decode(codes)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = decoder.decode(codes)
    captured.fill_(torch.nan)
    graph.replay()
    assert torch.equal(captured, eager)
    if dtype == torch.float32:  # bf16 is compared as noise in its own test
        assert distance(eager[0].cpu(), golden["decode36.wav"]) < 1e-4
