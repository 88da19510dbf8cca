"""Everything between a prompt and latents: the two LMs, FSQ, LocEnc, LocDiT and the stop head.

Source: `voxcpm2.py` of package `voxcpm` 2.0.3.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.models.voxcpm2.blocks import LocalStack, long_rope
from ttsbatch.models.voxcpm2.config import VoxCPM2Config
from ttsbatch.models.voxcpm2.dit import LocDiT
from ttsbatch.models.voxcpm2.lm import make_lm
from ttsbatch.models.voxcpm2.weights import VoxCPM2Weights


class Network:
    """The networks over their weights; state is the caller's."""

    def __init__(self, config: VoxCPM2Config, weights: VoxCPM2Weights) -> None:
        self.config, self.weights = config, weights
        device = weights.embed.device
        rotary = long_rope(config.rope, config.max_positions, device)
        self.lm = make_lm(config.lm, weights.lm, rotary)
        self.residual = make_lm(config.residual, weights.residual, None)
        self.dit = LocDiT(config, weights.dit, rotary)
        self._encoder = LocalStack(
            config.encoder,
            weights.encoder.stack,
            rotary,
            positions=range(1 + config.patch_size),
            wanted=slice(0, 1),
        )

    def encode(self, patches: Tensor) -> Tensor:
        """LocEnc: patches [B, P, C] to their vectors [B, W]."""
        w = self.weights.encoder
        frames = F.linear(patches.transpose(0, 1), *w.in_proj)
        special = w.special.expand(1, len(patches), -1)
        x = torch.cat([special, frames])
        return self._encoder(x, self._encoder.project(x))[0]

    def embed_patches(self, patches: Tensor) -> Tensor:
        """Patches [B, P, C] as inputs of the LM [B, E]."""
        return F.linear(self.encode(patches), *self.weights.enc_to_lm)

    def grid(self, hidden: Tensor) -> Tensor:
        """FSQ's codes [B, K]: whole numbers in -scale..scale; halves round to even."""
        bounded = torch.tanh(F.linear(hidden, *self.weights.fsq_in))
        return torch.round(bounded * self.config.fsq_scale)

    def quantize(self, hidden: Tensor) -> Tensor:
        """FSQ: [B, E] -> [B, E] through the grid."""
        return F.linear(self.grid(hidden) / self.config.fsq_scale, *self.weights.fsq_out)

    def residual_input(self, hidden: Tensor, x: Tensor, is_audio: Tensor) -> Tensor:
        """What the residual LM takes: the LM's output beside its own input where that is audio.

        Args:
            hidden: [B, E] the LM's output, quantised where `is_audio`.
            x: [B, E] the LM's input.
            is_audio: [B] bool.
        """
        heard = torch.where(is_audio[:, None], x, 0)
        return F.linear(torch.cat([hidden, heard], dim=-1), *self.weights.fusion)

    def lm_output(self, hidden: Tensor, is_audio: Tensor) -> Tensor:
        """The LM's output [B, E], quantised at audio positions ([B] bool)."""
        return torch.where(is_audio[:, None], self.quantize(hidden), hidden)

    def mu(self, lm_hidden: Tensor, residual_hidden: Tensor) -> Tensor:
        """What LocDiT hears of the two LMs: [B, E] each -> [B, 2, Ed]."""
        w = self.weights
        said = F.linear(lm_hidden, *w.lm_to_dit), F.linear(residual_hidden, *w.res_to_dit)
        return torch.stack(said, dim=1)

    def stop_logits(self, lm_hidden: Tensor) -> Tensor:
        """[B, 2]: go on, stop after this patch."""
        w = self.weights
        return F.linear(F.silu(F.linear(lm_hidden, *w.stop_proj)), w.stop_head)
