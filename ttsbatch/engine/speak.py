"""A `CodecLM` as a `Speaker`: prepare on a thread, decode in slots, vocode in batches."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from ttsbatch.counts import counted
from ttsbatch.engine.budget import make_job
from ttsbatch.engine.codec_batches import FEWEST_FULL_SAMPLES, FULL_SAMPLES
from ttsbatch.engine.decode import DecodeLoop, FinishedFrames
from ttsbatch.engine.device import as_engine_errors, is_out_of_memory
from ttsbatch.engine.isolate import Item, WatchedQueue, isolate
from ttsbatch.engine.queue import JobQueue, Prefetch, Refusal, engine_failure, prepared
from ttsbatch.engine.rehearse import rehearse
from ttsbatch.engine.slots import Job
from ttsbatch.engine.vocode import Vocoder
from ttsbatch.errors import EngineError
from ttsbatch.kernels.launch import fallbacks
from ttsbatch.models.protocol import PAGE_SIZE, CodecLM, EngineSpec
from ttsbatch.types import EngineStats, Failure, Segment, Waveform

MOST_SLOTS = {"cuda": 1024, "cpu": 8}
"""On an H200 with 1.7B weights 256, 512 and 1,024 slots decode 2,691, 3,665 and 4,146 audio-s/s."""
SLOT_STEP = 32  # many slots are chosen in whole steps: rows of a matrix product
FEWEST_SLOTS = 8
TYPICAL_POSITIONS = 512  # of a row: what a slot needs KV for when slots are chosen
LOOKAHEAD_PER_SLOT = 4  # jobs sorted by length before they are seated
MIN_LOOKAHEAD = 256
PREPARED_AHEAD = 256  # jobs that wait to join those, which take as many as rows have ended
WAVEFORMS_AHEAD = 256  # finished rows that wait for the caller: 60 MB at 5 s and 24 kHz
KV_SHARE_OF_FREE = 0.7  # of what the codec leaves: the rest is prefill and what others take
CODEC_BYTES_PER_SAMPLE = 1600
"""Of a full batch: activations of all graphs; 11.7 GiB at 4,096 frames of 1,920 samples."""
CODEC_SHARE_OF_FREE = 0.25  # at most, while the batch is not the smallest
CPU_KV_BYTES = 2 << 30
SWITCH_INTERVAL_S = 5e-4


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the loop allocates."""

    num_slots: int
    num_pages: int
    max_positions: int


def choose_sizes(
    spec: EngineSpec,
    device: torch.device,
    slots: int | None,
    free_bytes: int,
    num_parallel: int | None = None,
) -> Sizes:
    """Slots and pages that fit.

    Every slot gets pages for its longest possible row, or what `free_bytes` of KV hold if that is
    less; rows that need more than there is wait for pages, or are refused one by one.

    Args:
        spec: the model's sizes.
        device: where it runs.
        slots: how many; None: as many as pay and have KV for a typical row.
        free_bytes: for KV.
        num_parallel: rows of the job that are worth decoding at once, where known.

    Raises:
        EngineError: not even one page per slot fits.
    """
    page_bytes = spec.kv_bytes_per_position * PAGE_SIZE
    longest = -(-spec.max_positions // PAGE_SIZE)
    typical = min(longest, TYPICAL_POSITIONS // PAGE_SIZE)
    num_slots = slots
    if num_slots is None:
        num_slots = min(MOST_SLOTS[device.type], free_bytes // (typical * page_bytes))
        if num_parallel is not None:
            step = SLOT_STEP if num_parallel > SLOT_STEP else FEWEST_SLOTS
            num_slots = min(num_slots, -(-num_parallel // step) * step)
        num_slots = max(num_slots, FEWEST_SLOTS)
    num_pages = min(num_slots * longest, free_bytes // page_bytes) + 1
    if num_pages <= num_slots:
        raise EngineError(
            f"{device}: {free_bytes >> 20} MiB for KV hold {counted(num_pages - 1, 'page')} of "
            f"{page_bytes >> 10} KiB; expected as many as its {counted(num_slots, 'slot')} at "
            "least: use fewer --slots"
        )
    return Sizes(num_slots, num_pages, min(longest, num_pages - 1) * PAGE_SIZE)


class CodecLMSpeaker:
    """Owns a model, its slots and its vocoder."""

    def __init__(
        self,
        model: CodecLM,
        slots: int | None,
        keep_codes: bool = False,
        num_parallel: int | None = None,
    ) -> None:
        """Allocate slots and KV, and capture the graphs.

        Out of device memory halves the slots, down to FEWEST_SLOTS, and says so in `stats.notes`.

        Args:
            model: loaded.
            slots: how many; None chooses.
            keep_codes: waveforms carry their codes (--save-codes).
            num_parallel: rows of the job that are worth decoding at once, where known.

        Raises:
            EngineError: the device lacks the memory.
        """
        self.card, self.stats = model.card, EngineStats()
        self._model = model
        self._cuda = model.device.type == "cuda"
        if self._cuda:  # the thread that feeds the GPU must not wait 5 ms for its turn
            sys.setswitchinterval(SWITCH_INTERVAL_S)
        name = torch.cuda.get_device_name(model.device) if self._cuda else "cpu"
        self.stats.devices = [name]
        self._fallbacks_before = fallbacks.copy()
        self._codec_samples = self._codec_samples_that_fit()
        self._sizes = choose_sizes(model.spec, model.device, slots, self._kv_bytes(), num_parallel)
        self._keep_codes = keep_codes
        share = 1
        while True:
            try:
                self._loop, self._vocoder = self._allocate()
                break
            except Exception as e:
                if not is_out_of_memory(e):
                    raise
                half = self._sizes.num_slots // 2
                if half < FEWEST_SLOTS:
                    raise EngineError(f"{model.device}: {e}") from e
                note = f"out of memory with {counted(self._sizes.num_slots, 'slot')}; trying {half}"
                self.stats.notes.append(note)
            self._free_unused()
            if self._codec_samples is not None:
                self._codec_samples = max(FEWEST_FULL_SAMPLES, self._codec_samples // 2)
            share *= 2
            self._sizes = choose_sizes(model.spec, model.device, half, self._kv_bytes() // share)
        self._jobs: JobQueue | None = None
        self._stopped = self._abandoned = False

    def _free_bytes(self) -> int:
        """What this process may still take of the device."""
        device = self._model.device
        free, total = torch.cuda.mem_get_info(device)
        allowed = int(total * torch.cuda.get_per_process_memory_fraction(device))
        return max(0, min(free, allowed - torch.cuda.memory_reserved(device)))

    def _codec_samples_that_fit(self) -> int | None:
        """Samples of a full codec batch; None on a CPU, which leaves it to the vocoder."""
        if not self._cuda:
            return None
        samples = FULL_SAMPLES
        share = CODEC_SHARE_OF_FREE * self._free_bytes()
        while samples > FEWEST_FULL_SAMPLES and samples * CODEC_BYTES_PER_SAMPLE > share:
            samples //= 2
        return samples

    def _kv_bytes(self) -> int:
        """What KV may take."""
        if self._codec_samples is None:
            return CPU_KV_BYTES
        left = self._free_bytes() - self._codec_samples * CODEC_BYTES_PER_SAMPLE
        return int(max(left, 0) * KV_SHARE_OF_FREE)

    def _allocate(self) -> tuple[DecodeLoop, Vocoder]:
        s = self._sizes
        if self._cuda:
            started = time.perf_counter()
            rehearse(self._model, s.max_positions)
            self.stats.add_seconds("warmup", time.perf_counter() - started)
        loop = DecodeLoop(self._model, s.num_slots, s.num_pages, s.max_positions, self.stats)
        vocoder = Vocoder(
            self._model,
            self.stats,
            self._keep_codes,
            after=loop.stream,
            full_samples=self._codec_samples,
        )
        return loop, vocoder

    def _free_unused(self) -> None:
        if self._cuda:
            gc.collect()
            torch.cuda.empty_cache()

    def speak(self, segments: Iterable[Segment]) -> Iterator[Waveform | Refusal]:
        """Speak every segment once; see `models.protocol.Speaker`.

        The loop runs on a thread of its own, so that what the caller does with a waveform does
        not keep the device waiting.
        """
        self._abandoned = False
        with Prefetch(self._produce(segments), WAVEFORMS_AHEAD, "ttsbatch-decode") as made:
            try:
                while (item := made.take()) is not None:
                    yield item
            finally:  # nothing is left to be made, or nobody takes it
                self._abandoned = True
                if self._jobs is not None:
                    self._jobs.abandon()

    def _produce(self, segments: Iterable[Segment]) -> Iterator[Waveform | Refusal]:
        if self._cuda:
            torch.cuda.set_device(self._model.device)
        depth = max(MIN_LOOKAHEAD, LOOKAHEAD_PER_SLOT * self._sizes.num_slots)
        source = prepared(segments, self._prepare)
        with Prefetch(source, min(depth, PREPARED_AHEAD), "ttsbatch-prepare") as incoming:
            self._jobs = jobs = WatchedQueue(incoming, depth)
            if self._stopped:
                jobs.stop()
            if self._abandoned:
                jobs.abandon()
            try:
                while (yield from self._until_short_of_memory(jobs)):
                    pass
            except Exception as e:
                if e is jobs.source_error:
                    raise
                with as_engine_errors(self._model.device):
                    raise
        if self._cuda:
            peak = torch.cuda.max_memory_allocated(self._model.device)
            self.stats.peak_device_memory_bytes = peak
        self.stats.kernel_fallbacks = dict(fallbacks - self._fallbacks_before)

    def _until_short_of_memory(self, jobs: WatchedQueue) -> Generator[Item, None, bool]:
        """Decode a queue; whether it has to be gone on with after rows were set apart."""
        try:
            yield from jobs.decoded_by(self._decode)
            return False
        except Exception as e:
            if e is jobs.source_error or not is_out_of_memory(e):
                raise
            apart = jobs.take_back()
            if not apart and self._sizes.num_slots == 1:
                raise EngineError(f"{self._model.device}: {e}") from e
        self._free_unused()
        self.stats.notes.append(
            f"out of memory with {counted(len(apart), 'row')} in "
            f"{counted(self._sizes.num_slots, 'slot')}; to be decoded again apart from the others"
        )
        num_refused = 0
        for item in isolate(apart, self._decode, self._free_unused):
            num_refused += isinstance(item, tuple) and item[1].reason == "engine_error"
            yield item
        if not num_refused:  # no row is to blame but their number
            self._halve()
        return True

    def _decode(self, jobs: JobQueue) -> Iterator[Item]:
        """Decode and vocode a queue."""
        self._vocoder.clear()
        for item in self._loop.run(jobs):
            if not isinstance(item, FinishedFrames):
                yield item
            elif len(item.frames) == 0:
                segment = item.job.prompt.segment
                yield segment, engine_failure(segment, "the model ended before the first frame")
            else:
                self._vocoder.add(item)
                yield from self._vocoder.ready(jobs.exhausted)
        if not jobs.abandoned:
            yield from self._vocoder.drain()

    def _halve(self) -> None:
        """Go on with half the slots and half the KV, but room for the longest row.

        Raises:
            EngineError: not even one slot can be allocated again.
        """
        del self._loop, self._vocoder
        while True:
            old = self._sizes
            pages = max((old.num_pages - 1) // 2, old.max_positions // PAGE_SIZE)
            self._sizes = Sizes(max(1, old.num_slots // 2), pages + 1, old.max_positions)
            self.stats.notes.append(f"going on with {counted(self._sizes.num_slots, 'slot')}")
            self._free_unused()
            try:
                self._loop, self._vocoder = self._allocate()
                return
            except Exception as e:
                if not is_out_of_memory(e):
                    raise
                if old.num_slots == 1:
                    raise EngineError(f"{self._model.device}: {e}") from e

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
        left = room - prompt.num_positions
        if left < max(1, prompt.num_following):
            u = segment.utterance
            message = (
                f"the prompt takes {prompt.num_positions + prompt.num_following} positions, "
                f"there are {room}; expected a shorter text"
            )
            return Failure(u.source, u.line, u.id, "prepare", "too_long", message)
        # What does not fit is cut there, and says so: such a row ends with "length".
        return replace(job, cap_frames=min(job.cap_frames, left))
