"""LocDiT: noise to a patch of latents by Euler steps, guidance as doubled rows.

The first rows of a doubled batch hear the language models, the second ones hear zeros in their
place; both see the same patch, time and previous patch.
Source: `unified_cfm.py` and `local_dit_v2.py` of package `voxcpm` 2.0.3; CFG-Zero* (Fan et al.,
2025) for the projected guidance.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.models.layers import Rotary
from ttsbatch.models.voxcpm2.blocks import LocalStack, silu_between
from ttsbatch.models.voxcpm2.config import VoxCPM2Config
from ttsbatch.models.voxcpm2.flow import Schedule, sinusoids
from ttsbatch.models.voxcpm2.weights import DitWeights

MU_TOKENS = 2
GUARD = 1e-8  # keeps the projection finite where the unguided velocity is zero


class LocDiT:
    """The network and its solver over the weights. Shapes are fixed by the number of rows."""

    def __init__(self, config: VoxCPM2Config, weights: DitWeights, rotary: Rotary) -> None:
        self.weights, self.width = weights, config.dit.hidden_size
        self.patch_size = config.patch_size
        num_tokens = MU_TOKENS + 1 + 2 * config.patch_size
        self._stack = LocalStack(config.dit, weights.stack, rotary, num_tokens)
        w = weights.out_proj[0]
        still = torch.ones(self.width, dtype=w.dtype, device=w.device)  # cosines of no time
        still[: self.width // 2] = 0
        self._delta = silu_between(still, *weights.delta_time)  # [E]

    def schedule(self, most_steps: int) -> Schedule:
        """The solver's tables for rows of up to so many steps."""
        w = self.weights.out_proj[0]
        embedded, widths = sinusoids(most_steps, self.width, w.dtype)
        return Schedule(self.embed_time(embedded.to(w.device)), widths.to(w.device))

    def embed_time(self, embedded: Tensor) -> Tensor:
        """Sinusoids of times to the time token: [..., E] -> [..., E]."""
        return silu_between(embedded, *self.weights.time) + self._delta

    def velocity(self, x: Tensor, mu: Tensor, time: Tensor, cond: Tensor) -> Tensor:
        """One evaluation of the network.

        Args:
            x: [B, P, C] patches on their way.
            mu: [B, 2, E] what the language models say.
            time: [B, E] from `embed_time`.
            cond: [B, P, E] projected previous patches.

        Returns:
            [B, P, C].
        """
        tokens = torch.cat([mu, time[:, None], cond, F.linear(x, *self.weights.in_proj)], dim=1)
        return F.linear(self._stack(tokens)[:, -self.patch_size :], *self.weights.out_proj)

    def project_cond(self, cond: Tensor) -> Tensor:
        """Previous patches [B, P, C] as tokens [B, P, E]."""
        return F.linear(cond, *self.weights.cond_proj)

    def solve(
        self,
        noise: Tensor,
        mu: Tensor,
        cond: Tensor,
        guidance: Tensor,
        num_steps: Tensor,
        schedule: Schedule,
    ) -> Tensor:
        """Patches from noise; nothing is read back from the device.

        Args:
            noise: [S, P, C] standard normal, in the run dtype.
            mu: [S, 2, E].
            cond: [S, P, C] previous patches.
            guidance: [S] f32, how far beyond the unguided velocity; 1: not at all.
            num_steps: [S] int64, each within what `schedule` has.
            schedule: tables.

        Returns:
            [S, P, C] in the run dtype.
        """
        mu = torch.cat([mu, torch.zeros_like(mu)])
        cond = self.project_cond(cond).repeat(2, 1, 1)
        times = schedule.time[num_steps].repeat(2, 1, 1)  # [2 S, K, E]
        widths = schedule.width[num_steps][:, :, None, None]  # [S, K, 1, 1]
        strength = guidance[:, None, None]
        x = noise
        for k in range(schedule.num_evaluations):
            both = self.velocity(x.repeat(2, 1, 1), mu, times[:, k], cond)
            v = guide(both[: len(x)], both[len(x) :], strength)
            x = x - (widths[:, k] * v.float()).to(x.dtype)
        return x


def guide(heard: Tensor, unheard: Tensor, strength: Tensor) -> Tensor:
    """The velocity beyond the part of `heard` that lies along `unheard`; [S, P, C] each.

    Args:
        heard: with what the language models say.
        unheard: without; same dtype, which every operation rounds to.
        strength: [S, 1, 1] f32.
    """
    dot = (heard * unheard).flatten(1).sum(dim=1)
    square = unheard.square().flatten(1).sum(dim=1) + GUARD
    along = unheard * (dot / square)[:, None, None]
    return along + (strength * (heard - along).float()).to(heard.dtype)
