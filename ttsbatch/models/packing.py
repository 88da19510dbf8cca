"""Where the tokens of packed prompts go: one prompt after the other, in one prefill pass.

Each prompt's last token is left to the first step of its row, so that prefill makes KV alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ttsbatch.models.layers import to_device
from ttsbatch.models.protocol import Seat

STAGED_TOKENS = 4096
"""Room for packed prompts; more than any prefill graph takes."""
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


class Staged:
    """Packed prompt tokens that wait for prefill: what families give of each, position and slot.

    Graphs hold the buffers, so that these never move. More tokens than they take, which no graph
    runs either, get buffers of their own.
    """

    def __init__(self, device: torch.device, **like: Tensor) -> None:
        """Zeros for STAGED_TOKENS; `like` has an empty tensor [0, ...] for each input, by name."""
        places = torch.empty(0, dtype=torch.int64, device=device)
        like |= {"position": places, "slot": places}
        self._kept = {name: x.new_zeros(STAGED_TOKENS, *x.shape[1:]) for name, x in like.items()}
        self._long: dict[str, Tensor] = {}
        self._num_filled = 0  # tokens of the kept buffers that the last fill wrote

    def fill(self, packing: Packing, spare_slot: int, **inputs: Tensor) -> None:
        """Take in `inputs` [T, ...] by name; padding is zeros at position 0 of the spare slot."""
        num_tokens, buffers = packing.num_tokens, self._kept
        self._long = {}
        if num_tokens > len(buffers["slot"]):
            buffers = self._long = {
                name: x.new_zeros(num_tokens, *x.shape[1:]) for name, x in buffers.items()
            }
        else:
            for x in buffers.values():  # what is left of other prompts may be NaN
                x[num_tokens : self._num_filled].zero_()
            self._num_filled = num_tokens
        buffers["slot"].fill_(spare_slot)
        buffers["position"].zero_()
        device = buffers["slot"].device
        inputs |= {
            "position": to_device(packing.position, device),
            "slot": to_device(packing.slot, device),
        }
        for name, x in inputs.items():
            buffers[name][:num_tokens] = x

    def first(self, num_tokens: int) -> dict[str, Tensor]:
        """The first tokens, by name: position and slot [T] int64, and the inputs."""
        buffers = self._kept if num_tokens <= len(self._kept["slot"]) else self._long
        return {name: x[:num_tokens] for name, x in buffers.items()}
