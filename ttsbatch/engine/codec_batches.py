"""Codec passes of fixed (batch, frames) shapes: chosen for little padding, replayed as graphs.

Shapes are few, so that each can be a CUDA graph; a batch is a run of pieces of about one length.
Right padding is exact for a causal codec, and rows of a batch that stay empty cost only time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ttsbatch.errors import EngineError
from ttsbatch.models.protocol import CodecLM, EngineSpec

LENGTHS = (16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 288)
"""Frames of a pass where the longest one has LONGEST; shares of it where it has fewer or more."""
LONGEST = 325
FULL_SAMPLES = 4096 * 1920
"""Samples of a full batch on a GPU with memory to spare: enough to fill an H200.

Samples, not frames, are what activations and time go with: the last layers make one value per
channel of each. Measured with frames of 1,920 samples.
"""
FEWEST_FULL_SAMPLES = 512 * 1920
"""Of a GPU that has little; below, its multiprocessors would idle."""
SMALL_SHARE = 4
"""A quarter of a full batch has its own graph, for what is left at the end."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One batch shape."""

    batch: int
    frames: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Pieces first..first+count of an ascending list of lengths, and the shape that takes them."""

    first: int
    count: int
    shape: Shape


def lengths_for(longest: int) -> list[int]:
    """The pass lengths up to the longest, as close to each other for frames of any duration."""
    return sorted({scaled(n, longest) for n in LENGTHS} | {longest})


def scaled(frames: int, longest: int) -> int:
    """The frames of a pass that is as much of the longest one as `frames` are of LONGEST."""
    return -(-frames * longest // LONGEST)


def frames_in(samples: int, spec: EngineSpec) -> int:
    """Frames of a batch of so many samples, at least one."""
    return max(1, samples // spec.samples_per_frame)


def choose(lengths: Sequence[int], buckets: Sequence[int], full_frames: int) -> Choice:
    """The run of pieces that fills a batch best.

    Args:
        lengths: frames of the waiting pieces, ascending, at least one, none above the last bucket.
        buckets: pass lengths, ascending.
        full_frames: frames of a full batch.

    Returns:
        The run with the largest share of real frames in its batch; of equals the longest.
    """
    sums = [0]
    for n in lengths:
        sums.append(sums[-1] + n)
    best, best_fill = None, -1.0
    for last in range(len(lengths) - 1, -1, -1):
        frames = buckets[bisect_left(buckets, lengths[last])]
        shape = Shape(max(1, full_frames // frames), frames)
        first = max(0, last + 1 - shape.batch)
        fill = (sums[last + 1] - sums[first]) / (shape.batch * shape.frames)
        if fill > best_fill:
            best, best_fill = Choice(first, last + 1 - first, shape), fill
    assert best is not None
    small = max(1, best.shape.batch // SMALL_SHARE)
    if best.count <= small:
        best = Choice(best.first, best.count, Shape(small, best.shape.frames))
    return best


@dataclass(frozen=True, slots=True)
class Piece:
    """What one row of a batch holds."""

    frames: Tensor  # [F, W]
    first: int = 0  # frames before it are only heard: context, or a reference that is cut off


@dataclass(frozen=True, slots=True)
class _Graph:
    graph: torch.cuda.CUDAGraph
    frames: Tensor  # [B, F, W]
    bounds: Tensor  # [2, B] int64 first and end frame of which non-finite samples count
    samples: Tensor  # [B, N] int16
    bad: Tensor  # [B] int64


class CodecBatches:
    """Decodes batches; on a GPU through graphs, on the caller's current stream."""

    def __init__(self, model: CodecLM, full_samples: int = FULL_SAMPLES) -> None:
        self._model, spec = model, model.spec
        self.full_frames = frames_in(full_samples, spec)
        self.buckets = lengths_for(spec.codec_window_frames + spec.codec_context_frames)
        self._graphs: dict[Shape, _Graph] = {}
        self.hits = self.misses = 0

    def shapes(self) -> list[Shape]:
        """Every shape that `choose` can give for a full or a small batch."""
        full = [Shape(max(1, self.full_frames // n), n) for n in self.buckets]
        small = [Shape(max(1, s.batch // SMALL_SHARE), s.frames) for s in full]
        return [*full, *small]

    def capture(self, stream: torch.cuda.Stream, shapes: Iterable[Shape]) -> None:
        """Capture shapes, the largest first.

        Raises:
            EngineError: a shape that cannot be captured.
        """
        pool = None
        for shape in sorted(set(shapes), key=lambda s: -s.batch * s.frames):
            frames = torch.zeros(
                (shape.batch, shape.frames, self._model.spec.frame_width),
                dtype=self._model.spec.frame_dtype,
                device=self._model.device,
            )
            bounds = torch.zeros(2, shape.batch, dtype=torch.int64, device=self._model.device)
            try:
                stream.wait_stream(torch.cuda.current_stream(self._model.device))
                with torch.cuda.stream(stream):
                    self._decode(frames, bounds)
                torch.cuda.current_stream(self._model.device).wait_stream(stream)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    samples, bad = self._decode(frames, bounds)
            except Exception as e:
                raise EngineError(
                    f"{self._model.device}: a codec pass of {shape.batch} x {shape.frames} frames "
                    f"cannot be captured: {e}"
                ) from e
            pool = graph.pool()
            self._graphs[shape] = _Graph(graph, frames, bounds, samples, bad)

    def run(self, pieces: list[Piece], shape: Shape) -> tuple[Tensor, Tensor]:
        """Decode pieces of at most `shape.frames` frames.

        Args:
            pieces: at most `shape.batch` of them.
            shape: as chosen; without a graph only its frames count.

        Returns:
            Samples [B, N] int16 of each piece, in the order of the pieces, and the number [B] int64
            of its own samples that were not finite. Overwritten by the next batch of the shape.
        """
        bounds = torch.tensor([[p.first for p in pieces], [len(p.frames) for p in pieces]])
        known = self._graphs.get(shape)
        if known is not None:
            self.hits += 1
            for i, piece in enumerate(pieces):
                known.frames[i, : len(piece.frames)] = piece.frames
            known.bounds.zero_()
            bounds = bounds.pin_memory()
            known.bounds[:, : len(pieces)].copy_(bounds, non_blocking=True)
            known.graph.replay()
            return known.samples, known.bad
        self.misses += 1
        longest = max(len(p.frames) for p in pieces)
        frames = pieces[0].frames.new_zeros(len(pieces), longest, pieces[0].frames.shape[1])
        for i, piece in enumerate(pieces):
            frames[i, : len(piece.frames)] = piece.frames
        return self._decode(frames, bounds.to(frames.device))

    def _decode(self, frames: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
        audio = self._model.decode_audio(frames)
        finite = audio.isfinite()
        place = torch.arange(audio.shape[1], device=audio.device)
        first, end = (bounds * self._model.spec.samples_per_frame)[:, :, None]
        bad = ((place >= first) & (place < end) & ~finite).sum(dim=1)
        samples = torch.where(finite, audio, 0).clamp(-1, 1).mul(32767).round().to(torch.int16)
        return samples, bad
