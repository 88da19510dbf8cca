"""Reference clips of any lengths in batches of few shapes.

Each new shape costs a GPU's libraries and allocator some 40 ms: with a pass of its own for each
length, 256 clips of 2 to 6 s took as long as speaking 2,048 rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ttsbatch.models.clips import longest_first

MOST_CLIPS = 16


class ClipBatch(NamedTuple):
    """Clips that share a pass."""

    members: list[int]  # their places, at most `size`
    size: int
    length: int  # at least that of each

    def lengths(self, lengths: Sequence[int]) -> np.ndarray:
        """[size] int64 of `lengths` at the places; 1 where there is no clip."""
        own = np.ones(self.size, np.int64)
        own[: len(self.members)] = [lengths[i] for i in self.members]
        return own


def clip_batches(lengths: Sequence[int], unit: int, most: int, pad: bool) -> Iterator[ClipBatch]:
    """`padded_batches`, or `equal_batches` where nothing is to be padded."""
    return padded_batches(lengths, unit, most) if pad else equal_batches(lengths)


def padded_batches(lengths: Sequence[int], unit: int, most: int) -> Iterator[ClipBatch]:
    """Clips of about one length together, longest first.

    Args:
        lengths: of the clips.
        unit: even; a batch's length is one of 1, 1.5, 2, 3, 4, 6, 8, 12 ... of it.
        most: size times length of a batch of several clips; sizes are powers of two.
    """
    for members in longest_first(lengths, lambda longest: _full(_rounded_up(longest, unit), most)):
        length = _rounded_up(lengths[members[-1]], unit)
        yield ClipBatch(members, 1 << (len(members) - 1).bit_length(), length)


def equal_batches(lengths: Sequence[int]) -> Iterator[ClipBatch]:
    """Clips of exactly one length together, for a CPU, where a shape costs nothing."""
    same: dict[int, list[int]] = {}
    for i, length in enumerate(lengths):
        same.setdefault(length, []).append(i)
    for length, members in same.items():
        for at in range(0, len(members), MOST_CLIPS):
            group = members[at : at + MOST_CLIPS]
            yield ClipBatch(group, len(group), length)


def _full(length: int, most: int) -> int:
    return min(MOST_CLIPS, 1 << max(0, (most // length).bit_length() - 1))


def _rounded_up(length: int, unit: int) -> int:
    while True:
        if length <= unit:
            return unit
        if length <= unit + unit // 2:
            return unit + unit // 2
        unit *= 2


class Lengths:
    """Where the clips of a padded batch end: [B] on the device, counted in what is `num` wide."""

    def __init__(self, own: Tensor, num: int) -> None:
        self.own, self.num = own, num

    def mask(self) -> Tensor:
        """[B, 1, num] bool, True up to a clip's end."""
        place = torch.arange(self.num, device=self.own.device)
        return (place < self.own[:, None])[:, None]

    def divided(self, stride: int) -> Lengths:
        """The same after a convolution of this stride, which fills up a clip's last stride."""
        return Lengths(-(-self.own // stride), -(-self.num // stride))

    def silenced(self, x: Tensor) -> Tensor:
        """[B, C, num] with zeros behind each clip."""
        return x.masked_fill(~self.mask(), 0)

    def held(self, x: Tensor) -> Tensor:
        """[B, C, num] with each clip's last value behind it."""
        place = torch.arange(self.num, device=x.device).minimum(self.own[:, None] - 1)
        return x.gather(2, place[:, None].expand(x.shape))

    def reflected(self, x: Tensor, left: int, right: int) -> Tensor:
        """[B, C, num] -> [B, C, left + num + right], each clip mirrored at its own two ends."""
        place = torch.arange(-left, self.num + right, device=x.device).abs()
        last = self.own[:, None] - 1
        place = (last - (place - last).abs()).clamp(min=0)
        return x.gather(2, place[:, None].expand(-1, x.shape[1], -1))
