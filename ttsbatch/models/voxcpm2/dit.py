"""LocDiT: noise to a patch of latents by Euler steps, guidance as doubled rows.

The first rows of a doubled batch hear the language models, the second ones hear zeros in their
place; both see the same patch, time and previous patch. What the evaluations of a patch share is
made once: tokens lie before rows, those that stay before those that change.
Source: `unified_cfm.py` and `local_dit_v2.py` of package `voxcpm` 2.0.3; CFG-Zero* (Fan et al.,
2025) for the projected guidance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.kernels.guided_step import guided_step
from ttsbatch.models.layers import Rotary
from ttsbatch.models.voxcpm2.blocks import LocalStack, silu_between
from ttsbatch.models.voxcpm2.config import VoxCPM2Config
from ttsbatch.models.voxcpm2.flow import Schedule, make_schedule
from ttsbatch.models.voxcpm2.weights import DitWeights

MU_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the evaluations of a patch share: mu and the previous patch, then time and patch."""

    x: Tensor  # [T, B, E]
    qkv: Tensor  # [T, B, (Hq + 2 Hkv) D] of the first layer


class LocDiT:
    """The network and its solver over the weights. Shapes are fixed by the number of rows."""

    def __init__(self, config: VoxCPM2Config, weights: DitWeights, rotary: Rotary) -> None:
        self.weights, self.width = weights, config.dit.hidden_size
        self.patch_size = config.patch_size
        # By position: mu, time, previous patch, patch. In memory time comes after the previous
        # patch: what stays is one slice, what changes another.
        time, patch = MU_TOKENS, MU_TOKENS + 1 + config.patch_size
        end = patch + config.patch_size
        positions = [*range(time), *range(time + 1, patch), time, *range(patch, end)]
        self._num_fixed = patch - 1
        self._stack = LocalStack(
            config.dit, weights.stack, rotary, positions, wanted=slice(patch, end)
        )
        w = weights.out_proj[0]
        still = torch.ones(self.width, dtype=w.dtype, device=w.device)  # cosines of no time
        still[: self.width // 2] = 0
        self._delta = silu_between(still, *weights.delta_time)  # [E]

    def schedule(self, most_steps: int) -> Schedule:
        """The solver's tables for rows of up to so many steps."""
        w = self.weights.out_proj[0]
        return make_schedule(most_steps, self.width, w.dtype, w.device, self.embed_time)

    def embed_time(self, embedded: Tensor) -> Tensor:
        """Sinusoids of times to the time token: [..., E] -> [..., E]."""
        return silu_between(embedded, *self.weights.time) + self._delta

    def tokens(self, mu: Tensor, cond: Tensor) -> Tokens:
        """All that is known before the first evaluation; time and patch are not set yet.

        Args:
            mu: [B, 2, E] what the language models say.
            cond: [B, P, C] previous patches.
        """
        fixed, c = self._num_fixed, self._stack.config
        num_tokens, num_rows = fixed + 1 + self.patch_size, len(mu)
        x = mu.new_empty(num_tokens, num_rows, self.width)
        x[:MU_TOKENS] = mu.transpose(0, 1)
        x[MU_TOKENS:fixed] = F.linear(cond.transpose(0, 1), *self.weights.cond_proj)
        heads = c.num_heads + 2 * c.num_kv_heads
        qkv = mu.new_empty(num_tokens, num_rows, heads * c.head_dim)
        self._stack.project(x[:fixed], out=qkv[:fixed])
        return Tokens(x, qkv)

    def velocity(self, tokens: Tokens, x: Tensor, time: Tensor) -> Tensor:
        """One evaluation of the network.

        Args:
            tokens: the rest of the input; time and patch are written there.
            x: [P, B, C] patches on their way, contiguous.
            time: [B, E] from `embed_time`.

        Returns:
            [P, B, C].
        """
        fixed, (weight, bias) = self._num_fixed, self.weights.in_proj
        tokens.x[fixed] = time
        projected = tokens.x[fixed + 1 :].view(-1, self.width)
        torch.addmm(bias, x.flatten(0, 1), weight.t(), out=projected)
        self._stack.project(tokens.x[fixed:], out=tokens.qkv[fixed:])
        return F.linear(self._stack(tokens.x, tokens.qkv), *self.weights.out_proj)

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
        tokens = self.tokens(torch.cat([mu, torch.zeros_like(mu)]), cond.repeat(2, 1, 1))
        times = schedule.time[num_steps.repeat(2)]  # [2 S, K, E]
        widths = schedule.width[num_steps]  # [S, K]
        x = noise.transpose(0, 1).repeat(1, 2, 1)  # [P, 2 S, C]
        for k in range(schedule.num_evaluations):
            x = guided_step(x, self.velocity(tokens, x, times[:, k]), guidance, widths[:, k])
        return x[:, : len(noise)].transpose(0, 1).contiguous()
