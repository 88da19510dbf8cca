"""The published configuration, for `random:voxcpm2`: official size without a download.

Source: config.json of `openbmb/VoxCPM2` (values as independent public ports quote them).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ttsbatch.models.voxcpm2.config import VoxCPM2Config, parse_config

RANDOM_NAMES = ("voxcpm2",)

_FIRST_FACTOR, _LAST_FACTOR = 0.9977997, 31.02392
"""Ends of the 64 LongRoPE factors; those between are in the checkpoint's own file."""


def official_json() -> dict[str, Any]:
    """config.json of the published model, the LongRoPE factors between their ends made up."""
    ratio = _LAST_FACTOR / _FIRST_FACTOR
    factors = [_FIRST_FACTOR * ratio ** (i / 63) for i in range(64)]
    local = {
        "hidden_dim": 1024,
        "ffn_dim": 4096,
        "num_heads": 16,
        "num_layers": 12,
        "kv_channels": 128,
    }
    return {
        "architecture": "voxcpm2",
        "lm_config": {
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "max_position_embeddings": 32768,
            "num_attention_heads": 16,
            "num_hidden_layers": 28,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-05,
            "rope_theta": 10000,
            "kv_channels": 128,
            "rope_scaling": {
                "type": "longrope",
                "long_factor": factors,
                "short_factor": factors,
                "original_max_position_embeddings": 32768,
            },
            "vocab_size": 73448,
            "use_mup": False,
            "scale_emb": 12,
            "dim_model_base": 256,
            "scale_depth": 1.4,
        },
        "patch_size": 4,
        "feat_dim": 64,
        "scalar_quantization_latent_dim": 512,
        "scalar_quantization_scale": 9,
        "residual_lm_num_layers": 8,
        "residual_lm_no_rope": True,
        "encoder_config": local,
        "dit_config": local
        | {
            "mean_mode": False,
            "cfm_config": {
                "sigma_min": 1e-06,
                "solver": "euler",
                "t_scheduler": "log-norm",
                "inference_cfg_rate": 2.0,
            },
        },
        "audio_vae_config": {
            "encoder_dim": 128,
            "encoder_rates": [2, 5, 8, 8],
            "latent_dim": 64,
            "decoder_dim": 2048,
            "decoder_rates": [8, 6, 5, 2, 2, 2],
            "sr_bin_boundaries": [20000, 30000, 40000],
            "sample_rate": 16000,
            "out_sample_rate": 48000,
        },
        "max_length": 8192,
        "device": "cuda",
        "dtype": "bfloat16",
    }


def random_config() -> VoxCPM2Config:
    """The configuration of `random:voxcpm2`."""
    return replace(parse_config(official_json(), where="random:voxcpm2"), random=True)
