"""`python -m ttsbatch.kernels.bench.predictor_attention`: first, middle and last pass."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.qk_norm_rope import HEAD_DIM, NUM_KV, NUM_Q, tables
from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.predictor_attention import predictor_attention
from ttsbatch.kernels.reference import predictor_attention as reference

NUM_POSITIONS = 16


def works(num_slots: int) -> list[Work]:
    """The two-token pass and single tokens at positions 7 and 15."""
    return [_work(num_slots, *pass_) for pass_ in ((0, 2), (7, 1), (15, 1))]


def _work(num_slots: int, position: int, num_new: int) -> Work:
    width = (NUM_Q + 2 * NUM_KV) * HEAD_DIM
    shape = (num_slots, num_new, width) if num_new > 1 else (num_slots, width)
    weights = torch.randn(2, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    cos, sin = tables(NUM_POSITIONS)
    calls = []
    for _ in range(5):  # layers, each with a cache of its own
        qkv = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        caches = torch.randn(
            2, num_slots, NUM_KV, NUM_POSITIONS, HEAD_DIM, device="cuda", dtype=torch.bfloat16
        )
        calls.append((qkv, *weights, cos, sin, position, *caches, 1e-6))
    token = num_slots * NUM_KV * HEAD_DIM * 2 * 2
    return Work(
        f"predictor_attention S={num_slots} p={position} T={num_new}",
        predictor_attention,
        reference.predictor_attention,
        calls,
        num_bytes(calls[0][0]) * 3 // 2 + token * (position + num_new),
    )


if __name__ == "__main__":
    main(works)
