"""Clips of any lengths are encoded together, each as if alone."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.parity.voxcpm2 import config, network, vae
from ttsbatch.models.voxcpm2.network import Network
from ttsbatch.models.voxcpm2.prompt import Clip
from ttsbatch.models.voxcpm2.references import ClipEncoder

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


def clips() -> list[Clip]:
    rng = np.random.default_rng(4)
    patch = config().patch_samples_in
    lengths = [1, patch - 1, patch, patch + 1, 3 * patch + 7, 5 * patch]
    made = [rng.normal(0, 0.1, n).astype(np.float32) for n in lengths]
    return [Clip(str(n), x, side) for n, x in enumerate(made) for side in SIDES]


def encoder() -> ClipEncoder:
    return ClipEncoder(config(), network(), vae())


@torch.inference_mode()
def test_together_they_are_as_alone_and_in_their_order() -> None:
    wanted = clips()
    together = encoder()(wanted)
    for clip, found in zip(wanted, together, strict=True):
        (alone,) = encoder()([clip])
        assert len(found.patches) == clip.num_patches(config())
        torch.testing.assert_close(found.patches, alone.patches, rtol=0, atol=1e-5)
        torch.testing.assert_close(found.embedded, alone.embedded, rtol=0, atol=1e-5)
    left, right = together[-4], together[-3]  # one clip: its samples lie elsewhere in the patches
    assert not torch.allclose(left.patches, right.patches)


@torch.inference_mode()
def test_those_of_a_pass_are_embedded_at_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    embed = Network.embed_patches

    def counted(self: Network, patches: Tensor) -> Tensor:
        calls.append(len(patches))
        return embed(self, patches)

    monkeypatch.setattr(Network, "embed_patches", counted)
    wanted, one = clips(), encoder()
    first = one(wanted)
    assert calls == [sum(clip.num_patches(config()) for clip in wanted)]
    again = one([*wanted[::-1], *wanted])
    assert len(calls) == 1
    assert all(a is b for a, b in zip(first, again[len(wanted) :], strict=True))
