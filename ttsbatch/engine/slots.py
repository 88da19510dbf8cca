"""Who sits in which slot, and whose the KV pages are. Plain Python, no torch.

A slot's generation goes up when it is taken, so flags of a launch made under an earlier owner are
told apart from the new owner's.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

from ttsbatch.models.protocol import PAGE_SIZE, PreparedPrompt, Seat


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt waiting for a slot."""

    prompt: PreparedPrompt
    expected_frames: int
    cap_frames: int

    @property
    def num_pages(self) -> int:
        """Pages that the row can need at most; reserved whole, so a seated row always finishes."""
        return -(-(self.prompt.num_positions + self.cap_frames) // PAGE_SIZE)


@dataclass(frozen=True, slots=True)
class Owner:
    """A job in its slot."""

    job: Job
    seat: Seat
    generation: int


class SlotTable:
    """A fixed number of slots over a fixed number of pages; page 0 is never given out.

    The lowest free slot is given out first, so that few rows sit in the first few slots.
    """

    def __init__(self, num_slots: int, num_pages: int) -> None:
        self.num_slots = num_slots
        self._owners: dict[int, Owner] = {}
        self._free_slots = list(range(num_slots))  # a heap
        self._free_pages = list(range(num_pages - 1, 0, -1))
        self._generation = 0

    @property
    def num_busy(self) -> int:
        """Slots that have an owner."""
        return len(self._owners)

    def fits(self, job: Job) -> bool:
        """Whether a slot and enough pages are free."""
        return bool(self._free_slots) and job.num_pages <= len(self._free_pages)

    def take(self, job: Job) -> Owner:
        """Seat a job that fits."""
        assert self.fits(job)
        slot = heapq.heappop(self._free_slots)
        pages = tuple(self._free_pages.pop() for _ in range(job.num_pages))
        self._generation += 1
        owner = Owner(job, Seat(slot, job.prompt, pages), self._generation)
        self._owners[slot] = owner
        return owner

    def release(self, owner: Owner) -> None:
        """Take slot and pages back from their owner."""
        assert self.holds(owner)
        del self._owners[owner.seat.slot]
        heapq.heappush(self._free_slots, owner.seat.slot)
        self._free_pages.extend(reversed(owner.seat.pages))

    def compact(self, num_slots: int) -> list[tuple[int, int]]:
        """Move every owner into the first `num_slots` slots, which can hold them all.

        Returns:
            (old slot, new slot) of each owner that moved. It keeps its generation: what it was
            told apart by before its move still tells it apart.
        """
        assert self.num_busy <= num_slots
        moves = []
        for old in sorted(s for s in self._owners if s >= num_slots):
            new = heapq.heappop(self._free_slots)
            owner = self._owners.pop(old)
            self._owners[new] = replace(owner, seat=replace(owner.seat, slot=new))
            heapq.heappush(self._free_slots, old)
            moves.append((old, new))
        return moves

    @property
    def num_spanned(self) -> int:
        """Slots up to the last busy one."""
        return max(self._owners, default=-1) + 1

    def holds(self, owner: Owner) -> bool:
        """Whether the slot is still this owner's."""
        now = self._owners.get(owner.seat.slot)
        return now is not None and now.generation == owner.generation

    def owners(self) -> tuple[Owner, ...]:
        """The owners of now, for the flags of a launch made now."""
        return tuple(self._owners.values())
