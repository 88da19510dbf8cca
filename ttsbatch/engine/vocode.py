"""Finished frames -> waveforms: cut into codec passes, batched by length, copied back late.

A row of up to one window is one pass, as the official decoder does it; a longer one is cut at
absolute multiples of the window, each later pass with some left context whose samples are dropped.
Shorter pieces are padded on the right, which a causal codec never hears.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ttsbatch.engine.codec_batches import FULL_SAMPLES, CodecBatches, Piece, choose
from ttsbatch.engine.decode import FinishedFrames
from ttsbatch.models.protocol import CodecLM, EngineSpec, host_codes
from ttsbatch.types import EngineStats, Waveform

WAITING_BATCHES = {"cuda": 3, "cpu": 0}
"""Full batches that wait before one is made: a choice of lengths keeps the padding small."""
CPU_FULL_SAMPLES = 400 * 1920  # of a batch on a CPU
COPIES_IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class Pass:
    """Frames start..stop of a row, of which the first `context` are only heard."""

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
    """A row that is being decoded: its frames, and its samples as its passes come back."""

    finished: FinishedFrames
    frames: Tensor  # [R + F, W], reference frames first
    passes: list[Pass]
    samples: list[np.ndarray | None]
    num_nonfinite: int = 0

    @property
    def num_heard(self) -> int:
        """Reference frames before the row's own."""
        return len(self.frames) - len(self.finished.frames)

    @property
    def complete(self) -> bool:
        """Whether every pass has come back."""
        return all(x is not None for x in self.samples)

    def piece(self, n: int) -> Piece:
        """What pass n decodes."""
        p = self.passes[n]
        own = max(p.start + p.context, self.num_heard) - p.start
        return Piece(self.frames[p.start : p.stop], min(own, p.stop - p.start))


@dataclass(frozen=True, slots=True)
class _Batch:
    """A decoded batch on its way to the host."""

    pieces: list[tuple[_Row, int]]
    samples: Tensor  # [B, N] int16, host
    num_nonfinite: Tensor  # [B] int64, host
    copied: torch.cuda.Event | None


class Vocoder:
    """Gathers finished rows and decodes them in batches, on a stream of its own."""

    def __init__(
        self,
        model: CodecLM,
        stats: EngineStats,
        keep_codes: bool,
        after: torch.cuda.Stream | None = None,
        use_graphs: bool = True,
        full_samples: int | None = None,
    ) -> None:
        """On a GPU, capture the codec's graphs.

        Args:
            model: whose codec decodes.
            stats: counted into.
            keep_codes: waveforms carry their codes.
            after: the stream that frames are made on; None: the current one.
            use_graphs: off for tests that compare.
            full_samples: samples of a full batch; None: what fills the device.

        Raises:
            EngineError: a codec pass cannot be captured.
        """
        self.model, self.stats, self.keep_codes = model, stats, keep_codes
        # Of a vocoder that this one takes the place of.
        self._before = stats.codec_graph_hits, stats.codec_graph_misses
        self._after = after
        self._waiting: list[tuple[_Row, int]] = []
        self._flying: deque[_Batch] = deque()
        if full_samples is None:
            full_samples = FULL_SAMPLES if model.device.type == "cuda" else CPU_FULL_SAMPLES
        self._batches = CodecBatches(model, full_samples)
        self._enough = max(1, WAITING_BATCHES[model.device.type] * self._batches.full_frames)
        self._stream: torch.cuda.Stream | None = None
        if model.device.type == "cuda":
            self._stream = torch.cuda.Stream(model.device)
            if use_graphs:
                self._capture(self._stream)

    @torch.inference_mode()
    def _capture(self, stream: torch.cuda.Stream) -> None:
        started = time.perf_counter()
        self._batches.capture(stream, self._batches.shapes())
        self.stats.add_seconds("warmup", time.perf_counter() - started)

    @torch.inference_mode()
    def add(self, finished: FinishedFrames) -> None:
        """Queue a row of at least one frame."""
        spec = self.model.spec
        with torch.cuda.stream(self._after):  # None: stays on the current one
            context = self.model.context_frames(finished.job.prompt)
            frames = finished.frames
            if context is not None:
                frames = torch.cat([context.to(frames.dtype), frames])
        passes = codec_passes(len(frames), spec.codec_window_frames, spec.codec_context_frames)
        row = _Row(finished, frames, passes, [None] * len(passes))
        self._waiting.extend((row, i) for i in range(len(passes)))

    def clear(self) -> None:
        """Forget rows that an earlier run left behind when it broke off."""
        self._waiting.clear()
        self._flying.clear()

    def ready(self, ending: bool = False) -> Iterator[Waveform]:
        """Decode while there is enough for a good batch; yield what has arrived.

        Args:
            ending: no row begins any more. Then what fills a batch is enough, so that little is
                left for when frames no longer run beside it.
        """
        enough = min(self._enough, self._batches.full_frames) if ending else self._enough
        while sum(_length(p) for p in self._waiting) >= enough:
            self._launch()
        yield from self._arrived(COPIES_IN_FLIGHT)

    def drain(self) -> Iterator[Waveform]:
        """Decode and yield all that is left."""
        while self._waiting:
            self._launch()
            yield from self._arrived(COPIES_IN_FLIGHT)
        yield from self._arrived(0)

    @torch.inference_mode()
    def _launch(self) -> None:
        """Decode the batch that the waiting pieces fill best."""
        started = time.perf_counter()
        self._waiting.sort(key=_length)
        lengths = [_length(p) for p in self._waiting]
        choice = choose(lengths, self._batches.buckets, self._batches.full_frames)
        last = choice.first + choice.count
        pieces = self._waiting[choice.first : last]
        del self._waiting[choice.first : last]
        cut = [r.piece(n) for r, n in pieces]
        if self._stream is None:
            samples, bad = self._batches.run(cut, choice.shape)
            batch = _Batch(pieces, samples, bad, None)
        else:
            self._stream.wait_stream(self._frames_stream())
            with torch.cuda.stream(self._stream):
                for piece in cut:
                    piece.frames.record_stream(self._stream)
                samples, bad = self._batches.run(cut, choice.shape)
                batch = _Batch(pieces, *self._to_host(samples[: len(pieces)], bad))
        self._flying.append(batch)
        hits, misses = self._before
        self.stats.codec_graph_hits = hits + self._batches.hits
        self.stats.codec_graph_misses = misses + self._batches.misses
        self.stats.add_seconds("codec", time.perf_counter() - started)

    def _frames_stream(self) -> torch.cuda.Stream:
        return self._after or torch.cuda.current_stream(self.model.device)

    def _to_host(self, samples: Tensor, bad: Tensor) -> tuple[Tensor, Tensor, torch.cuda.Event]:
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
        samples = np.concatenate([x for x in row.samples if x is not None])
        return Waveform(
            segment=row.finished.job.prompt.segment,
            samples=samples[row.num_heard * spec.samples_per_frame :],
            sample_rate_hz=spec.sample_rate_hz,
            finish_reason=row.finished.finish_reason,
            num_frames=len(row.finished.frames),
            num_nonfinite=row.num_nonfinite,
            codes=host_codes(row.finished.frames) if self.keep_codes else None,
        )


def _length(piece: tuple[_Row, int]) -> int:
    p = piece[0].passes[piece[1]]
    return p.stop - p.start
