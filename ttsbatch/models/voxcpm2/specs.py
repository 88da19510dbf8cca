"""Name, shape and random scale of every tensor of a checkpoint, from its configuration; no torch.

Source: tensor names and shapes of the published VoxCPM2 checkpoint layout (package `voxcpm`
2.0.3).
"""

from __future__ import annotations

import math

from ttsbatch.models.stack import stack_specs
from ttsbatch.models.tensor_specs import Specs, TensorSpec
from ttsbatch.models.voxcpm2.config import VaeConfig, VoxCPM2Config

LM, RESIDUAL = "base_lm.", "residual_lm."
ENCODER, DIT = "feat_encoder.", "feat_decoder.estimator."
DILATIONS = (1, 3, 9)
"""Of the residual units of the VAE, in both directions."""


def main_specs(config: VoxCPM2Config) -> Specs:
    """Every tensor of the main file."""
    c = config
    e, d, w, latent = (
        c.lm.hidden_size,
        c.dit.hidden_size,
        c.encoder.hidden_size,
        c.vae.latent_dim,
    )
    specs: Specs = {
        f"{LM}embed_tokens.weight": TensorSpec((c.vocab_size, e), std=0.5),
        f"{ENCODER}special_token": TensorSpec((1, 1, 1, w), std=0.5),
    }
    for prefix, stack in (
        (LM, c.lm),
        (RESIDUAL, c.residual),
        (f"{ENCODER}encoder.", c.encoder),
        (f"{DIT}decoder.", c.dit),
    ):
        specs |= stack_specs(prefix, stack)
    for name, rows, columns in (
        (f"{ENCODER}in_proj", w, latent),
        (f"{DIT}in_proj", d, latent),
        (f"{DIT}cond_proj", d, latent),
        (f"{DIT}out_proj", latent, d),
        *((f"{DIT}{kind}_mlp.linear_{n}", d, d) for kind in TIMES for n in (1, 2)),
        ("fsq_layer.in_proj", c.fsq_dim, e),
        ("fsq_layer.out_proj", e, c.fsq_dim),
        ("enc_to_lm_proj", e, w),
        ("lm_to_dit_proj", d, e),
        ("res_to_dit_proj", d, e),
        ("fusion_concat_proj", e, 2 * e),
        ("stop_proj", e, e),
    ):
        specs[f"{name}.weight"] = _matrix(rows, columns)
        specs[f"{name}.bias"] = TensorSpec((rows,))
    specs["stop_head.weight"] = _matrix(2, e)
    return specs


TIMES = ("time", "delta_time")


def _matrix(rows: int, columns: int) -> TensorSpec:
    return TensorSpec((rows, columns), std=columns**-0.5)


def vae_specs(config: VaeConfig) -> Specs:
    """Every tensor of the AudioVAE's file that holds a parameter, used or not."""
    return encoder_specs(config) | decoder_specs(config) | unused_vae_specs(config)


def encoder_specs(config: VaeConfig) -> Specs:
    """What encoding reads."""
    c = config
    width = c.encoder_dim
    specs = _conv("encoder.block.0", width, 1, 7)
    for i, stride in enumerate(c.encoder_rates, start=1):
        block = f"encoder.block.{i}.block."
        for unit in range(len(DILATIONS)):
            specs |= _residual_unit(f"{block}{unit}.", width)
        specs[f"{block}{len(DILATIONS)}.alpha"] = _alpha(width)
        specs |= _conv(f"{block}{len(DILATIONS) + 1}", 2 * width, width, 2 * stride)
        width *= 2
    return specs | _conv("encoder.fc_mu", c.latent_dim, width, 3)


def decoder_specs(config: VaeConfig) -> Specs:
    """What decoding reads."""
    c = config
    width = c.decoder_dim
    specs = _conv("decoder.model.0", c.latent_dim, 1, 7)
    specs |= _conv("decoder.model.1", width, c.latent_dim, 1)
    buckets = len(c.rate_boundaries_hz) + 1
    for j, rate in enumerate(c.decoder_rates, start=2):
        block, condition = f"decoder.model.{j}.block.", f"decoder.sr_cond_model.{j}."
        specs[f"{condition}scale_embed.weight"] = TensorSpec((buckets, width), mean=1.0)
        specs[f"{condition}bias_embed.weight"] = TensorSpec((buckets, width))
        specs[f"{block}0.alpha"] = _alpha(width)
        specs |= {
            f"{block}1.weight_v": TensorSpec((width, width // 2, 2 * rate), std=1.0),
            f"{block}1.weight_g": TensorSpec((width, 1, 1), mean=0.8 * math.sqrt(rate / 2)),
            f"{block}1.bias": TensorSpec((width // 2,)),
        }
        width //= 2
        for unit in range(len(DILATIONS)):
            specs |= _residual_unit(f"{block}{unit + 2}.", width)
    last = len(c.decoder_rates) + 2
    specs[f"decoder.model.{last}.alpha"] = _alpha(width)
    return specs | _conv(f"decoder.model.{last + 1}", 1, width, 7, gain=0.2)


def unused_vae_specs(config: VaeConfig) -> Specs:
    """What the file holds besides: the deviation of the latents, which are never sampled."""
    width = config.encoder_dim << len(config.encoder_rates)
    return _conv("encoder.fc_logvar", config.latent_dim, width, 3)


RATE_BOUNDARIES = "decoder.sr_bin_boundaries"
"""A buffer of the file: what `VaeConfig.rate_boundaries_hz` says too."""


def _residual_unit(name: str, width: int) -> Specs:
    specs: Specs = {f"{name}block.0.alpha": _alpha(width), f"{name}block.2.alpha": _alpha(width)}
    specs |= _conv(f"{name}block.1", width, 1, 7)
    return specs | _conv(f"{name}block.3", width, width, 1, gain=0.3)


def _conv(name: str, out: int, inner: int, kernel: int, gain: float = 1.0) -> Specs:
    """A weight-normed convolution: rows of direction `weight_v` and length `weight_g`."""
    return {
        f"{name}.weight_v": TensorSpec((out, inner, kernel), std=1.0),
        f"{name}.weight_g": TensorSpec((out, 1, 1), mean=gain),
        f"{name}.bias": TensorSpec((out,)),
    }


def _alpha(width: int) -> TensorSpec:
    return TensorSpec((1, width, 1), mean=1.0)
