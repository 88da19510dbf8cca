"""`python -m ttsbatch.kernels.bench.causal_conv`: the convolutions of the published codec.

`sweep` tries the tiles worth a try on each shape: of this codec with `python -m
recipes.bench.codec --sweep`, of VoxCPM2's AudioVAE with `python -m recipes.bench.audiovae --sweep`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ttsbatch.kernels.bench.timing import Work, main, num_bytes, replay_us
from ttsbatch.kernels.causal_conv import Pointwise, causal_conv
from ttsbatch.kernels.causal_conv_tiles import Tile, takes_pointwise, tile_for
from ttsbatch.kernels.depthwise_conv import WIDEST_POINTWISE
from ttsbatch.kernels.reference import causal_conv as reference

BATCHES = (4,)
"""Clips at once; slots have no part in it."""
FRAMES = 62
WIDTHS = (1536, 768, 384, 192, 96)
RATES = (8, 5, 4, 3)
_SHAPES = (  # rows, columns, more columns, depth, warps, stages
    (128, 256, 0, 64, 8, 3),
    (128, 256, 0, 64, 8, 4),
    (256, 128, 0, 64, 8, 3),
    (256, 128, 0, 64, 8, 4),
    (128, 128, 0, 64, 8, 4),
    (128, 128, 0, 64, 4, 3),
    (128, 128, 0, 64, 8, 3),
    (128, 128, 128, 64, 8, 4),
    (128, 64, 0, 64, 4, 4),
    (128, 64, 0, 64, 4, 3),
    (64, 128, 0, 64, 4, 3),
    (128, 256, 128, 64, 16, 3),
    (128, 128, 64, 64, 8, 3),
    (128, 128, 64, 64, 8, 4),
    (256, 128, 64, 64, 16, 3),
    (64, 128, 64, 64, 4, 3),
    (128, 64, 32, 64, 4, 3),
    (128, 64, 32, 64, 8, 3),
    (256, 64, 32, 64, 8, 3),
    (128, 64, 32, 32, 4, 4),
    (128, 64, 32, 32, 8, 4),
    (128, 64, 32, 32, 8, 6),
    (256, 64, 32, 32, 8, 4),
    (128, 256, 32, 64, 8, 3),
)


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution of the codec and what is fused with it."""

    width: int
    channels: int
    taps: int
    rows_per_frame: int  # of its input
    rate: int = 1
    dilation: int = 1
    pointwise: bool = False
    residual: bool = False
    raw: bool = False
    affine: bool = False
    stream_dtype: torch.dtype = torch.bfloat16

    @property
    def columns(self) -> int:
        """Output columns per input row."""
        return self.rate * self.channels

    def call(
        self, batch: int, frames: int, device: str = "cuda"
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Random arguments of `causal_conv` in bf16."""
        rows = frames * self.rows_per_frame

        def half(*shape: int) -> Tensor:
            return torch.randn(shape, device=device, dtype=torch.bfloat16)

        def table() -> Tensor:
            return torch.rand(self.channels, device=device) + 0.5

        scale = (self.taps * self.width) ** -0.5
        weight = half(self.taps, self.width, self.columns) * scale
        options: dict[str, Any] = {"dilation": self.dilation, "snake": (table(), table())}
        if self.affine:
            options["affine"] = table(), table()
        out = batch, rows * self.rate, self.channels
        if self.residual:
            options["residual"] = half(*out).to(self.stream_dtype)
        if self.raw:
            options["raw"] = torch.empty(out, device=device, dtype=self.stream_dtype)
        if self.pointwise:
            square = half(self.channels, self.channels) * self.channels**-0.5
            options["pointwise"] = Pointwise((table(), table()), square, table())
        return (half(batch, rows, self.width), weight, table()), options


def layers() -> Iterator[Layer]:
    """One of each shape that a decode runs."""
    yield Layer(1024, 1536, 7, 4)
    rows = 4
    for (width, channels), rate in zip(pairwise(WIDTHS), RATES, strict=True):
        yield Layer(width, channels, 2, rows, rate, raw=True)
        rows *= rate
        stream: dict[str, Any] = {"residual": True, "raw": True}
        if takes_pointwise(tile_for(channels, channels, 7), channels):
            yield Layer(channels, channels, 7, rows, dilation=3, pointwise=True, **stream)
            continue
        yield Layer(channels, channels, 7, rows, dilation=3)
        yield Layer(channels, channels, 1, rows, **stream)


VAE_WIDTHS = (2048, 1024, 512, 256, 128, 64, 32)
VAE_RATES = (8, 6, 5, 2, 2, 2)
VAE_LATENT_DIM, LATENTS_PER_PATCH = 64, 4


def vae_layers() -> Iterator[Layer]:
    """One of each shape that a decode of VoxCPM2's AudioVAE runs; its frames are patches."""
    rows = LATENTS_PER_PATCH
    yield Layer(VAE_LATENT_DIM, VAE_WIDTHS[0], 7, rows, affine=True)
    for (width, channels), rate in zip(pairwise(VAE_WIDTHS), VAE_RATES, strict=True):
        wide = channels > WIDEST_POINTWISE  # narrower, `depthwise_conv` runs the whole unit
        dtype = torch.float32 if wide else torch.bfloat16
        yield Layer(width, channels, 2, rows, rate, raw=True, stream_dtype=dtype)
        rows *= rate
        if wide:
            yield Layer(channels, channels, 1, rows, residual=True, raw=True, stream_dtype=dtype)


def flops(x: Tensor, weight: Tensor, pointwise: Pointwise | None) -> int:
    """Of the multiplications and additions of one call."""
    rows = x.shape[0] * x.shape[1]
    total = rows * weight.numel()
    if pointwise is not None:
        total += rows * pointwise.weight.numel()
    return 2 * total


def candidates(width: int, columns: int, taps: int, pointwise: bool) -> list[Tile]:
    """Tiles that waste under an eighth of their columns, the one in use first."""
    tiles = [tile_for(width, columns, taps)]
    for rows, wide, more, depth, num_warps, num_stages in _SHAPES:
        tile = Tile(rows, wide, more, depth, num_warps, num_stages, bulk=width % depth == 0)
        span = wide + more
        if (pointwise and not takes_pointwise(tile, columns)) or -(
            -columns // span
        ) * span > columns * 9 / 8:
            continue
        tiles.append(tile)
    tiles.append(replace(tiles[0], bulk=False))
    tiles.append(replace(tiles[0], row_group=64))
    return list(dict.fromkeys(tiles))


def sweep(layers: Sequence[Layer], batch: int, frames: int) -> None:
    """Print the best tiles of each convolution, fastest first, then the one in use."""
    tiles = {x: candidates(x.width, x.columns, x.taps, x.pointwise) for x in layers}
    jobs = [(layer, tile) for layer, own in tiles.items() for tile in own]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 12), context) as pool:
        list(pool.map(_compile, jobs, chunksize=2))
    for layer, own in tiles.items():
        inputs, options = layer.call(batch, frames)
        work = flops(inputs[0], inputs[1], options.get("pointwise"))
        in_use = tile_for(layer.width, layer.columns, layer.taps)
        lines = []
        for tile in own:
            try:
                us, _ = replay_us(partial(causal_conv, **options, tile=tile), [inputs], 3)
            except Exception as error:  # too much shared memory: not a candidate here
                print(f"  {type(error).__name__} {tile}")
                continue
            mark = " <- in use" if tile == in_use else ""
            lines.append((us, f"{us / 1e3:8.3f} ms {work / us / 1e6:5.0f} TFLOP/s  {tile}{mark}"))
        lines.sort()
        kind = " +1x1" if layer.pointwise else ""
        print(f"{layer.width} x {layer.taps} -> {layer.columns}{kind}")
        print("\n".join(x for i, (_, x) in enumerate(lines) if i < 3 or "in use" in x), flush=True)
        del inputs, options
        torch.cuda.empty_cache()


def _compile(job: tuple[Layer, Tile]) -> None:
    """Fill Triton's cache on disk: binaries don't depend on lengths."""
    layer, tile = job
    inputs, options = layer.call(1, 8)
    with suppress(Exception):  # what doesn't fit is reported when it's timed
        causal_conv(*inputs, **options, tile=tile)


def works(batch: int) -> list[Work]:
    """Clips of five seconds; the reference's sums of taps pass through memory."""
    return [_work(layer, batch) for layer in layers()]


def _work(layer: Layer, batch: int) -> Work:
    inputs, options = layer.call(batch, FRAMES)
    tensors = [x for x in (*inputs, options.get("residual"), options.get("raw")) if x is not None]
    rows = inputs[0].shape[0] * inputs[0].shape[1]
    name = f"causal_conv B={batch} {layer.width}x{layer.taps}->{layer.columns}"
    return Work(
        name + (" +1x1" if layer.pointwise else ""),
        partial(causal_conv, **options),
        partial(reference.causal_conv, **options),
        [inputs],
        num_bytes(*tensors) + 2 * rows * layer.columns,
    )


if __name__ == "__main__":
    main(works, BATCHES)
