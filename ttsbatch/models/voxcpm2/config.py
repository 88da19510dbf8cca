"""The config.json of a VoxCPM2 checkpoint as frozen dataclasses.

Source: official package `voxcpm` 2.0.3 (modules of `voxcpm.model.voxcpm2`) and config.json of the
published checkpoint. What the network's shape depends on must be in the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ttsbatch.errors import ModelError
from ttsbatch.models.section import Section, read_json
from ttsbatch.models.stack import StackConfig

AUDIO_START_ID = 101
REFERENCE_START_ID, REFERENCE_END_ID = 103, 104
CONTROL_IDS = (AUDIO_START_ID, 102, REFERENCE_START_ID, REFERENCE_END_ID)
"""Ids that are no text, fixed in the official code; 102 (audio end) is never used."""

MAX_LENGTH = 8192
"""Positions of a row where the file does not say; the official cache's length."""


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """LongRoPE: every frequency is divided by a factor of its own."""

    theta: float
    factors: tuple[float, ...]  # [D/2]
    scale: float  # of the cosines and sines


@dataclass(frozen=True, slots=True)
class VaeConfig:
    """AudioVAE V2: latents of 25 Hz; 16 kHz in, 48 kHz out."""

    latent_dim: int
    encoder_dim: int
    encoder_rates: tuple[int, ...]
    decoder_dim: int
    decoder_rates: tuple[int, ...]
    rate_boundaries_hz: tuple[int, ...]
    input_sample_rate_hz: int
    output_sample_rate_hz: int

    @property
    def input_hop(self) -> int:
        """Samples that become a latent."""
        return math.prod(self.encoder_rates)

    @property
    def output_hop(self) -> int:
        """Samples that a latent becomes."""
        return math.prod(self.decoder_rates)


@dataclass(frozen=True, slots=True)
class VoxCPM2Config:
    """One checkpoint."""

    lm: StackConfig
    residual: StackConfig  # without positions
    encoder: StackConfig  # of a patch
    dit: StackConfig
    rope: RopeConfig
    vocab_size: int
    patch_size: int  # latents that a step makes
    fsq_dim: int
    fsq_scale: int
    vae: VaeConfig
    max_positions: int
    random: bool = False  # no weights on disk: made on the device, the stop head is not heard

    @property
    def patch_samples_in(self) -> int:
        """Samples of reference audio that become a patch."""
        return self.patch_size * self.vae.input_hop

    @property
    def patch_samples_out(self) -> int:
        """Samples that a patch becomes."""
        return self.patch_size * self.vae.output_hop

    @property
    def patch_rate_hz(self) -> float:
        """Patches per second of audio."""
        return self.vae.output_sample_rate_hz / self.patch_samples_out


def read_config(folder: Path) -> VoxCPM2Config:
    """The configuration of a checkpoint folder.

    Raises:
        ModelError: the file or a key is missing, or of the wrong type.
    """
    path = folder / "config.json"
    return parse_config(read_json(path), str(path))


def parse_config(raw: Any, where: str) -> VoxCPM2Config:
    """The JSON object of a checkpoint as a configuration.

    Raises:
        ModelError: a key is missing, of the wrong type, or asks for what is not built; `where`
            begins the message.
    """
    top = Section(raw, where)
    if top.get("architecture", str) != "voxcpm2":
        raise ModelError(f"{where}: architecture is {raw['architecture']!r}, expected 'voxcpm2'")
    top.expect("residual_lm_no_rope", True)
    base = top.sub("lm_config")
    base.expect("use_mup", False)
    lm = StackConfig(
        hidden_size=base.integer("hidden_size"),
        intermediate_size=base.integer("intermediate_size"),
        num_layers=base.integer("num_hidden_layers"),
        num_heads=base.integer("num_attention_heads"),
        num_kv_heads=base.integer("num_key_value_heads"),
        head_dim=base.integer("kv_channels"),
        rms_norm_eps=base.get("rms_norm_eps", float),
    )
    dit = top.sub("dit_config")
    dit.expect("dit_mean_mode", False)
    cfm = dit.sub("cfm_config")
    cfm.expect("solver", "euler")
    cfm.expect("t_scheduler", "log-norm")
    vae = _vae(top.sub("audio_vae_config"))
    config = VoxCPM2Config(
        lm=lm,
        residual=replace(lm, num_layers=top.integer("residual_lm_num_layers")),
        encoder=_local(lm, top.sub("encoder_config")),
        dit=_local(lm, dit),
        rope=_rope(base, lm.head_dim),
        vocab_size=base.integer("vocab_size"),
        patch_size=top.integer("patch_size"),
        fsq_dim=top.integer("scalar_quantization_latent_dim"),
        fsq_scale=top.integer("scalar_quantization_scale"),
        vae=vae,
        max_positions=min(
            base.integer("max_position_embeddings"), top.integer("max_length", MAX_LENGTH)
        ),
    )
    for name in ("lm", "encoder", "dit"):
        stack: StackConfig = getattr(config, name)
        top.divides(f"the number of heads of {name}", stack.num_heads, by=stack.num_kv_heads)
        if stack.head_dim != lm.head_dim:
            raise ModelError(
                f"{where}: kv_channels of {name} is {stack.head_dim}, of lm_config {lm.head_dim}; "
                "they share one table of angles and must be equal"
            )
    if top.integer("feat_dim") != vae.latent_dim:
        raise ModelError(
            f"{where}: feat_dim is {top.integer('feat_dim')}, the latents of audio_vae_config have "
            f"{vae.latent_dim}; they must be equal"
        )
    if config.vocab_size <= max(CONTROL_IDS):
        raise ModelError(f"{where}: vocab_size is {config.vocab_size}; expected above 104")
    return config


def _local(lm: StackConfig, r: Section) -> StackConfig:
    """A stack that takes the rest from the language model."""
    return StackConfig(
        hidden_size=r.integer("hidden_dim"),
        intermediate_size=r.integer("ffn_dim"),
        num_layers=r.integer("num_layers"),
        num_heads=r.integer("num_heads"),
        num_kv_heads=lm.num_kv_heads,
        head_dim=r.integer("kv_channels"),
        rms_norm_eps=lm.rms_norm_eps,
    )


def _rope(base: Section, head_dim: int) -> RopeConfig:
    scaling = base.sub("rope_scaling")
    scaling.expect("type", "longrope")
    if "rope_type" in scaling.raw:
        scaling.expect("rope_type", "longrope")
    base.divides("kv_channels", head_dim, by=2)
    longest = base.integer("max_position_embeddings")
    original = scaling.integer("original_max_position_embeddings")
    which = "long_factor" if longest > original else "short_factor"
    return RopeConfig(
        theta=base.get("rope_theta", float),
        factors=scaling.numbers(which, head_dim // 2),
        scale=math.sqrt(1 + math.log(longest / original) / math.log(original)),
    )


def _vae(r: Section) -> VaeConfig:
    r.expect("depthwise", True)
    r.expect("use_noise_block", False)
    r.expect("cond_type", "scale_bias")
    r.expect("cond_out_layer", False)
    vae = VaeConfig(
        latent_dim=r.integer("latent_dim"),
        encoder_dim=r.integer("encoder_dim"),
        encoder_rates=r.integers("encoder_rates"),
        decoder_dim=r.integer("decoder_dim"),
        decoder_rates=r.integers("decoder_rates"),
        rate_boundaries_hz=r.integers("sr_bin_boundaries"),
        input_sample_rate_hz=r.integer("sample_rate"),
        output_sample_rate_hz=r.integer("out_sample_rate"),
    )
    r.divides("decoder_dim", vae.decoder_dim, by=1 << len(vae.decoder_rates))
    latents = vae.input_sample_rate_hz / vae.input_hop, vae.output_sample_rate_hz / vae.output_hop
    if latents[0] != latents[1]:
        raise ModelError(
            f"{r.where}: encoder_rates make {latents[0]:g} latents a second, decoder_rates take "
            f"{latents[1]:g}; they must be equal"
        )
    return vae
