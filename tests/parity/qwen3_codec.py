"""The codec of the tiny Qwen3-TTS checkpoints, its goldens, and one of other sizes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tests.parity.qwen3 import FIXTURE
from ttsbatch.models.qwen3_tts.codec_config import DecoderConfig

FOLDER = FIXTURE / "base" / "speech_tokenizer"

# 25 frames a second, 8 codebooks of 300, fewer key/value heads, other stages.
FAST = DecoderConfig(
    codebook_size=300,
    num_quantizers=8,
    codebook_dim=24,
    latent_dim=20,
    hidden_size=16,
    intermediate_size=40,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    sliding_window=3,
    rope_theta=10000.0,
    rms_norm_eps=1e-5,
    upsampling_ratios=(2,),
    upsample_rates=(8, 6, 10),
    decoder_dim=32,
)


def load(name: str) -> dict[str, Tensor]:
    """The arrays of a golden file."""
    arrays = np.load(FIXTURE / "goldens" / name)
    return {k: torch.from_numpy(arrays[k]) for k in arrays}
