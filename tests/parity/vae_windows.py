"""The AudioVAE over a row in windows, as the engine decodes it."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.parity.voxcpm2 import config
from ttsbatch.engine.codec_batches import lengths_for
from ttsbatch.engine.vocode import codec_passes
from ttsbatch.models.voxcpm2.vae import AudioVAE

BOUND = 1e-6
"""Of full scale, a thirtieth of an int16 step. Sums of another length round differently; the
windows themselves lose nothing."""


def patches(num: int) -> Tensor:
    """[1, 4 num, C] latents."""
    g = torch.Generator().manual_seed(num)
    return torch.randn(1, num * config().patch_size, config().vae.latent_dim, generator=g)


def in_windows(model: AudioVAE, latents: Tensor, window: int, context: int) -> Tensor:
    """Samples [N] of passes of so many new patches, right-padded to the engine's pass lengths."""
    per_patch, hop = config().patch_size, model.config.output_hop
    buckets = lengths_for(window + context)
    out = []
    for p in codec_passes(latents.shape[1] // per_patch, window, context):
        piece = latents[:, p.start * per_patch : p.stop * per_patch]
        bucket = next(n for n in buckets if n >= p.stop - p.start)
        padding = bucket * per_patch - piece.shape[1]
        samples = model.decode(torch.nn.functional.pad(piece, (0, 0, 0, padding)))[0]
        out.append(samples[p.context * per_patch * hop : (p.stop - p.start) * per_patch * hop])
    return torch.cat(out)
