"""Codecs in float32 keep TF32 out of their convolutions on a GPU; what they set is checked here."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.parity.qwen3_codec import FOLDER as CODEC
from tests.parity.voxcpm2 import FIXTURE, config
from ttsbatch.models.layers import full_float32
from ttsbatch.models.qwen3_tts.codec import CodecDecoder
from ttsbatch.models.qwen3_tts.codec_config import parse_codec_config
from ttsbatch.models.qwen3_tts.codec_weights import load_codec_weights
from ttsbatch.models.voxcpm2.vae import AudioVAE
from ttsbatch.models.voxcpm2.weights import read_vae

CUDA = torch.device("cuda")


def precision() -> tuple[str, str]:
    found = torch.backends.cudnn.conv, torch.backends.cuda.matmul
    return found[0].fp32_precision, found[1].fp32_precision


def test_it_ends_with_the_block_also_when_that_fails() -> None:
    before = precision()
    with full_float32(CUDA):
        assert precision() == ("ieee", "ieee")
    assert precision() == before
    with pytest.raises(ZeroDivisionError), full_float32(CUDA):
        _ = 1 / 0
    assert precision() == before
    with full_float32(torch.device("cpu")):
        assert precision() == before


class Watched:
    """A layer, and the precision that it ran in."""

    def __init__(self, layer: Callable[..., Tensor]) -> None:
        self.layer, self.seen = layer, ("", "")

    def __call__(self, *args: Tensor) -> Tensor:
        self.seen = precision()
        return self.layer(*args)


def test_the_qwen3_codec_decodes_in_it() -> None:
    config = parse_codec_config(json.loads((CODEC / "config.json").read_text()), "config.json")
    weights = load_codec_weights(CODEC / "model.safetensors", config)[0]
    decoder = CodecDecoder(config.decoder, weights, "cpu")
    decoder.device = CUDA
    watched = [Watched(decoder.pre_conv), Watched(decoder.vocoder[-1])]
    decoder.pre_conv, decoder.vocoder[-1] = watched  # type: ignore[assignment]
    decoder.decode(torch.zeros(1, 2, config.decoder.num_quantizers, dtype=torch.int64))
    assert [w.seen for w in watched] == [("ieee", "ieee")] * 2


def test_the_audiovae_decodes_and_encodes_in_it() -> None:
    plain = AudioVAE(config().vae, read_vae(FIXTURE, config().vae), torch.device("cpu"))
    plain.device = CUDA
    watched = []
    for layers in (plain._before, plain._after, plain._encoder):
        layers[-1] = Watched(layers[-1])
        watched.append(layers[-1])
    with torch.inference_mode():
        plain.decode(torch.zeros(1, 2, config().vae.latent_dim))
        plain.encode(torch.zeros(1, 100))
    assert [w.seen for w in watched] == [("ieee", "ieee")] * 3
