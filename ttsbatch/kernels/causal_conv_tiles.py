"""Which part of a causal convolution one program computes, by the convolution's shape."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ttsbatch.kernels.launch import next_power_of_2


@dataclass(frozen=True, slots=True)
class Tile:
    """What one program computes, and how."""

    rows: int = 128
    columns: int = 128
    # Columns of a second accumulator that shares the first one's row tile: 192 = 128 + 64 and
    # 96 = 64 + 32 without the quarter that a power of two would waste.
    more_columns: int = 0
    depth: int = 64  # of (tap, channel) per iteration
    num_warps: int = 8
    num_stages: int = 3
    row_group: int = 8  # row tiles that go through all columns together, for the L2 cache
    bulk: bool = False  # tiles come by the tensor memory accelerator: whole `depth`s of channels

    def shared_bytes(self, element_size: int) -> int:
        """Shared memory that a program takes at most: what its stages hold, and their barriers."""
        stage = (self.rows + self.columns + self.more_columns) * self.depth * element_size
        return self.num_stages * stage + BARRIER_BYTES

    def fitted(self, element_size: int, shared_bytes: int) -> Tile:
        """With as many stages as so much shared memory holds, at least one."""
        tile = self
        while tile.num_stages > 1 and tile.shared_bytes(element_size) > shared_bytes:
            tile = replace(tile, num_stages=tile.num_stages - 1)
        return tile


BARRIER_BYTES = 256


FEWEST_MORE_COLUMNS = 64
"""Of a tile with a 1x1 convolution. 64 + 32 columns gave wrong sums on an H200 with Triton 3.6, and
an illegal access with pointer loads; 128 + 64 and 128 alone were right."""


def takes_pointwise(tile: Tile, columns: int) -> bool:
    """Whether a 1x1 convolution can follow in the launch of this tile: it holds every channel."""
    spans = tile.columns + tile.more_columns >= columns
    return spans and (tile.more_columns == 0 or tile.more_columns >= FEWEST_MORE_COLUMNS)


def tile_for(width: int, columns: int, taps: int) -> Tile:
    """The tile of a shape: C' input channels, r * C columns."""
    known = TILES.get((width, columns, taps))
    if known is not None:
        return known
    # Any width: channels of neighbouring taps share an iteration, so nothing has to divide.
    return Tile(
        rows=64,
        columns=min(max(next_power_of_2(columns), 16), 128),
        depth=min(max(next_power_of_2(taps * width), 16), 64),
        num_warps=4,
    )


# By (input channels, columns, taps), for the published codecs on Hopper. Long sums want the largest
# tile: a tile of 128 x 256 asks the L2 cache for 48 bytes a clock and SM at full tensor speed, one
# of 128 x 128 for 64, more than there is. Widths that are no power of two are split in two. Short
# sums are bound by memory and by their epilogue, so that two programs must fit in an SM. Each of
# these keeps its accumulators in registers (ptxas: no spills).
_LONG = Tile(128, 256, num_stages=4, bulk=True)
_LONG_192 = Tile(128, 128, 64, num_stages=4, bulk=True)
_SHORT = Tile(128, 64, 64, num_warps=4, bulk=True)  # in halves, or it would spill
_SHORT_96 = Tile(128, 64, 32, num_warps=4, bulk=True)
_SHORT_64 = Tile(128, 64, num_warps=4, bulk=True)
TILES = {
    (1024, 1536, 7): _LONG,
    (1536, 6144, 2): _LONG,
    (768, 768, 7): _LONG,
    (768, 768, 1): _SHORT,
    (768, 1920, 2): _LONG_192,
    (384, 384, 7): _LONG_192,
    (384, 384, 1): _SHORT,
    (384, 768, 2): _LONG_192,
    # All channels in one program, so that the 1x1 convolution can follow at once. At 96 channels
    # two launches are faster: 3.4 + 1.9 ms of 16 x 325 frames on an H200, against 7.4 in one.
    (192, 192, 7): Tile(128, 128, 64, bulk=True),
    (192, 192, 1): _SHORT_96,
    (192, 288, 2): _SHORT_96,
    (96, 96, 7): Tile(128, 64, 32, depth=32, num_warps=4, bulk=True),
    (96, 96, 1): Tile(128, 64, 32, depth=32, num_warps=4, bulk=True),
    # The AudioVAE of VoxCPM2 by the same rules, not swept yet: from latents, upsamplings, 1x1
    # convolutions, and what its encoder has besides: two taps of a stride of rows, and the last.
    (64, 2048, 7): Tile(128, 128, bulk=True),  # 256 columns and a condition would spill
    (2048, 8192, 2): _LONG,
    (1024, 3072, 2): _LONG,
    (512, 1280, 2): _LONG,
    (256, 256, 2): _SHORT,
    (128, 128, 2): _SHORT,
    (64, 64, 2): _SHORT_64,
    (1024, 1024, 1): _SHORT,
    (512, 512, 1): _SHORT,
    (256, 256, 1): _SHORT,
    (1280, 512, 2): _LONG,
    (4096, 1024, 2): _LONG,
    (8192, 2048, 2): _LONG,
    (2048, 64, 3): _SHORT_64,
}
