"""A `CodecLM` as a `Speaker`: prepare on a thread, decode in slots, vocode in batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from ttsbatch.engine.budget import make_job
from ttsbatch.engine.decode import DecodeLoop, FinishedCodes
from ttsbatch.engine.queue import JobQueue, Prefetch, Refusal, prepared
from ttsbatch.engine.slots import Job
from ttsbatch.engine.vocode import Vocoder
from ttsbatch.errors import EngineError
from ttsbatch.models.protocol import PAGE_SIZE, CodecLM, EngineSpec
from ttsbatch.types import EngineStats, Failure, Segment, Waveform

DEFAULT_SLOTS = {"cuda": 64, "cpu": 8}
LOOKAHEAD_PER_SLOT = 4  # jobs sorted by length before they are seated
MIN_LOOKAHEAD = 256
WAVEFORMS_AHEAD = 256  # finished rows that wait for the caller: 60 MB at 5 s and 24 kHz
KV_SHARE_OF_FREE = 0.6  # of free device memory: the rest is prefill and codec activations
CPU_KV_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the loop allocates."""

    num_slots: int
    num_pages: int
    max_positions: int


def choose_sizes(
    spec: EngineSpec, device: torch.device, slots: int | None, free_bytes: int
) -> Sizes:
    """Slots and pages that fit.

    Every slot gets pages for its longest possible row, or what `free_bytes` of KV hold if that is
    less; rows that need more than there is are refused one by one.

    Raises:
        EngineError: not even one page per slot fits.
    """
    num_slots = slots if slots is not None else DEFAULT_SLOTS[device.type]
    page_bytes = spec.kv_bytes_per_position * PAGE_SIZE
    longest = -(-spec.max_positions // PAGE_SIZE)
    num_pages = min(num_slots * longest, free_bytes // page_bytes) + 1
    if num_pages <= num_slots:
        raise EngineError(
            f"{device}: {free_bytes >> 20} MiB for KV hold {num_pages - 1} pages of "
            f"{page_bytes >> 10} KiB; {num_slots} slots need at least as many: use fewer --slots"
        )
    return Sizes(num_slots, num_pages, min(longest, num_pages - 1) * PAGE_SIZE)


class CodecLMSpeaker:
    """Owns a model, its slots and its vocoder."""

    def __init__(self, model: CodecLM, slots: int | None, keep_codes: bool = False) -> None:
        """Allocate slots and KV.

        Args:
            model: loaded.
            slots: how many; None chooses.
            keep_codes: waveforms carry their codes (--save-codes).

        Raises:
            EngineError: the device lacks the memory.
        """
        self.card, self.stats = model.card, EngineStats()
        self._model = model
        self._cuda = model.device.type == "cuda"
        if self._cuda:
            self.stats.devices = [torch.cuda.get_device_name(model.device)]
            free = int(torch.cuda.mem_get_info(model.device)[0] * KV_SHARE_OF_FREE)
        else:
            self.stats.devices = ["cpu"]
            free = CPU_KV_BYTES
        self._sizes = choose_sizes(model.spec, model.device, slots, free)
        self._loop = DecodeLoop(
            model,
            self._sizes.num_slots,
            self._sizes.num_pages,
            self._sizes.max_positions,
            self.stats,
        )
        self._vocoder = Vocoder(model, self.stats, keep_codes, after=self._loop.stream)
        self._jobs: JobQueue | None = None
        self._stopped = False

    def speak(self, segments: Iterable[Segment]) -> Iterator[Waveform | Refusal]:
        """Speak every segment once; see `models.protocol.Speaker`.

        The loop runs on a thread of its own, so that what the caller does with a waveform does
        not keep the device waiting.
        """
        with Prefetch(self._produce(segments), WAVEFORMS_AHEAD, "ttsbatch-decode") as made:
            while (item := made.take(wait=True)) is not None:
                yield item

    def _produce(self, segments: Iterable[Segment]) -> Iterator[Waveform | Refusal]:
        if self._cuda:
            torch.cuda.set_device(self._model.device)
        depth = max(MIN_LOOKAHEAD, LOOKAHEAD_PER_SLOT * self._sizes.num_slots)
        vocoder = self._vocoder
        source = prepared(segments, self._prepare)
        with Prefetch(source, depth, "ttsbatch-prepare") as incoming:
            self._jobs = JobQueue(incoming, depth)
            if self._stopped:
                self._jobs.stop()
            for item in self._loop.run(self._jobs):
                if not isinstance(item, FinishedCodes):
                    yield item
                elif len(item.codes) == 0:
                    yield item.job.prompt.segment, _no_frames(item.job.prompt.segment)
                else:
                    vocoder.add(item)
                    yield from vocoder.ready()
            yield from vocoder.drain()
        self.stats.eager_steps = self._loop.num_eager
        if self._cuda:
            peak = torch.cuda.max_memory_allocated(self._model.device)
            self.stats.peak_device_memory_bytes = peak

    def stop(self) -> None:
        """Begin nothing more; what sits in a slot is finished and still comes out of `speak`."""
        self._stopped = True
        if self._jobs is not None:
            self._jobs.stop()

    def close(self) -> None:
        """Give the device memory back."""
        del self._loop, self._vocoder, self._model
        if self._cuda:
            torch.cuda.empty_cache()

    def _prepare(self, segment: Segment) -> Job | Failure:
        started = time.perf_counter()
        prompt = self._model.prepare(segment)
        self.stats.add_seconds("prepare", time.perf_counter() - started)
        if isinstance(prompt, Failure):
            return prompt
        job = make_job(prompt, self._model.spec)
        room = min(self._sizes.max_positions, self._model.spec.max_positions)
        if prompt.num_positions + job.cap_frames > room:
            u = segment.utterance
            message = (
                f"{u.source}:{u.line}: the prompt takes {prompt.num_positions} positions and the "
                f"speech up to {job.cap_frames}; there is room for {room}: split the text or "
                "lower max_seconds"
            )
            return Failure(u.source, u.line, u.id, "prepare", "too_long", message)
        return job


def _no_frames(segment: Segment) -> Failure:
    u = segment.utterance
    message = f"{u.source}:{u.line}: the model ended before the first frame"
    return Failure(u.source, u.line, u.id, "engine", "engine_error", message)
