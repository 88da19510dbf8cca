"""The tiny VoxCPM2 checkpoint and its goldens."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from ttsbatch.models.voxcpm2.config import VoxCPM2Config, read_config
from ttsbatch.models.voxcpm2.network import Network
from ttsbatch.models.voxcpm2.vae import AudioVAE
from ttsbatch.models.voxcpm2.weights import pack, read_main, read_vae

FIXTURE = Path(__file__).parent.parent / "data" / "voxcpm2_tiny"
META = json.loads((FIXTURE / "meta.json").read_text("utf8"))
MODES = tuple(META["modes"])
ATOL = 1e-4  # the fixture's own bound
CPU = torch.device("cpu")


@cache
def config() -> VoxCPM2Config:
    """The tiny checkpoint's configuration."""
    return read_config(FIXTURE)


@cache
def network() -> Network:
    """The tiny checkpoint's networks in fp32."""
    return Network(config(), pack(read_main(FIXTURE, config()), config(), CPU, torch.float32))


@cache
def vae() -> AudioVAE:
    """The tiny checkpoint's AudioVAE."""
    return AudioVAE(config().vae, read_vae(FIXTURE, config().vae), CPU)


@cache
def goldens() -> dict[str, Tensor]:
    """All golden tensors."""
    return load_file(FIXTURE / "goldens.safetensors")


def golden(name: str) -> Tensor:
    """One golden tensor."""
    return goldens()[name]


def close(found: Tensor, name: str, atol: float = ATOL) -> None:
    """Compare with a golden."""
    torch.testing.assert_close(found, golden(name), atol=atol, rtol=0)


def time_major(patches: Tensor) -> Tensor:
    """The goldens' patches [..., C, P] as ours [..., P, C]."""
    return patches.transpose(-1, -2).contiguous()
