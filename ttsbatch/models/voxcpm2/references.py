"""Clips on the device: encoded by the AudioVAE and embedded, each distinct one once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ttsbatch.models.clips import longest_first
from ttsbatch.models.layers import to_device
from ttsbatch.models.voxcpm2.config import VoxCPM2Config
from ttsbatch.models.voxcpm2.network import Network
from ttsbatch.models.voxcpm2.prompt import Clip
from ttsbatch.models.voxcpm2.vae import AudioVAE

KEPT_CLIPS = 1024  # about 1 MB each at 10 s and the official width
BATCH_SAMPLES = 60 * 16_000  # of one pass, padding included: bounds its activations


@dataclass(frozen=True, slots=True)
class EncodedClip:
    """A clip as a prompt takes it."""

    patches: Tensor  # [N, P, C] in the run dtype
    embedded: Tensor  # [N, E]


class ClipEncoder:
    """Encodes clips through a cache."""

    def __init__(self, config: VoxCPM2Config, network: Network, vae: AudioVAE) -> None:
        self._config, self._network, self._vae = config, network, vae
        self._kept: OrderedDict[tuple[str, str], EncodedClip] = OrderedDict()

    def __call__(self, clips: Sequence[Clip]) -> list[EncodedClip]:
        """The clips on the device, in their order."""
        missing = {(c.key, c.padded): c for c in clips if (c.key, c.padded) not in self._kept}
        rows = list(missing.values())
        patch = self._config.patch_samples_in
        for batch in in_batches([c.num_patches(self._config) * patch for c in rows]):
            own = [rows[i] for i in batch]
            for clip, encoded in zip(own, self._encode(own), strict=True):
                self._kept[clip.key, clip.padded] = encoded
        found = []
        for c in clips:
            self._kept.move_to_end((c.key, c.padded))
            found.append(self._kept[c.key, c.padded])
        while len(self._kept) > max(KEPT_CLIPS, len(clips)):
            self._kept.popitem(last=False)
        return found

    def _encode(self, clips: list[Clip]) -> list[EncodedClip]:
        """One pass. The encoder is causal: what is padded behind a clip is not heard."""
        c = self._config
        counts = [clip.num_patches(c) for clip in clips]
        samples = np.zeros((len(clips), max(counts) * c.patch_samples_in), np.float32)
        for row, clip, num_patches in zip(samples, clips, counts, strict=True):
            short = num_patches * c.patch_samples_in - len(clip.samples)
            at = short if clip.padded == "left" else 0
            row[at : at + len(clip.samples)] = clip.samples
        latents = self._vae.encode(to_device(samples, self._vae.device))
        dtype = self._network.weights.embed.dtype
        patches = latents.unflatten(1, (-1, c.patch_size)).to(dtype)  # [B, N, P, C]
        own = [row[:n] for row, n in zip(patches, counts, strict=True)]
        embedded = self._network.embed_patches(torch.cat(own)).split(counts)
        return [EncodedClip(p.clone(), e.clone()) for p, e in zip(own, embedded, strict=True)]


def in_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The places of clips of so many samples, in batches of about one length, longest first."""
    return longest_first(lengths, lambda longest: max(1, BATCH_SAMPLES // longest))
