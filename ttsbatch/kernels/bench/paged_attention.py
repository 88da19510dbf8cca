"""`python -m ttsbatch.kernels.bench.paged_attention`: decode attention; `sweep` tries tiles too."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from ttsbatch.kernels.bench.qk_norm_rope import HEAD_DIM, NUM_KV, NUM_Q, pools
from ttsbatch.kernels.bench.timing import Work, main, num_bytes, replay_us
from ttsbatch.kernels.paged_attention import Tile, paged_attention
from ttsbatch.kernels.reference import paged_attention as reference

# More keys and values than the 50 MB of cache hold, as 28 layers in turn do.
NUM_LAYERS = 4


def works(num_slots: int) -> list[Work]:
    """A mean context of 250 in one pass, and the same lengths in splits."""
    short = lengths(num_slots, 100, 400)
    calls = arguments(num_slots, short, 1024)
    split = [(*call, 2) for call in calls]
    long = lengths(num_slots, 200, 2000)
    return [
        _work(f"paged_attention S={num_slots} mean 250", calls, short),
        _work(f"paged_attention S={num_slots} mean 250, 2 splits", split, short),
        _work(f"paged_attention S={num_slots} mean 1100", arguments(num_slots, long, 2048), long),
    ]


def lengths(num_slots: int, low: int, high: int) -> Tensor:
    """Evenly spread lengths in random order."""
    spread = torch.linspace(low, high, num_slots, device="cuda").long()
    return spread[torch.randperm(num_slots, device="cuda")]


def arguments(num_slots: int, num_tokens: Tensor, max_length: int) -> list[tuple[Any, ...]]:
    """A call per layer, each with pools of its own."""
    calls: list[tuple[Any, ...]] = []
    for _ in range(NUM_LAYERS):
        k_pool, v_pool, block_table = pools(num_slots, max_length // 16)
        q = torch.randn(num_slots, NUM_Q, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
        calls.append((q, k_pool, v_pool, block_table, num_tokens - 1, max_length))
    return calls


def _work(name: str, calls: list[tuple[Any, ...]], num_tokens: Tensor) -> Work:
    keys_and_values = int(num_tokens.sum()) * NUM_KV * HEAD_DIM * 2 * 2
    return Work(
        name,
        paged_attention,
        lambda *call: reference.paged_attention(*call[:6]),
        calls,
        keys_and_values + 2 * num_bytes(calls[0][0]),
        compiled=False,  # the reference gathers whole block tables: no rival, compiled or not
    )


def sweep(num_slots: int) -> list[str]:
    """A line per tile and number of splits, fastest first."""
    num_tokens = lengths(num_slots, 100, 400)
    calls = arguments(num_slots, num_tokens, 1024)
    expected = reference.paged_attention(*calls[0]).float()
    lines = []
    for tokens in (16, 32, 64, 128):
        for num_warps in (1, 2, 4, 8):
            for num_stages in (2, 3, 4, 5):
                if tokens < 16 * num_warps // 2 or tokens * num_stages > 384:
                    continue
                for splits in (1, 2):
                    tile = Tile(tokens, num_warps, num_stages)
                    tried = [(*call, splits, tile) for call in calls]
                    error = (paged_attention(*tried[0]).float() - expected).abs().max()
                    us, _ = replay_us(paged_attention, tried, 20)
                    lines.append((us, f"{us:8.2f} us  splits {splits}  {tile}  {error:.1e}"))
    return [f"S={num_slots} {line}" for _, line in sorted(lines)]


if __name__ == "__main__":
    if "sweep" in sys.argv[1:]:
        for num_slots in (64, 256):
            print("\n".join(sweep(num_slots)[:12]))
    main(works)
