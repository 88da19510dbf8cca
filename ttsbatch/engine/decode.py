"""The inner loop: keeps every slot busy, and reads the flags of one round while the next runs.

A round is a few frames of every slot, launched back to back. Flags carry the owners of their
launch, so that a flag of a slot that changed hands since is dropped.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ttsbatch.counts import counted
from ttsbatch.engine.graphs import BucketGraphs
from ttsbatch.engine.queue import JobQueue, Refusal
from ttsbatch.engine.rows import STOP, Rows
from ttsbatch.engine.sampling import Sampler
from ttsbatch.engine.slots import Job, Owner, SlotTable
from ttsbatch.errors import EngineError
from ttsbatch.models.protocol import CodecLM, Seat
from ttsbatch.types import EngineStats, FinishReason

CPU_FRAMES_PER_ROUND = 1  # nothing overlaps there
SHORT_BOUNDS = (1024,)
"""Context lengths with a graph of their own: what one-pass attention takes."""
FEWEST_SLOTS_CAPTURED = 16
"""Slots of the smallest frame; a frame of few rows lasts as long as its kernels' launches."""
PREFILL_BUCKETS = (64, 128, 256, 512, 1024, 2048)
"""Packed prompt tokens of a prefill pass; a longer single prompt runs eagerly."""


def frame_sizes(num_slots: int) -> list[int]:
    """The slot counts that a frame is captured for, ascending: all slots, and halves of them."""
    sizes = [num_slots]
    while sizes[0] > FEWEST_SLOTS_CAPTURED:
        sizes.insert(0, -(-sizes[0] // 2))
    return sizes


@dataclass(frozen=True, slots=True)
class FinishedFrames:
    """The frames of one row, still on the device."""

    job: Job
    frames: Tensor  # [F, W] in the dtype that frames are kept in, F >= 0
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class _Round:
    """A launched round: its flags, on their way to the host, and whose they are."""

    flags: Tensor  # [2, S] on the host once `copied` has passed
    copied: torch.cuda.Event | None
    owners: tuple[Owner, ...]


class DecodeLoop:
    """Slots, pages and per-slot state of one device, and the loop over them."""

    def __init__(
        self,
        model: CodecLM,
        num_slots: int,
        num_pages: int,
        max_positions: int,
        stats: EngineStats,
        use_graphs: bool = True,
    ) -> None:
        """Allocate state for the slots, and on a GPU capture a frame.

        Raises:
            EngineError: the frame cannot be captured.
        """
        self._model, self._stats = model, stats
        self._eager_before = stats.eager_steps  # of a loop that this one takes the place of
        self._slots = SlotTable(num_slots, num_pages)
        max_frames = min(model.spec.max_frames, max_positions)
        spec = model.spec
        self._rows = Rows(
            num_slots,
            max_frames,
            spec.frame_width,
            model.device,
            spec.frame_dtype,
            spec.keeps_last,
        )
        self._state: Any = model.new_state(num_slots, num_pages, max_positions)
        self._scheduled: dict[int, int] = {}  # generation -> frames launched
        on_gpu = model.device.type == "cuda"
        self.frames_per_round = spec.frames_per_round if on_gpu else CPU_FRAMES_PER_ROUND
        # Above the codec's stream: a frame is many short kernels, which must not queue behind it.
        self.stream = torch.cuda.Stream(model.device, priority=-1) if on_gpu else None
        stats.num_slots = num_slots
        self._sizes = frame_sizes(num_slots)
        bounds = [b for b in SHORT_BOUNDS if b < max_positions] + [max_positions]
        self._frames = {n: self._frames_of(n, bounds) for n in self._sizes}
        self._prefills = BucketGraphs("prefill", self._prefill, model.device, PREFILL_BUCKETS)
        if use_graphs:
            self._capture()
        if self.stream is not None:  # what is allocated above is filled on the current stream
            self.stream.wait_stream(torch.cuda.current_stream(model.device))

    def run(self, jobs: JobQueue) -> Iterator[FinishedFrames | Refusal]:
        """Decode every job; yields in the order in which rows end, refused ones as they come.

        Raises:
            EngineError: a job that no free slots can ever hold.
        """
        self._clear()
        behind: _Round | None = None
        while not jobs.abandoned:
            jobs.fill()
            while jobs.refusals:
                yield jobs.refusals.pop(0)
            self._admit(jobs)
            self._compact()
            launched = self._launch()
            if behind is not None:
                yield from self._collect(behind)  # the loop's only wait on the device
            elif launched is None and jobs.exhausted:
                return
            behind = launched

    @property
    def num_eager(self) -> int:
        """Frames and prefills that ran without a graph since the start."""
        return sum(f.num_eager for f in self._frames.values()) + self._prefills.num_eager

    @torch.inference_mode()
    def time_frames(
        self, jobs: list[Job], frames: int, around: AbstractContextManager[Any] | None = None
    ) -> float:
        """Seconds of `frames` frames back to back with these jobs seated, for `bench`.

        `around` is entered around them.

        The loop cannot be used for anything else afterwards: the jobs stay in their slots.
        """
        owners = [self._slots.take(job) for job in jobs]
        with torch.cuda.stream(self.stream):
            return self._time_frames(owners, frames, around)

    def rehearse(self) -> None:
        """A frame of each path and a prefill, of no rows: what is compiled at first use, is now."""
        for frames in self._frames.values():
            frames.rehearse()
        self._prefills.rehearse()

    def _time_frames(
        self, owners: list[Owner], frames: int, around: AbstractContextManager[Any] | None
    ) -> float:
        self._seat(owners)
        longest = max(o.job.prompt.num_positions for o in owners)
        frames_of = self._frames[self._size()]
        frames_of.run(longest)
        self._rows.age.cpu()  # waits for the device
        with around if around is not None else nullcontext():
            started = time.perf_counter()
            for n in range(1, frames + 1):
                frames_of.run(longest + n)
            self._rows.age.cpu()
            return time.perf_counter() - started

    @torch.inference_mode()
    def _capture(self) -> None:
        started = time.perf_counter()
        pool = None
        for n in reversed(self._sizes):
            pool = self._frames[n].capture(self.stream, pool)
        self._prefills.capture(self.stream, pool)
        self._stats.add_seconds("warmup", time.perf_counter() - started)

    def _seat(self, owners: list[Owner]) -> None:
        """Prefill owners' prompts, packed into passes, and start their rows."""
        group: list[Seat] = []
        tokens = 0
        for owner in owners:
            count = owner.job.prompt.num_positions
            if group and tokens + count > PREFILL_BUCKETS[-1]:
                self._prefills.run(self._model.stage(self._state, group))
                group, tokens = [], 0
            group.append(owner.seat)
            tokens += count
        self._prefills.run(self._model.stage(self._state, group))
        self._rows.seat(owners)

    def _prefill(self, num_tokens: int) -> None:
        self._model.prefill(self._state, num_tokens)

    @torch.inference_mode()
    def _clear(self) -> None:
        """Forget rows that an earlier run left behind when it broke off."""
        for owner in self._slots.owners():
            self._slots.release(owner)
        self._scheduled.clear()
        with torch.cuda.stream(self.stream):
            self._rows.active.zero_()

    def _frames_of(self, num_slots: int, bounds: list[int]) -> BucketGraphs:
        """A frame of the first slots."""
        rows = self._rows.first(num_slots)
        sampler = Sampler(rows)

        def frame(bound: int) -> None:
            rows.advance(self._model.step(self._state, rows, sampler, bound))

        return BucketGraphs(
            f"a frame of {counted(num_slots, 'slot')}", frame, self._model.device, bounds
        )

    def _size(self) -> int:
        """Slots of the smallest frame that reaches every busy one."""
        return self._sizes[bisect_left(self._sizes, self._slots.num_spanned)]

    @torch.inference_mode()
    def _compact(self) -> None:
        """Move rows to the first slots where a smaller frame then does, as at the end of a run."""
        fewest = self._sizes[bisect_left(self._sizes, self._slots.num_busy)]
        if fewest >= self._size():
            return
        moves = torch.tensor(self._slots.compact(fewest), pin_memory=self.stream is not None)
        with torch.cuda.stream(self.stream):
            old, new = moves.to(self._model.device, non_blocking=True).unbind(1)
            self._rows.move(old, new)
            self._model.move(self._state, old, new)

    @torch.inference_mode()
    def _admit(self, jobs: JobQueue) -> None:
        fresh: list[Owner] = []
        while (job := jobs.next_fitting(self._slots)) is not None:
            fresh.append(self._slots.take(job))
        if not fresh:
            if self._slots.num_busy == 0 and jobs.num_waiting:
                raise EngineError("a row needs more KV pages than there are; it was to be refused")
            return
        started = time.perf_counter()
        with torch.cuda.stream(self.stream):
            self._seat(fresh)
        for owner in fresh:
            self._scheduled[owner.generation] = 0
            self._stats.prefill_tokens += owner.job.prompt.num_positions
        self._stats.add_seconds("prefill", time.perf_counter() - started)

    @torch.inference_mode()
    def _launch(self) -> _Round | None:
        owners = self._slots.owners()
        if not owners:
            return None
        # Once whoever is left has ended, only flags are to come: those of a moved row come again.
        over = all(self._scheduled[o.generation] >= o.job.cap_frames for o in owners)
        num_frames = 0 if over else self.frames_per_round
        started = time.perf_counter()
        size = self._size()
        with torch.cuda.stream(self.stream):
            for _ in range(num_frames):
                self._frames[size].run(
                    max(o.job.prompt.num_positions + self._scheduled[o.generation] for o in owners)
                )
                for o in owners:
                    done = self._scheduled[o.generation] + 1
                    self._scheduled[o.generation] = min(done, o.job.cap_frames)
            flags, copied = self._flags()
        self._stats.num_steps += num_frames
        self._stats.eager_steps = self._eager_before + self.num_eager
        self._stats.total_slot_steps += num_frames * size
        self._stats.add_seconds("decode", time.perf_counter() - started)
        return _Round(flags, copied, owners)

    def _flags(self) -> tuple[Tensor, torch.cuda.Event | None]:
        """The rows' flags, on their way to the host."""
        flags = self._rows.flags()
        if self.stream is None:
            return flags, None
        host = torch.empty(flags.shape, dtype=flags.dtype, pin_memory=True)
        host.copy_(flags, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        return host, copied

    def _collect(self, behind: _Round) -> Iterator[FinishedFrames]:
        started = time.perf_counter()
        if behind.copied is not None:
            behind.copied.synchronize()
        self._stats.add_seconds("decode", time.perf_counter() - started)
        finish, age = behind.flags.tolist()
        over = [o for o in behind.owners if self._slots.holds(o) and finish[o.seat.slot]]
        for owner in over:
            slot = owner.seat.slot
            frames = self._copy_frames(slot, age[slot])
            self._slots.release(owner)
            del self._scheduled[owner.generation]
            self._stats.busy_slot_steps += age[slot]
            yield FinishedFrames(owner.job, frames, "stop" if finish[slot] == STOP else "length")

    @torch.inference_mode()
    def _copy_frames(self, slot: int, num_frames: int) -> Tensor:
        with torch.cuda.stream(self.stream):
            return self._rows.frames[slot, :num_frames].clone()
