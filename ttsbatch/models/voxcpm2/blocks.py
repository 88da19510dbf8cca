"""What the four transformer stacks share: rotary angles, the layer's halves, the local stack.

Source: MiniCPM4 modules of package `voxcpm` 2.0.3; LongRoPE (Ding et al., 2024).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.kernels.local_attention import local_attention
from ttsbatch.kernels.rms_norm import add_rms_norm, rms_norm
from ttsbatch.models.decoder import StackWeights, mlp
from ttsbatch.models.layers import Rotary
from ttsbatch.models.stack import StackConfig
from ttsbatch.models.voxcpm2.config import RopeConfig
from ttsbatch.models.voxcpm2.weights import Linear


def long_rope(config: RopeConfig, num_positions: int, device: torch.device) -> Rotary:
    """Tables of position / factor * theta^(-2i/D), cosines and sines times the config's scale."""
    half = len(config.factors)
    steps = torch.arange(0, 2 * half, 2, dtype=torch.float32, device=device) / (2 * half)
    factors = torch.tensor(config.factors, dtype=torch.float32, device=device)
    position = torch.arange(num_positions, dtype=torch.float32, device=device)
    angles = torch.outer(position, 1.0 / factors) * (1.0 / config.theta**steps)
    return Rotary(angles.cos() * config.scale, angles.sin() * config.scale)


def silu_between(x: Tensor, first: Linear, second: Linear) -> Tensor:
    """Linear, SiLU, linear."""
    return F.linear(F.silu(F.linear(x, *first)), *second)


class LocalStack:
    """Bidirectional attention within the few tokens of each row; no cache.

    Tokens lie before rows, [T, B, E], in an order of the caller's: what is known of a few tokens
    only, or wanted of a few, is then a slice that the products take as it is.
    """

    def __init__(
        self,
        config: StackConfig,
        weights: StackWeights,
        rotary: Rotary,
        positions: Sequence[int],
        wanted: slice,
    ):
        """A stack over tokens at `positions`, of which the `wanted` ones are to come out."""
        self.config, self.weights, self.wanted = config, weights, wanted
        at = torch.tensor(positions, device=rotary.cos.device)
        self._cos, self._sin = rotary.cos[at], rotary.sin[at]  # [T, D/2]
        self._first_wanted = wanted.indices(len(positions))[0]
        self._q_width = config.num_heads * config.head_dim

    def project(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """The first layer's projection of some of the tokens, which takes no notice of the others.

        Args:
            x: [N, B, E], contiguous.
            out: [N, B, (Hq + 2 Hkv) D], contiguous: where to write it, if anywhere in particular.

        Returns:
            [N, B, (Hq + 2 Hkv) D].
        """
        first = self.weights.layers[0]
        h = rms_norm(x, first.input_norm, self.config.rms_norm_eps)
        flat = None if out is None else out.view(-1, out.shape[2])
        made: Tensor = torch.mm(h.flatten(0, 1), first.qkv.t(), out=flat)
        return made.view(*x.shape[:2], -1)

    def __call__(self, x: Tensor, qkv: Tensor) -> Tensor:
        """Run all layers.

        Args:
            x: [T, B, E], contiguous.
            qkv: [T, B, (Hq + 2 Hkv) D], what `project` makes of it.

        Returns:
            [N, B, E], the wanted tokens after the final norm.
        """
        layers = self.weights.layers
        q, kv = qkv[..., : self._q_width], qkv[..., self._q_width :]
        for n in range(len(layers) - 1):
            h, x = self._finish(n, x, local_attention(q, kv, self._cos, self._sin))
            q, kv = self._project(n + 1, h)
        if len(layers) == 1:
            q = q[self.wanted]
        # The last layer hears all tokens and goes on with the wanted ones.
        seen = local_attention(q, kv, self._cos, self._sin, self._first_wanted)
        return self._finish(len(layers) - 1, x[self.wanted], seen)[0]

    def _project(self, n: int, h: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, and keys with values, of layer n; in the last one queries of wanted tokens."""
        weight, cut = self.weights.layers[n].qkv, self._q_width
        if n == len(self.weights.layers) - 1:
            return F.linear(h[self.wanted], weight[:cut]), F.linear(h, weight[cut:])
        qkv = F.linear(h, weight)
        return qkv[..., :cut], qkv[..., cut:]

    def _finish(self, n: int, x: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """What layer n makes of the attention's output, normed for the next one, and its sum."""
        layer, eps = self.weights.layers[n], self.config.rms_norm_eps
        h, x = add_rms_norm(F.linear(seen, layer.out), x, layer.post_norm, eps)
        return add_rms_norm(mlp(h, layer), x, self.weights.norm_after(n), eps)
