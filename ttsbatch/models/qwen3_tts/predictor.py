"""The code predictor: codebooks 1..Q-1 of a frame, one short causal pass each.

Positions 0 and 1 are the talker's hidden vector and codebook 0; every frame starts afresh.
Source: package `qwen-tts` 0.1.1 (code predictor of modeling_qwen3_tts.py).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ttsbatch.kernels.embed_rms_norm import embed_rms_norm
from ttsbatch.kernels.predictor_attention import predictor_attention
from ttsbatch.kernels.rms_norm import add_rms_norm
from ttsbatch.models.decoder import mlp
from ttsbatch.models.layers import Rotary
from ttsbatch.models.protocol import Draw
from ttsbatch.models.qwen3_tts.config import RotaryStackConfig
from ttsbatch.models.qwen3_tts.weights import TalkerWeights


class PredictorCache:
    """Keys and values of one frame: [L, S, Hkv, Q, D] each, overwritten by the next frame."""

    def __init__(
        self, config: RotaryStackConfig, num_slots: int, num_codebooks: int, like: Tensor
    ) -> None:
        shape = (config.num_layers, num_slots, config.num_kv_heads, num_codebooks, config.head_dim)
        self.k, self.v = like.new_zeros(shape), like.new_zeros(shape)


class Predictor:
    """The predictor over its weights; state is the caller's."""

    def __init__(
        self, config: RotaryStackConfig, weights: TalkerWeights, num_codebooks: int
    ) -> None:
        self.config, self.weights, self.num_codebooks = config, weights, num_codebooks
        self.rotary = Rotary.make(
            config.rope_theta, config.head_dim, num_codebooks, weights.head.device
        )

    def frame(
        self, hidden: Tensor, first: Tensor, cache: PredictorCache, draw: Draw
    ) -> list[Tensor]:
        """Draw the rest of every slot's frame.

        Args:
            hidden: [S, E] talker output of this frame.
            first: [S] int64 codebook 0, each below the codebook's size.
            cache: overwritten.
            draw: called for codebook 1, then 2, up to the last.

        Returns:
            Codebooks 1..Q-1, [S] int64 each.
        """
        w = self.weights
        if w.projection is not None:
            hidden = F.linear(hidden, *w.projection)
        codes = [first]
        before: Tensor | None = hidden  # the first pass takes two tokens, the others one
        position = 0
        for head, table in zip(w.predictor_heads, w.predictor_codes, strict=True):
            out = self._pass(codes[-1], table, before, position, cache)
            position += 1 if before is None else 2
            before = None
            codes.append(draw(F.linear(out, head), len(codes)))
        return codes[1:]

    def _pass(
        self, ids: Tensor, table: Tensor, before: Tensor | None, start: int, cache: PredictorCache
    ) -> Tensor:
        """Run a token per slot, after `before` [S, W] if given, at positions from `start` on.

        Returns the last position's output [S, W], normed.
        """
        stack, eps = self.weights.predictor, self.config.rms_norm_eps
        layers = stack.layers
        h, x = embed_rms_norm(ids, table, layers[0].input_norm, eps, before)  # [S, T, W]
        for n, layer in enumerate(layers):
            assert layer.qk_norm is not None
            seen = predictor_attention(
                F.linear(h, layer.qkv),
                *layer.qk_norm,
                self.rotary.cos,
                self.rotary.sin,
                start,
                cache.k[n, : len(x)],
                cache.v[n, : len(x)],
                eps,
            )
            if n + 1 == len(layers):  # of the last layer only the last position is wanted
                seen, x = seen[:, -1], x[:, -1]
            h, x = add_rms_norm(F.linear(seen, layer.out), x, layer.post_norm, eps)
            h, x = add_rms_norm(mlp(h, layer), x, stack.norm_after(n), eps)
        return h
