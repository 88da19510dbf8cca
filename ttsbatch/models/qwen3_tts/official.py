"""The published configurations, for `random:` models: official sizes without a download.

Source: config.json, generation_config.json and speech_tokenizer/config.json of the checkpoints
`Qwen/Qwen3-TTS-12Hz-*` (values as independent public ports quote them).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ttsbatch.models.qwen3_tts.config import Qwen3TTSConfig, parse_config

RANDOM_NAMES = {
    "qwen3-tts-0.6b-customvoice": ("0b6", "custom_voice"),
    "qwen3-tts-0.6b-base": ("0b6", "base"),
    "qwen3-tts-1.7b-customvoice": ("1b7", "custom_voice"),
    "qwen3-tts-1.7b-voicedesign": ("1b7", "voice_design"),
    "qwen3-tts-1.7b-base": ("1b7", "base"),
}

_WIDTHS = {"0b6": (1024, 3072), "1b7": (2048, 6144)}

_LANGUAGES = {
    "english": 2050,
    "german": 2053,
    "spanish": 2054,
    "chinese": 2055,
    "japanese": 2058,
    "french": 2061,
    "korean": 2064,
    "russian": 2069,
    "italian": 2070,
    "portuguese": 2071,
}
_DIALECTS = {"sichuan_dialect": 2062, "beijing_dialect": 2074}
_SPEAKERS = {
    "serena": 3066,
    "vivian": 3065,
    "uncle_fu": 3010,
    "ryan": 3061,
    "aiden": 2861,
    "ono_anna": 2873,
    "sohee": 2864,
    "eric": 2875,
    "dylan": 2878,
}


def official_json(name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """config.json, generation_config.json and speech_tokenizer/config.json of a published model.

    `name` is a key of RANDOM_NAMES.
    """
    size, kind = RANDOM_NAMES[name]
    return _main(size, kind), _GENERATION, _CODEC


def random_config(name: str) -> Qwen3TTSConfig:
    """The configuration of `random:NAME`; `name` is a key of RANDOM_NAMES."""
    config = parse_config(*official_json(name), where=f"random:{name}")
    return replace(config, random=True)


def _main(size: str, kind: str) -> dict[str, Any]:
    hidden, intermediate = _WIDTHS[size]
    custom = kind == "custom_voice"
    common = {
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rope_theta": 1000000,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "num_code_groups": 16,
    }
    talker = common | {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": 28,
        "vocab_size": 3072,
        "text_vocab_size": 151936,
        "text_hidden_size": 2048,
        "max_position_embeddings": 32768,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_think_id": 2154,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "codec_language_id": _LANGUAGES | (_DIALECTS if custom else {}),
        "spk_id": _SPEAKERS if custom else {},
        "spk_is_dialect": (
            {"eric": "sichuan_dialect", "dylan": "beijing_dialect"} if custom else {}
        ),
        "code_predictor_config": common
        | {
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 5,
            "vocab_size": 2048,
        },
    }
    main = {
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": size,
        "tts_model_type": kind,
        "im_start_token_id": 151644,
        "im_end_token_id": 151645,
        "tts_pad_token_id": 151671,
        "tts_bos_token_id": 151672,
        "tts_eos_token_id": 151673,
        "talker_config": talker,
    }
    if kind == "base":
        main["speaker_encoder_config"] = {"enc_dim": hidden, "sample_rate": 24000}
    return main


_GENERATION: dict[str, Any] = {
    "do_sample": True,
    "temperature": 0.9,
    "top_k": 50,
    "top_p": 1.0,
    "repetition_penalty": 1.05,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.9,
    "subtalker_top_k": 50,
    "subtalker_top_p": 1.0,
    "max_new_tokens": 8192,
}

_CODEC: dict[str, Any] = {
    "input_sample_rate": 24000,
    "output_sample_rate": 24000,
    "encode_downsample_rate": 1920,
    "decode_upsample_rate": 1920,
    "encoder_valid_num_quantizers": 16,
    "decoder_config": {
        "codebook_size": 2048,
        "codebook_dim": 512,
        "latent_dim": 1024,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 64,
        "sliding_window": 72,
        "rope_theta": 10000,
        "rms_norm_eps": 1e-5,
        "num_quantizers": 16,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "decoder_dim": 1536,
    },
    "encoder_config": {
        "num_filters": 64,
        "kernel_size": 7,
        "last_kernel_size": 3,
        "residual_kernel_size": 3,
        "compress": 2,
        "num_residual_layers": 1,
        "upsampling_ratios": [8, 6, 5, 4],
        "hidden_size": 512,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 2048,
        "norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "sliding_window": 250,
        "num_quantizers": 32,
        "num_semantic_quantizers": 1,
        "codebook_size": 2048,
        "codebook_dim": 256,
    },
}
