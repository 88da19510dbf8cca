"""The speaker encoder against the published code."""

from __future__ import annotations

import json

import pytest
import torch

from tests.parity.qwen3 import FIXTURE
from tests.parity.qwen3_codec import load
from ttsbatch.errors import ModelError
from ttsbatch.models.qwen3_tts.codec_config import SpeakerConfig, parse_speaker_config
from ttsbatch.models.qwen3_tts.codec_specs import speaker_specs
from ttsbatch.models.qwen3_tts.codec_weights import random_speaker_weights, select_speaker_weights
from ttsbatch.models.qwen3_tts.speaker import SpeakerEncoder, min_samples, slaney_mel_filters
from ttsbatch.models.tensor_specs import num_parameters
from ttsbatch.models.weights import read_safetensors

CLIPS = ["ref0", "ref1", "enc_odd"]
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def config():
    raw = json.loads((FIXTURE / "base" / "config.json").read_text())
    return parse_speaker_config(raw["speaker_encoder_config"], "config.json")


@pytest.fixture(scope="module")
def tensors():
    return read_safetensors(FIXTURE / "base" / "model.safetensors")


@pytest.fixture(scope="module")
def speaker(config, tensors):
    return SpeakerEncoder(config, select_speaker_weights(tensors, config, "base"), "cpu")


@pytest.fixture(scope="module")
def golden():
    return load("speaker_encoder.npz")


@pytest.fixture(scope="module")
def waves():
    return load("waves.npz")


@pytest.mark.parametrize("clip", CLIPS)
def test_mel_and_embedding_equal_the_published_ones(clip, speaker, golden, waves):
    mel = speaker.mel(waves[clip][None])
    assert mel.shape == (1, len(waves[clip]) // 256, 128)
    assert (mel[0].T - golden[f"{clip}.mel"]).abs().max() < TOLERANCE
    embedding = speaker.embed(mel)
    assert embedding.shape == (1, 64)
    assert (embedding[0] - golden[f"{clip}.embedding"]).abs().max() < TOLERANCE


def test_clips_of_any_lengths_get_the_embedding_they_get_alone(speaker, golden, waves):
    names = [*CLIPS, "ref0", "ref0"]
    together = speaker.embed_clips([waves[x] for x in names])
    for name, embedding in zip(names, together, strict=True):
        assert (embedding - golden[f"{name}.embedding"]).abs().max() < TOLERANCE


def test_transforms_have_one_shape_and_change_nothing(speaker, monkeypatch):
    transform, shapes, whole = torch.fft.rfft, set(), []

    def seen(frames):
        shapes.add((frames.shape, frames.stride()))
        return transform(frames)

    seconds = [0.3, 0.5, 1.7, 11.0, 13.0]  # the last ones have more frames than a transform
    clips = [torch.randn(int(24_000 * s)) for s in seconds]
    for clip in clips:
        frames = torch.nn.functional.pad(clip[None], (384, 384), mode="reflect")
        spectrum = transform(frames.unfold(-1, 1024, 256) * speaker.window)
        power = torch.view_as_real(spectrum).square().sum(-1)
        mel = torch.nn.functional.linear((power + 1e-9).sqrt(), speaker.filters)
        whole.append(mel.clamp(min=1e-5).log())
    monkeypatch.setattr(torch.fft, "rfft", seen)
    for clip, expected in zip(clips, whole, strict=True):
        torch.testing.assert_close(speaker.mel(clip[None]), expected, rtol=0, atol=1e-6)
    assert speaker.mel(torch.stack([clips[0]] * 3)).shape == (3, 7200 // 256, 128)
    speaker.embed_clips(clips[1:3])
    assert len(shapes) == 1


def test_no_clips_are_no_embeddings(speaker):
    assert speaker.embed_clips([]).shape == (0, 64)


def test_shortest_clip_is_embedded_and_a_shorter_one_cannot_be(speaker, config):
    assert min_samples(config) == 1280
    assert speaker.embed_clips([torch.randn(1280)]).isfinite().all()
    with pytest.raises(RuntimeError):
        speaker.embed_clips([torch.randn(1279)])


def test_mel_bands_have_unit_area_and_overlap_without_a_gap():
    filters = slaney_mel_filters(24000, 8192, 64).double()
    spacing_hz = 24000 / 8192
    assert torch.allclose(filters.sum(1) * spacing_hz, torch.ones(64).double(), atol=0.03)
    inner = filters[:, int(300 / spacing_hz) : int(11000 / spacing_hz)]
    assert inner.sum(0).min() > 0


def test_mel_scale_is_linear_below_a_kilohertz_and_logarithmic_above():
    peaks = slaney_mel_filters(24000, 65536, 128).argmax(1) * 24000 / 65536
    low, high = peaks[peaks < 900], peaks[peaks > 1100]
    assert low.diff().std() < 1
    assert (high[1:] / high[:-1]).std() < 1e-3


@pytest.mark.parametrize(("width", "parameters"), [(1024, 8_854_336)])
def test_published_sizes_add_up_to_the_published_file(width, parameters):
    specs = speaker_specs(SpeakerConfig(enc_dim=width))
    assert len(specs) == 76  # by which the Base file exceeds the CustomVoice one
    assert num_parameters(specs) == parameters


def test_random_weights_of_the_published_size_tell_clips_apart():
    config = parse_speaker_config({"enc_dim": 1024, "sample_rate": 24000}, "config.json")
    weights = random_speaker_weights(config, torch.Generator().manual_seed(4), "cpu")
    speaker = SpeakerEncoder(config, weights, "cpu")
    noise, tone = torch.randn(8000) * 0.1, torch.sin(torch.arange(8000) / 10)
    first, second = speaker.embed_clips([noise, tone])
    assert first.isfinite().all()
    assert first.std() > 0.01
    assert (first - second).abs().max() > 0.01


def test_other_architectures_work():
    config = SpeakerConfig(
        enc_dim=24,
        sample_rate_hz=16000,
        mel_dim=40,
        channels=(16, 16, 16, 32),
        kernel_sizes=(3, 5, 3, 1),
        dilations=(1, 1, 2, 1),
        attention_channels=8,
        res2net_scale=4,
        se_channels=4,
    )
    weights = random_speaker_weights(config, torch.Generator().manual_seed(4), "cpu")
    assert SpeakerEncoder(config, weights, "cpu").embed_clips([torch.randn(3000)]).shape == (1, 24)


def test_missing_speaker_tensors_are_named(config, tensors):
    partial = {k: v for k, v in tensors.items() if k != "speaker_encoder.fc.bias"}
    with pytest.raises(ModelError, match=r"base: 1 tensor missing: speaker_encoder\.fc\.bias"):
        select_speaker_weights(partial, config, "base")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "enc_dim is missing"),
        ({"enc_dim": 64, "enc_channels": [32, 32, 64]}, "expected the same number"),
        ({"enc_dim": 64, "enc_channels": [32, 32, 16, 32, 80]}, "expected equal widths"),
        ({"enc_dim": 64, "enc_res2net_scale": 7}, "a divisor of 512"),
    ],
)
def test_config_that_cannot_work_says_why(raw, message):
    with pytest.raises(ModelError, match=message) as e:
        parse_speaker_config(raw, "c.json")
    assert str(e.value).startswith("c.json: speaker_encoder_config")
