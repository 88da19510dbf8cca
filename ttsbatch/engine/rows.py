"""The engine's own per-slot tensors: ages, caps, draws and the frames made.

A step reads and writes them on the device; the host writes them only when a slot is seated.
"""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor

from ttsbatch.engine.slots import Owner
from ttsbatch.kernels.advance_rows import advance_rows
from ttsbatch.models.protocol import Frame

RUNNING, STOP, LENGTH = 0, 1, 2  # values of `finish`
_PER_SLOT = ("age", "cap", "active", "finish", "seed", "stream", "penalty", "frames")
_PER_SLOT_OF_TWO = ("temperature", "top_k", "top_p")


class Rows:
    """State of S slots for rows of up to F frames of W values."""

    def __init__(
        self,
        num_slots: int,
        max_frames: int,
        frame_width: int,
        device: torch.device,
        dtype: torch.dtype = torch.int16,
        keeps_last: bool = False,
    ) -> None:
        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.device, self._keeps_last = device, keeps_last
        self._pin = device.type == "cuda"  # a copy from pageable memory would wait for the device
        self.age = zeros(num_slots, dtype=torch.int64)
        self.cap = zeros(num_slots, dtype=torch.int64)
        self.active = zeros(num_slots, dtype=torch.bool)
        self.finish = zeros(num_slots, dtype=torch.int64)
        self.seed = zeros(num_slots, dtype=torch.int64)
        self.stream = zeros(num_slots, dtype=torch.int64)
        # Row 0: codebook 0; row 1: the others.
        self.temperature = zeros(2, num_slots, dtype=torch.float32)
        self.top_k = zeros(2, num_slots, dtype=torch.int64)
        self.top_p = zeros(2, num_slots, dtype=torch.float32)
        self.penalty = zeros(num_slots, dtype=torch.float32)
        # One place more than frames: slots that made none may write there.
        self.frames = zeros(num_slots, max_frames + 1, frame_width, dtype=dtype)

    def first(self, num_slots: int) -> Rows:
        """The first slots' rows: the same memory."""
        part = copy(self)
        for name in _PER_SLOT:
            setattr(part, name, getattr(self, name)[:num_slots])
        for name in _PER_SLOT_OF_TWO:
            setattr(part, name, getattr(self, name)[:, :num_slots])
        return part

    def move(self, old: Tensor, new: Tensor) -> None:
        """Rows of slots `old` go to slots `new`, [M] int64 each; the old ones are free then."""
        for name in _PER_SLOT:
            tensor = getattr(self, name)
            tensor[new] = tensor[old]
        for name in _PER_SLOT_OF_TWO:
            tensor = getattr(self, name)
            tensor[:, new] = tensor[:, old]
        self.active.index_fill_(0, old, False)

    def seat(self, owners: list[Owner]) -> None:
        """Give slots to new owners: age 0, their caps, seeds and sampling."""
        integers = torch.tensor(
            [
                [
                    o.seat.slot,
                    o.job.cap_frames,
                    o.job.prompt.segment.utterance.seed,
                    stream_id(o.job.prompt.segment.index, o.job.prompt.segment.attempt),
                    *o.job.prompt.draw.top_k,
                ]
                for o in owners
            ],
            dtype=torch.int64,
            pin_memory=self._pin,
        ).to(self.device, non_blocking=True)
        floats = torch.tensor(
            [
                [
                    *o.job.prompt.draw.temperature,
                    *o.job.prompt.draw.top_p,
                    o.job.prompt.draw.repetition_penalty,
                ]
                for o in owners
            ],
            dtype=torch.float32,
            pin_memory=self._pin,
        ).to(self.device, non_blocking=True)
        slots = integers[:, 0]
        self.cap[slots] = integers[:, 1]
        self.seed[slots] = integers[:, 2]
        self.stream[slots] = integers[:, 3]
        self.top_k[:, slots] = integers[:, 4:6].T
        self.temperature[:, slots] = floats[:, 0:2].T
        self.top_p[:, slots] = floats[:, 2:4].T
        self.penalty[slots] = floats[:, 4]
        self.age.index_fill_(0, slots, 0)
        self.finish.index_fill_(0, slots, RUNNING)
        self.active.index_fill_(0, slots, True)

    def advance(self, frame: Frame) -> None:
        """Store a frame and end the rows that are over; fixed shapes, no host sync."""
        state = (self.active, self.age, self.cap, self.finish, self.frames)
        values, keep = frame.values.contiguous(), self._keeps_last
        advance_rows(values, frame.ended, *state, if_ended=STOP, if_full=LENGTH, keep_last=keep)

    def flags(self) -> Tensor:
        """[2, S] int64: `finish` and `age`, what the host reads a round late."""
        return torch.stack([self.finish, self.age])


def stream_id(segment: int, attempt: int) -> int:
    """Keeps the draws of an utterance's segments and attempts apart: 32 bits of the counter."""
    return (attempt << 20) | segment
