"""`python -m ttsbatch.kernels.bench.qk_norm_rope`: the talker's heads."""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.qk_norm_rope import qk_norm_rope
from ttsbatch.kernels.reference import qk_norm_rope as reference

NUM_Q, NUM_KV, HEAD_DIM, PAGE = 16, 8, 128, 16


def works(num_slots: int) -> list[Work]:
    """Qwen3-TTS talker, slots at a mean context of 250."""
    positions = torch.randint(100, 400, (num_slots,), device="cuda")
    k_pool, v_pool, block_table = pools(num_slots, 32)
    width = (NUM_Q + 2 * NUM_KV) * HEAD_DIM
    qkv = torch.randn(num_slots, width, device="cuda", dtype=torch.bfloat16)
    weights = torch.randn(2, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    cos, sin = tables(512)
    call = (qkv, *weights, cos, sin, positions, block_table, k_pool, v_pool, 1e-6)
    return [
        Work(
            f"qk_norm_rope S={num_slots}",
            qk_norm_rope,
            reference.qk_norm_rope,
            [call],
            2 * num_bytes(qkv),
        )
    ]


def pools(num_slots: int, max_pages: int) -> tuple[Tensor, Tensor, Tensor]:
    """Filled pools and a block table of pages in random order."""
    num_pages = num_slots * max_pages + 1
    shape = (2, num_pages, NUM_KV, PAGE, HEAD_DIM)
    filled = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    order = torch.randperm(num_pages - 1, device="cuda") + 1
    return filled[0], filled[1], order.view(num_slots, max_pages).to(torch.int32)


def tables(num_positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin of the rotary angles, theta 1e6."""
    inverse = 1e6 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda") / HEAD_DIM)
    angles = torch.arange(num_positions, device="cuda")[:, None] * inverse
    return angles.cos(), angles.sin()


if __name__ == "__main__":
    main(works)
