"""The AudioVAE in windows equals the AudioVAE over the whole, at any length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from tests.parity.vae_windows import BOUND, in_windows, patches
from tests.parity.voxcpm2 import CPU, config, vae
from ttsbatch.models.voxcpm2.model import WINDOW_PATCHES
from ttsbatch.models.voxcpm2.official import random_config
from ttsbatch.models.voxcpm2.specs import decoder_specs, encoder_specs
from ttsbatch.models.voxcpm2.vae import CONTEXT_LATENTS, AudioVAE
from ttsbatch.models.weights import random_weights

LENGTHS = (1, 2, 4, 5, 39, 40, 41, 45, 79, 81, 121, 200)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("num", LENGTHS)
def test_windows_equal_the_whole(num: int) -> None:
    latents = patches(num)
    whole = vae().decode(latents)[0]
    context = -(-CONTEXT_LATENTS // config().patch_size)
    windows = in_windows(vae(), latents, WINDOW_PATCHES, context)
    assert windows.shape == whole.shape
    assert (windows - whole).abs().max() < BOUND


def test_twelve_latents_of_context_are_too_few() -> None:
    """What others publish as enough."""
    latents = patches(60)
    whole = vae().decode(latents)[0]
    few = in_windows(vae(), latents, WINDOW_PATCHES, context=3)
    assert (few - whole).abs().max() > 100 * BOUND


def test_rows_of_one_batch_do_not_hear_each_other_or_their_padding() -> None:
    latents = torch.cat([patches(30), patches(30).flip(1)])
    latents[1, 40:] = 0
    together = vae().decode(latents)
    alone = vae().decode(latents[1:, :40])
    hop = config().vae.output_hop
    assert (together[1, : 40 * hop] - alone[0]).abs().max() < BOUND
    assert (together[0] - vae().decode(latents[:1])[0]).abs().max() < BOUND


def test_random_weights_make_noise_neither_silent_nor_clipped() -> None:
    """The official geometry at a sixteenth of its width."""
    c = replace(random_config().vae, encoder_dim=8, decoder_dim=128)
    g = torch.Generator().manual_seed(0)
    model = AudioVAE(c, random_weights(encoder_specs(c) | decoder_specs(c), g, CPU), CPU)
    samples = model.decode(torch.randn(1, 25, c.latent_dim, generator=g))
    assert 0.005 < samples.std() < 0.5
    latents = model.encode(samples[:, :6400])
    assert latents.shape == (1, 10, 64)
    assert latents.isfinite().all()
