"""`python -m ttsbatch.kernels.bench.rope_store`: the heads of VoxCPM2's base and residual LM."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.reference import rope_store as reference
from ttsbatch.kernels.rope_store import rope_store

NUM_Q, NUM_KV, HEAD_DIM, PAGE, MAX_PAGES = 16, 2, 128, 16, 32


def works(num_slots: int) -> list[Work]:
    """Slots at a mean context of 250, with rotary and without."""
    positions = torch.randint(100, 400, (num_slots,), device="cuda")
    num_pages = num_slots * MAX_PAGES + 1
    k_pool, v_pool = torch.randn(
        2, num_pages, NUM_KV, PAGE, HEAD_DIM, device="cuda", dtype=torch.bfloat16
    )
    order = torch.randperm(num_pages - 1, device="cuda") + 1
    table = order.view(num_slots, MAX_PAGES).to(torch.int32)
    width = (NUM_Q + 2 * NUM_KV) * HEAD_DIM
    qkv = torch.randn(num_slots, width, device="cuda", dtype=torch.bfloat16)
    angles = torch.rand(MAX_PAGES * PAGE, HEAD_DIM // 2, device="cuda") * 6
    return [
        Work(
            f"rope_store {name} S={num_slots}",
            rope_store,
            reference.rope_store,
            [(qkv, tables, positions, table, k_pool, v_pool)],
            2 * num_bytes(qkv),
        )
        for name, tables in (("base", (angles.cos(), angles.sin())), ("residual", None))
    ]


if __name__ == "__main__":
    main(works)
