"""The tensors of a checkpoint: read, checked, and packed for the run.

Packed means: q, k and v as one matrix, gate and up as one, weight norm folded.
Source: files and names of the published checkpoint (package `voxcpm` 2.0.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ttsbatch.errors import ModelError
from ttsbatch.models.decoder import StackWeights, pack_stack
from ttsbatch.models.voxcpm2.config import VaeConfig, VoxCPM2Config
from ttsbatch.models.voxcpm2.specs import (
    DIT,
    ENCODER,
    LM,
    RATE_BOUNDARIES,
    RESIDUAL,
    main_specs,
    unused_vae_specs,
    vae_specs,
)
from ttsbatch.models.weights import check_tensors, read_safetensors

Linear = tuple[Tensor, Tensor]
"""Weight [out, in] and bias [out]."""


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """LocEnc: a patch to one vector."""

    special: Tensor  # [W] the token that gathers the patch
    in_proj: Linear
    stack: StackWeights


@dataclass(frozen=True, slots=True)
class DitWeights:
    """LocDiT: the velocity of a patch."""

    in_proj: Linear
    cond_proj: Linear
    out_proj: Linear
    time: tuple[Linear, Linear]
    delta_time: tuple[Linear, Linear]
    stack: StackWeights


@dataclass(frozen=True, slots=True)
class VoxCPM2Weights:
    """All but the AudioVAE."""

    embed: Tensor  # [V, E]
    lm: StackWeights
    residual: StackWeights
    encoder: EncoderWeights
    dit: DitWeights
    fsq_in: Linear
    fsq_out: Linear
    enc_to_lm: Linear
    lm_to_dit: Linear
    res_to_dit: Linear
    fusion: Linear
    stop_proj: Linear
    stop_head: Tensor  # [2, E]


def read_main(folder: Path, config: VoxCPM2Config) -> dict[str, Tensor]:
    """The tensors of model.safetensors, or of pytorch_model.bin where there is none; checked.

    Raises:
        ModelError: no file, an unreadable one, or tensors missing, unexpected or misshapen.
    """
    return _read(folder, ("model.safetensors", "pytorch_model.bin"), main_specs(config))


def read_vae(folder: Path, config: VaeConfig) -> dict[str, Tensor]:
    """The tensors of audiovae.safetensors, or of audiovae.pth where there is none; checked.

    Raises:
        ModelError: as `read_main`; or the file's rate boundaries are not those of the config.
    """
    specs = vae_specs(config)
    state = _read(folder, ("audiovae.safetensors", "audiovae.pth"), specs, also=(RATE_BOUNDARIES,))
    boundaries = state.pop(RATE_BOUNDARIES, None)
    if boundaries is not None and tuple(boundaries.tolist()) != config.rate_boundaries_hz:
        raise ModelError(
            f"{folder}: {RATE_BOUNDARIES} of the AudioVAE is {boundaries.tolist()}; expected "
            f"{list(config.rate_boundaries_hz)}, as config.json says"
        )
    for name in unused_vae_specs(config):
        del state[name]
    return state


def _read(
    folder: Path, names: tuple[str, ...], specs: Mapping[str, Any], also: tuple[str, ...] = ()
) -> dict[str, Tensor]:
    path = next((folder / n for n in names if (folder / n).exists()), None)
    if path is None:
        raise ModelError(f"{folder}: neither {' nor '.join(names)}; expected one of them")
    state = read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    check_tensors({k: x for k, x in state.items() if k not in also}, specs, str(path))
    return state


def _read_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a pickle, which may hold them under `state_dict`; no code of it is run."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:  # a damaged file raises whatever its first wrong byte leads to
        raise ModelError(f"{path}: cannot read the weights: {e}") from e
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not all(
        isinstance(k, str) and isinstance(x, Tensor) for k, x in loaded.items()
    ):
        raise ModelError(f"{path}: holds {type(loaded).__name__}; expected tensors by their names")
    return dict(loaded)


def pack(
    tensors: Mapping[str, Tensor], config: VoxCPM2Config, device: torch.device, dtype: torch.dtype
) -> VoxCPM2Weights:
    """The tensors of `main_specs`, moved to the device in the run dtype and packed."""

    def get(name: str) -> Tensor:
        return tensors[name].to(device=device, dtype=dtype)

    def linear(name: str) -> Linear:
        return get(f"{name}.weight"), get(f"{name}.bias")

    def mlp(name: str) -> tuple[Linear, Linear]:
        return linear(f"{DIT}{name}_mlp.linear_1"), linear(f"{DIT}{name}_mlp.linear_2")

    c = config
    return VoxCPM2Weights(
        embed=get(f"{LM}embed_tokens.weight"),
        lm=pack_stack(get, LM, c.lm.num_layers),
        residual=pack_stack(get, RESIDUAL, c.residual.num_layers),
        encoder=EncoderWeights(
            special=get(f"{ENCODER}special_token").flatten(),
            in_proj=linear(f"{ENCODER}in_proj"),
            stack=pack_stack(get, f"{ENCODER}encoder.", c.encoder.num_layers),
        ),
        dit=DitWeights(
            in_proj=linear(f"{DIT}in_proj"),
            cond_proj=linear(f"{DIT}cond_proj"),
            out_proj=linear(f"{DIT}out_proj"),
            time=mlp("time"),
            delta_time=mlp("delta_time"),
            stack=pack_stack(get, f"{DIT}decoder.", c.dit.num_layers),
        ),
        fsq_in=linear("fsq_layer.in_proj"),
        fsq_out=linear("fsq_layer.out_proj"),
        enc_to_lm=linear("enc_to_lm_proj"),
        lm_to_dit=linear("lm_to_dit_proj"),
        res_to_dit=linear("res_to_dit_proj"),
        fusion=linear("fusion_concat_proj"),
        stop_proj=linear("stop_proj"),
        stop_head=get("stop_head.weight"),
    )


def fold_weight_norm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`weight_v` scaled to the lengths `weight_g` along all dimensions but the first, as `weight`.

    Of a transposed convolution the first dimension is the input channel. Source: weight
    normalization (Salimans and Kingma, 2016), as torch's `weight_norm` stores it.
    """
    folded = {}
    for name, x in tensors.items():
        if name.endswith(".weight_v"):
            base = name.removesuffix("_v")
            v, g = x.float(), tensors[f"{base}_g"].float()
            folded[base] = v * (g / v.flatten(1).norm(dim=1).view(-1, 1, 1))
        elif not name.endswith(".weight_g"):
            folded[name] = x.float()
    return folded
