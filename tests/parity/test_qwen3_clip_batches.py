"""Clips in padded batches: as if alone, in few shapes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.parity.qwen3 import FIXTURE
from tests.parity.qwen3_codec import FOLDER, load
from ttsbatch.models.qwen3_tts import codec_encoder, speaker
from ttsbatch.models.qwen3_tts.clip_batches import MOST_CLIPS, Lengths, padded_batches
from ttsbatch.models.qwen3_tts.codec_config import parse_codec_config, parse_speaker_config
from ttsbatch.models.qwen3_tts.codec_encoder import CodecEncoder
from ttsbatch.models.qwen3_tts.codec_weights import (
    load_codec_weights,
    random_encoder_weights,
    select_speaker_weights,
)
from ttsbatch.models.qwen3_tts.speaker import SpeakerEncoder
from ttsbatch.models.weights import read_safetensors

CLIPS = ["ref0", "ref1", "enc_odd"]
TOLERANCE = 1e-4
SAMPLES = [1280, 1281, 1919, 1920, 1921, 3839, 5000, 7680, 23_999, 24_000, 24_001, 30_011]


@pytest.fixture(scope="module")
def raw():
    return json.loads((FOLDER / "config.json").read_text())


@pytest.fixture(scope="module")
def encoder(raw):
    return load_encoder(raw, "cpu")


@pytest.fixture(scope="module")
def voices():
    return load_voices("cpu")


def load_encoder(raw: Any, device: str) -> CodecEncoder:
    config = parse_codec_config(raw, "config.json")
    weights = load_codec_weights(FOLDER / "model.safetensors", config)[1]
    return CodecEncoder(config.encoder, weights, device)


def load_voices(device: str) -> SpeakerEncoder:
    raw = json.loads((FIXTURE / "base" / "config.json").read_text())
    config = parse_speaker_config(raw["speaker_encoder_config"], "config.json")
    tensors = read_safetensors(FIXTURE / "base" / "model.safetensors")
    return SpeakerEncoder(config, select_speaker_weights(tensors, config, "base"), device)


@pytest.fixture(scope="module")
def clips():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(n, generator=generator) * 0.1 for n in SAMPLES]


def test_codes_and_vectors_are_the_published_ones(encoder, voices):
    waves, codec, vectors = load("waves.npz"), load("codec.npz"), load("speaker_encoder.npz")
    together = [waves[name] for name in CLIPS]
    for name, codes in zip(CLIPS, encoder.encode_clips(together, pad=True), strict=True):
        assert torch.equal(codes.int(), codec[f"encode.{name}.codes"])
    for name, vector in zip(CLIPS, voices.embed_clips(together, pad=True), strict=True):
        assert (vector - vectors[f"{name}.embedding"]).abs().max() < TOLERANCE


@pytest.mark.parametrize("downsample_rate", [1920, 960])
@torch.inference_mode()
def test_what_is_quantized_is_as_if_alone(raw, clips, downsample_rate):
    changed = raw | {"encode_downsample_rate": downsample_rate}
    config = parse_codec_config(changed, "config.json").encoder
    weights = random_encoder_weights(config, torch.Generator().manual_seed(2), "cpu")
    encoder = CodecEncoder(config, weights, "cpu")
    padded = torch.randn(len(clips), 40_000)  # what lies behind a clip is not heard
    for row, clip in zip(padded, clips, strict=True):
        row[: len(clip)] = clip
    own = Lengths(torch.tensor(SAMPLES), padded.shape[1])
    latents = encoder.downsample(encoder.transform(encoder.convolve(padded, own)), own)
    for clip, latent in zip(clips, latents, strict=True):
        alone = encoder.downsample(encoder.transform(encoder.convolve(clip[None])))[0]
        torch.testing.assert_close(latent[:, : alone.shape[1]], alone, rtol=0, atol=1e-5)


def test_vectors_are_as_if_alone(voices, clips):
    together = voices.embed_clips(clips, pad=True)
    alone = torch.cat([voices.embed(voices.mel(clip[None])) for clip in clips])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    assert (alone[0] - alone[1]).abs().max() > 1e-3


def test_results_are_in_the_order_of_the_clips(encoder, voices, clips):
    backwards = clips[::-1]
    codes, vectors = encoder.encode_clips(clips, pad=True), voices.embed_clips(clips, pad=True)
    again = encoder.encode_clips(backwards, pad=True)[::-1]
    assert all(torch.equal(a, b) for a, b in zip(codes, again, strict=True))
    torch.testing.assert_close(voices.embed_clips(backwards, pad=True).flip(0), vectors)
    assert [len(c) for c in codes] == [-(-n // 1920) for n in SAMPLES]
    assert voices.embed_clips([], pad=True).shape == (0, 64)
    assert encoder.encode_clips([], pad=True) == []


def test_many_lengths_are_few_shapes(encoder, voices, monkeypatch):
    shapes: set[tuple[str, torch.Size]] = set()

    def seen(name: str, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def watched(x: Tensor, own: Tensor) -> Tensor:
            shapes.add((name, x.shape))
            assert len(own) == len(x)
            return call(x, own)

        return watched

    monkeypatch.setattr(encoder, "encode", seen("codes", encoder.encode))
    monkeypatch.setattr(voices, "embed", seen("vectors", voices.embed))
    monkeypatch.setattr(codec_encoder, "PAD_SAMPLES", 1920)
    monkeypatch.setattr(speaker, "PAD_FRAMES", 8)
    clips = [torch.zeros(1300 + 97 * n) for n in range(80)]
    encoder.encode_clips(clips, pad=True)
    voices.embed_clips(clips, pad=True)
    assert 2 <= len(shapes) <= 12


def test_batches_hold_each_clip_once_and_no_more_than_they_may():
    lengths = [(7919 * n) % 5_000 + 1 for n in range(300)]
    batches = list(padded_batches(lengths, 100, 9_600))
    assert sorted(i for b in batches for i in b.members) == list(range(300))
    for batch in batches:
        assert len(batch.members) <= batch.size < 2 * len(batch.members)
        assert batch.size <= MOST_CLIPS
        assert batch.size == 1 or batch.size * batch.length <= 9_600
        longest = max(lengths[i] for i in batch.members)
        assert longest <= batch.length <= max(100, 3 * longest // 2)
        assert batch.lengths(lengths).tolist()[: len(batch.members)] == [
            lengths[i] for i in batch.members
        ]
    assert len({(b.size, b.length) for b in batches}) <= 24
    assert list(padded_batches([], 100, 9_600)) == []


@pytest.mark.parametrize("left", [0, 1, 3])
@pytest.mark.parametrize("right", [0, 2, 4])
def test_mirrored_ends_are_those_of_each_clip(left, right):
    x = torch.arange(2 * 3 * 12).reshape(2, 3, 12).float()
    found = Lengths(torch.tensor([12, 5]), 12).reflected(x, left, right)
    for row, length in ((0, 12), (1, 5)):
        expected = torch.nn.functional.pad(x[row, :, :length], (left, right), mode="reflect")
        assert torch.equal(found[row, :, : left + length + right], expected)


@pytest.mark.gpu
def test_on_a_gpu_padded_batches_are_as_on_a_cpu(raw, encoder, voices, clips):
    there = load_encoder(raw, "cuda").encode_clips([c.cuda() for c in clips])
    differing = 0
    for found, expected in zip(there, encoder.encode_clips(clips), strict=True):
        assert found.shape == expected.shape
        differing += int((found.cpu() != expected).any(dim=1).sum())
    assert differing <= 1  # a near tie, of 83 frames
    vectors = load_voices("cuda").embed_clips([c.cuda() for c in clips])
    torch.testing.assert_close(vectors.cpu(), voices.embed_clips(clips), rtol=0, atol=TOLERANCE)
