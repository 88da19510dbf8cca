"""Finished codes -> waveforms: cut into codec passes, batched by length, copied back late.

A row of up to one window is one pass, as the official decoder does it; a longer one is cut at
absolute multiples of the window, each later pass with some left context whose samples are dropped.
Shorter pieces are padded on the right, which a causal codec never hears.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ttsbatch.engine.decode import FinishedCodes
from ttsbatch.models.protocol import CodecLM, EngineSpec, host_codes
from ttsbatch.types import EngineStats, Waveform

BATCH_FRAMES = {"cuda": 5200, "cpu": 400}
"""Frames (padding counted) of one codec pass: 16 rows of 325 fill an H200, a CPU gains nothing."""
COPIES_IN_FLIGHT = 3


@dataclass(frozen=True, slots=True)
class Pass:
    """Frames start..stop of a row's codes, of which the first `context` are only heard."""

    start: int
    stop: int
    context: int


def codec_passes(num_frames: int, window: int, context: int) -> list[Pass]:
    """The passes that a row of `num_frames` is decoded in."""
    passes = []
    for start in range(0, num_frames, window):
        before = min(context, start)
        passes.append(Pass(start - before, min(start + window, num_frames), before))
    return passes


@dataclass(slots=True)
class _Row:
    """A row that is being decoded: its codes, and its samples as its passes come back."""

    finished: FinishedCodes
    codes: Tensor  # [R + F, Q] int64, reference frames first
    passes: list[Pass]
    samples: list[np.ndarray | None]
    num_nonfinite: int = 0

    @property
    def complete(self) -> bool:
        return all(x is not None for x in self.samples)


@dataclass(frozen=True, slots=True)
class _Batch:
    """A decoded batch on its way to the host."""

    pieces: list[tuple[_Row, int]]
    samples: Tensor  # [B, N] int16, host
    num_nonfinite: Tensor  # [B] int64, host
    copied: torch.cuda.Event | None


@dataclass(slots=True)
class Vocoder:
    """Gathers finished rows and decodes them in batches."""

    model: CodecLM
    stats: EngineStats
    keep_codes: bool
    _waiting: list[tuple[_Row, int]] = field(default_factory=list)
    _flying: deque[_Batch] = field(default_factory=deque)

    @torch.inference_mode()
    def add(self, finished: FinishedCodes) -> None:
        """Queue a row of at least one frame."""
        spec = self.model.spec
        context = self.model.context_codes(finished.job.prompt)
        codes = finished.codes.long()
        if context is not None:
            codes = torch.cat([context, codes])
        passes = codec_passes(len(codes), spec.codec_window_frames, spec.codec_context_frames)
        row = _Row(finished, codes, passes, [None] * len(passes))
        self._waiting.extend((row, i) for i in range(len(passes)))

    def ready(self) -> Iterator[Waveform]:
        """Decode while there is enough for a batch; yield what has arrived."""
        limit = BATCH_FRAMES[self.model.device.type]
        while sum(_length(p) for p in self._waiting) >= limit:
            self._launch(limit)
        yield from self._arrived(COPIES_IN_FLIGHT)

    def drain(self) -> Iterator[Waveform]:
        """Decode and yield all that is left."""
        while self._waiting:
            self._launch(BATCH_FRAMES[self.model.device.type])
            yield from self._arrived(COPIES_IN_FLIGHT)
        yield from self._arrived(0)

    @torch.inference_mode()
    def _launch(self, limit: int) -> None:
        """Decode one batch: the longest piece that waits and its neighbours in length."""
        started = time.perf_counter()
        spec = self.model.spec
        self._waiting.sort(key=_length)
        longest = _length(self._waiting[0])
        count = 0
        # Shortest first, so that a short row is not held up by a long neighbour.
        for piece in self._waiting:
            if count and _length(piece) * (count + 1) > limit:
                break
            longest, count = _length(piece), count + 1
        pieces, self._waiting = self._waiting[:count], self._waiting[count:]
        codes = torch.zeros(
            (count, longest, spec.num_codebooks), dtype=torch.int64, device=self.model.device
        )
        for i, (row, n) in enumerate(pieces):
            p = row.passes[n]
            codes[i, : p.stop - p.start] = row.codes[p.start : p.stop]
        audio = self.model.decode_audio(codes)
        finite = audio.isfinite()
        bad = (~finite).long()
        for i, piece in enumerate(pieces):  # what a short piece's padding holds is no fault
            bad[i, _length(piece) * spec.samples_per_frame :] = 0
        audio = torch.where(finite, audio, 0).clamp(-1, 1)
        samples = (audio * 32767).round().to(torch.int16)
        self._flying.append(_Batch(pieces, *self._to_host(samples, bad.sum(dim=1))))
        self.stats.codec_graph_misses += 1
        self.stats.add_seconds("codec", time.perf_counter() - started)

    def _to_host(
        self, samples: Tensor, bad: Tensor
    ) -> tuple[Tensor, Tensor, torch.cuda.Event | None]:
        if self.model.device.type != "cuda":
            return samples, bad, None
        out = [
            torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
            for x in (samples, bad)
        ]
        copied = torch.cuda.Event()
        copied.record()
        return out[0], out[1], copied

    def _arrived(self, most_left: int) -> Iterator[Waveform]:
        """Take in batches that are back, waiting only while more than `most_left` are not."""
        while self._flying:
            batch = self._flying[0]
            if batch.copied is not None and not batch.copied.query():
                if len(self._flying) <= most_left:
                    return
                started = time.perf_counter()
                batch.copied.synchronize()
                self.stats.add_seconds("codec", time.perf_counter() - started)
            self._flying.popleft()
            yield from self._unpack(batch)

    def _unpack(self, batch: _Batch) -> Iterator[Waveform]:
        spec = self.model.spec
        samples, bad = batch.samples.numpy(), batch.num_nonfinite.tolist()
        for i, (row, n) in enumerate(batch.pieces):
            p = row.passes[n]
            first, last = (
                p.context * spec.samples_per_frame,
                (p.stop - p.start) * spec.samples_per_frame,
            )
            row.samples[n] = samples[i, first:last].copy()
            row.num_nonfinite += bad[i]
            if row.complete:
                yield self._waveform(row, spec)

    def _waveform(self, row: _Row, spec: EngineSpec) -> Waveform:
        own = len(row.finished.codes)
        heard = len(row.codes) - own
        samples = np.concatenate([x for x in row.samples if x is not None])
        return Waveform(
            segment=row.finished.job.prompt.segment,
            samples=samples[heard * spec.samples_per_frame :],
            sample_rate_hz=spec.sample_rate_hz,
            finish_reason=row.finished.finish_reason,
            num_frames=own,
            num_nonfinite=row.num_nonfinite,
            codes=host_codes(row.finished.codes) if self.keep_codes else None,
        )


def _length(piece: tuple[_Row, int]) -> int:
    p = piece[0].passes[piece[1]]
    return p.stop - p.start
