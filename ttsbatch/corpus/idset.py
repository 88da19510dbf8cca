"""Which ids a corpus has had so far, in little memory.

An open-addressing table of hashes in two flat arrays: 20 to 40 bytes an id, where a set of the
hashes takes 75. Ten million ids are 201 MB, and 302 MB for the moment in which the table grows.
"""

from __future__ import annotations

import struct
from array import array
from hashlib import blake2b

import numpy as np

# 96 bits: two of ten million ids meet by chance once in 10**15 corpora.
_DIGEST = struct.Struct("<QI")
_MOST_FILLED = 0.6  # beyond, a search looks at too many slots
_FIRST_SLOTS = 1 << 12
_CHUNK_SLOTS = 1 << 18


class IdSet:
    """Ids by their hashes; only ever grows."""

    def __init__(self) -> None:
        self._count = 0
        self._allocate(_FIRST_SLOTS)

    def __len__(self) -> int:
        return self._count

    def add(self, row_id: str) -> bool:
        """Take an id in; returns whether it is new."""
        low, high = _DIGEST.unpack(blake2b(row_id.encode(), digest_size=_DIGEST.size).digest())
        low = low or 1  # 0 is an empty slot
        lows, mask = self._lows, self._mask
        at = low & mask
        while found := lows[at]:
            if found == low and self._highs[at] == high:
                return False
            at = (at + 1) & mask
        lows[at], self._highs[at] = low, high
        self._count += 1
        if self._count > self._room:
            self._grow()
        return True

    def _allocate(self, num_slots: int) -> None:
        self._lows = array("Q", [0]) * num_slots
        self._highs = array("I", [0]) * num_slots
        self._mask = num_slots - 1
        self._room = int(num_slots * _MOST_FILLED)

    def _grow(self) -> None:
        """Move to a table of twice the size, a chunk at a time."""
        old_lows, old_highs = np.asarray(self._lows), np.asarray(self._highs)
        self._allocate(2 * (self._mask + 1))
        lows, highs = np.asarray(self._lows), np.asarray(self._highs)
        mask = np.uint64(self._mask)
        for start in range(0, len(old_lows), _CHUNK_SLOTS):
            low, high = old_lows[start:][:_CHUNK_SLOTS], old_highs[start:][:_CHUNK_SLOTS]
            low, high = low[low != 0], high[low != 0]
            at = low & mask
            while len(low):
                free = lows[at] == 0
                # Where several want one slot the last gets it, in both arrays.
                lows[at[free]], highs[at[free]] = low[free], high[free]
                left = (lows[at] != low) | (highs[at] != high)
                low, high, at = low[left], high[left], (at[left] + np.uint64(1)) & mask
