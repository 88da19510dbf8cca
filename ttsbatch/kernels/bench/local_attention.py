"""`python -m ttsbatch.kernels.bench.local_attention`: local stacks; `sweep` tries tiles."""

from __future__ import annotations

import sys
from typing import Any

import torch

from ttsbatch.kernels.bench.timing import Work, main, num_bytes, replay_us
from ttsbatch.kernels.local_attention import Tile, local_attention
from ttsbatch.kernels.reference import local_attention as reference

NUM_Q, NUM_KV, HEAD_DIM = 16, 2, 128
NUM_LAYERS = 3  # more than the 50 MB of cache hold at 512 rows, as the layers in turn do
STACKS = {  # tokens, first query, queries
    "LocDiT": (11, 0, 11),
    "LocDiT, last layer": (11, 7, 4),
    "LocEnc": (5, 0, 5),
}


def works(num_slots: int) -> list[Work]:
    """Rows of VoxCPM2's LocDiT, two a slot, and of its LocEnc."""
    made = []
    for name, (tokens, first, queries) in STACKS.items():
        num_rows = num_slots if name == "LocEnc" else 2 * num_slots
        calls = arguments(num_rows, tokens, first, queries)
        q, kv = calls[0][:2]
        label = f"local_attention {name} B={num_rows}"
        moved = 2 * num_bytes(q) + num_bytes(kv)
        made.append(Work(label, local_attention, reference.local_attention, calls, moved))
    return made


def arguments(num_rows: int, tokens: int, first: int, queries: int) -> list[tuple[Any, ...]]:
    """A call per layer, on slices of a packed projection."""
    angles = torch.rand(tokens, HEAD_DIM // 2, device="cuda") * 6
    cut = NUM_Q * HEAD_DIM
    calls: list[tuple[Any, ...]] = []
    for _ in range(NUM_LAYERS):
        qkv = torch.randn(tokens, num_rows, cut + 2 * NUM_KV * HEAD_DIM, device="cuda")
        qkv = qkv.to(torch.bfloat16)
        q = qkv[first : first + queries, :, :cut]
        calls.append((q, qkv[..., cut:], angles.cos(), angles.sin(), first))
    return calls


def sweep(num_slots: int) -> list[str]:
    """A line per tile for LocDiT's layers, fastest first."""
    calls = arguments(2 * num_slots, *STACKS["LocDiT"])
    expected = reference.local_attention(*calls[0]).float()
    lines = []
    for rows in (16, 32, 64, 128):
        for blocks in (1, 2, 3, 6):
            for num_warps in (1, 2, 4, 8):
                if rows * blocks > 128 or not 4 <= rows // num_warps <= 64:
                    continue
                tile = Tile(rows, blocks, num_warps)

                def call(*given: Any, tile: Tile = tile) -> torch.Tensor:
                    return local_attention(*given, tile=tile)

                error = (call(*calls[0]).float() - expected).abs().max()
                us, _ = replay_us(call, calls, 20)
                lines.append((us, f"{us:8.2f} us  {tile}  {error:.1e}"))
    return [f"B={2 * num_slots} {line}" for _, line in sorted(lines)]


if __name__ == "__main__":
    if "sweep" in sys.argv[1:]:
        for num_slots in (64, 256):
            print("\n".join(sweep(num_slots)[:12]))
    main(works)
