"""The JSON files of a Qwen3-TTS checkpoint as frozen dataclasses.

Source: reference of the official package `qwen-tts` 0.1.1, config.json and generation_config.json
of the published checkpoints. No size, rate or id is assumed: what a file lacks is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ttsbatch.errors import ModelError
from ttsbatch.models.qwen3_tts.codec_config import (
    CodecConfig,
    SpeakerConfig,
    parse_codec_config,
    parse_speaker_config,
)
from ttsbatch.models.section import Section, read_json
from ttsbatch.models.stack import StackConfig

Kind = Literal["custom_voice", "voice_design", "base"]
KINDS: tuple[Kind, ...] = ("custom_voice", "voice_design", "base")

NUM_CONTROL_IDS = 1024
"""Ids at the end of the talker's vocabulary that are never audio (hard-coded officially too)."""


@dataclass(frozen=True, slots=True)
class RotaryStackConfig(StackConfig):
    """A stack of Qwen3 decoder layers."""

    rope_theta: float


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """The talker: text and codes in, codebook 0 out."""

    stack: RotaryStackConfig
    vocab_size: int  # codes and control ids
    text_vocab_size: int
    text_hidden_size: int
    num_codebooks: int
    max_positions: int
    codec_pad_id: int
    codec_bos_id: int
    codec_eos_id: int
    think_id: int
    nothink_id: int
    think_bos_id: int
    think_eos_id: int
    language_ids: Mapping[str, int]  # English name, lower case; dialects among them
    speaker_ids: Mapping[str, int]
    speaker_dialects: Mapping[str, str]  # only the speakers that have one


@dataclass(frozen=True, slots=True)
class PredictorConfig:
    """The code predictor: the other codebooks of a frame."""

    stack: RotaryStackConfig
    vocab_size: int


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """generation_config.json: the sampling that a row gets unless it says otherwise.

    Pairs are (codebook 0, the others).
    """

    temperature: tuple[float, float]
    top_k: tuple[int, int]
    top_p: tuple[float, float]
    repetition_penalty: float
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class Qwen3TTSConfig:
    """One checkpoint."""

    kind: Kind
    size: str  # "0b6", "1b7"
    talker: TalkerConfig
    predictor: PredictorConfig
    generation: GenerationDefaults
    codec: CodecConfig
    speaker: SpeakerConfig | None  # Base only
    im_start_id: int
    im_end_id: int
    tts_pad_id: int
    tts_bos_id: int
    tts_eos_id: int
    random: bool = False  # no weights on disk: made on the device, end token banned

    @property
    def takes_instruct(self) -> bool:
        """Whether an instruction reaches the model: the 0.6B CustomVoice ignores it."""
        return self.kind == "voice_design" or (self.kind == "custom_voice" and self.size != "0b6")


def read_config(folder: Path) -> Qwen3TTSConfig:
    """The configuration of a checkpoint folder.

    Raises:
        ModelError: a file or key is missing or of the wrong type.
    """
    generation = folder / "generation_config.json"
    return parse_config(
        read_json(folder / "config.json"),
        read_json(generation) if generation.exists() else {},
        read_json(folder / "speech_tokenizer" / "config.json"),
        where=str(folder),
    )


def parse_config(main: Any, generation: Any, codec: Any, where: str) -> Qwen3TTSConfig:
    """The three JSON objects of a checkpoint as one configuration.

    Raises:
        ModelError: a key is missing or of the wrong type; `where` begins the message.
    """
    top = Section(main, f"{where}: config.json")
    kind = top.get("tts_model_type", str)
    if kind not in KINDS:
        raise ModelError(f"{top.where}: tts_model_type is {kind!r}, expected {', '.join(KINDS)}")
    talker = top.sub("talker_config")
    predictor = talker.sub("code_predictor_config")
    codec_config = parse_codec_config(codec, f"{where}: speech_tokenizer/config.json")
    speaker = None
    if kind == "base":
        speaker = parse_speaker_config(top.get("speaker_encoder_config", dict), top.where)
    config = Qwen3TTSConfig(
        kind=cast(Kind, kind),
        size=top.get("tts_model_size", str),
        talker=_talker(talker),
        predictor=PredictorConfig(_stack(predictor), predictor.get("vocab_size", int)),
        generation=_generation(Section(generation, f"{where}: generation_config.json")),
        codec=codec_config,
        speaker=speaker,
        im_start_id=top.get("im_start_token_id", int),
        im_end_id=top.get("im_end_token_id", int),
        tts_pad_id=top.get("tts_pad_token_id", int),
        tts_bos_id=top.get("tts_bos_token_id", int),
        tts_eos_id=top.get("tts_eos_token_id", int),
    )
    groups = predictor.get("num_code_groups", int, config.talker.num_codebooks)
    if groups != config.talker.num_codebooks:
        raise ModelError(
            f"{predictor.where}: num_code_groups is {groups}, the talker's is "
            f"{config.talker.num_codebooks}; they must be equal"
        )
    return config


def _stack(r: Section) -> RotaryStackConfig:
    act = r.get("hidden_act", str, "silu")
    if act != "silu":
        raise ModelError(f"{r.where}: hidden_act is {act!r}, expected 'silu'")
    if r.get("attention_bias", bool, False) or r.get("use_sliding_window", bool, False):
        raise ModelError(f"{r.where}: attention_bias and use_sliding_window must be false")
    return RotaryStackConfig(
        hidden_size=r.get("hidden_size", int),
        intermediate_size=r.get("intermediate_size", int),
        num_layers=r.get("num_hidden_layers", int),
        num_heads=r.get("num_attention_heads", int),
        num_kv_heads=r.get("num_key_value_heads", int),
        head_dim=r.get("head_dim", int),
        rope_theta=r.get("rope_theta", float),
        rms_norm_eps=r.get("rms_norm_eps", float),
    )


def _talker(r: Section) -> TalkerConfig:
    dialects = {k: x for k, x in r.get("spk_is_dialect", dict, {}).items() if x}
    return TalkerConfig(
        stack=_stack(r),
        vocab_size=r.get("vocab_size", int),
        text_vocab_size=r.get("text_vocab_size", int),
        text_hidden_size=r.get("text_hidden_size", int),
        num_codebooks=r.get("num_code_groups", int),
        max_positions=r.get("max_position_embeddings", int),
        codec_pad_id=r.get("codec_pad_id", int),
        codec_bos_id=r.get("codec_bos_id", int),
        codec_eos_id=r.get("codec_eos_token_id", int),
        think_id=r.get("codec_think_id", int),
        nothink_id=r.get("codec_nothink_id", int),
        think_bos_id=r.get("codec_think_bos_id", int),
        think_eos_id=r.get("codec_think_eos_id", int),
        language_ids=_ids(r, "codec_language_id"),
        speaker_ids=_ids(r, "spk_id"),
        speaker_dialects={k.lower(): str(x).lower() for k, x in dialects.items()},
    )


def _ids(r: Section, key: str) -> dict[str, int]:
    """Name to id, names in lower case; some forks store one-element lists."""
    out: dict[str, int] = {}
    for name, value in r.get(key, dict, {}).items():
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if not isinstance(value, int) or isinstance(value, bool):
            raise ModelError(f"{r.where}: {key}: {name} is {value!r}, expected int")
        out[name.lower()] = value
    return out


def _generation(r: Section) -> GenerationDefaults:
    """Keys that are absent get the official package's own numbers."""
    greedy = not r.get("do_sample", bool, True)
    sub_greedy = not r.get("subtalker_dosample", bool, True)
    return GenerationDefaults(
        temperature=(
            0.0 if greedy else r.get("temperature", float, 0.9),
            0.0 if sub_greedy else r.get("subtalker_temperature", float, 0.9),
        ),
        top_k=(r.get("top_k", int, 50), r.get("subtalker_top_k", int, 50)),
        top_p=(r.get("top_p", float, 1.0), r.get("subtalker_top_p", float, 1.0)),
        repetition_penalty=r.get("repetition_penalty", float, 1.05),
        max_new_tokens=r.get("max_new_tokens", int, 2048),
    )
