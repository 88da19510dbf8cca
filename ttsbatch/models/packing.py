"""Where the tokens of packed prompts go: one prompt after the other, in one prefill pass.

Each prompt's last token is left to the first step of its row, so that prefill makes KV alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ttsbatch.models.protocol import Seat

Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Packing:
    """B prompts of `sum(lengths)` tokens, of which T are staged for prefill; host arrays."""

    slots: Ints  # [B] of each prompt
    table: npt.NDArray[np.int32]  # [B, P] its pages, zeros behind them
    last: Ints  # [B] index of its last token among all tokens, not staged
    last_position: Ints  # [B] where that one is written
    rest: Ints  # [T] indices of the staged tokens
    position: Ints  # [T] place of each in its prompt
    slot: Ints  # [T] its prompt's slot

    @property
    def num_tokens(self) -> int:
        """Tokens staged."""
        return len(self.rest)


def pack_seats(seats: Sequence[Seat], lengths: Sequence[int], pages_per_slot: int) -> Packing:
    """Pack the prompts of seats, of `lengths` tokens each, at least one."""
    counts = np.array(lengths)
    rests = counts - 1
    slots = np.array([s.slot for s in seats])
    table = np.zeros((len(seats), pages_per_slot), np.int32)
    for i, seat in enumerate(seats):
        table[i, : len(seat.pages)] = seat.pages
    last = np.cumsum(counts) - 1
    starts = np.repeat(np.cumsum(rests) - rests, rests)
    return Packing(
        slots=slots,
        table=table,
        last=last,
        last_position=rests,
        rest=np.delete(np.arange(last[-1] + 1), last),
        position=np.arange(int(rests.sum())) - starts,
        slot=np.repeat(slots, rests),
    )
