"""The encoder of reference clips, without the rest of a checkpoint.

The family has no voice vectors: a reference is heard as the latents of its patches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ttsbatch.models.voxcpm2.config import VoxCPM2Config
from ttsbatch.models.voxcpm2.references import in_batches
from ttsbatch.models.voxcpm2.specs import decoder_specs, encoder_specs
from ttsbatch.models.voxcpm2.vae import AudioVAE, vae_dtype
from ttsbatch.models.voxcpm2.weights import read_vae
from ttsbatch.models.weights import random_weights
from ttsbatch.types import ModelCard


@dataclass(frozen=True, slots=True)
class Encoders:
    """The AudioVAE's encoder, in `vae_dtype`."""

    device: torch.device
    vae: AudioVAE

    @property
    def sample_rate_hz(self) -> int:
        """Of the clips."""
        return self.vae.config.input_sample_rate_hz

    def encode(self, clips: list[Tensor]) -> list[Tensor]:
        """[N_i] f32 mono clips to their latents, [ceil(N_i / hop), C] f32 each."""
        found: dict[int, Tensor] = {}
        for batch in in_batches([len(c) for c in clips]):
            latents = self.vae.encode(pad_sequence([clips[i] for i in batch], batch_first=True))
            for i, row in zip(batch, latents, strict=True):
                found[i] = row[: -(-len(clips[i]) // self.vae.config.input_hop)]
        return [found[i] for i in range(len(clips))]

    def parts(self) -> dict[str, Callable[[list[Tensor]], object]]:
        """See `models.protocol.ReferenceEncoders`."""
        return {"codec encoder": self.encode}


def load_encoders(card: ModelCard, device: torch.device) -> Encoders:
    """The AudioVAE of a card alone.

    Raises:
        ModelError: tensors missing, unknown, misshapen or unreadable.
    """
    config: VoxCPM2Config = card.config
    with torch.inference_mode():
        if card.path is None:
            g = torch.Generator(device=device).manual_seed(0)
            specs = encoder_specs(config.vae) | decoder_specs(config.vae)
            tensors = random_weights(specs, g, device)
        else:
            tensors = read_vae(Path(card.path), config.vae)
        dtype = vae_dtype(device, torch.bfloat16)  # as in a GPU's usual run
        return Encoders(device, AudioVAE(config.vae, tensors, device, dtype))
