"""What lies between a qkv projection without norms and the attention of a step, in one launch.

Rotary in f32 with one rounding, and the store of k and v into the paged cache.
Source: the attention of MiniCPM4 in package `voxcpm` 2.0.3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import cdiv, jit, runs_kernel, tl
from ttsbatch.kernels.qk_norm_rope import check_pools
from ttsbatch.kernels.reference import rope_store as reference

HEADS_PER_PROGRAM = 8


@jit()
def _rope_store_kernel(
    qkv,
    cos,
    sin,
    positions,
    block_table,
    q_out,
    k_pool,
    v_pool,
    qkv_stride,
    table_stride,
    page_stride,
    HQ: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    HEADS: tl.constexpr,
):
    slot = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]  # q, then k, then v heads
    half: tl.constexpr = D // 2
    cols = tl.arange(0, half)[None, :]
    exists = head < HQ + 2 * HKV
    is_q = head < HQ
    is_k = (head >= HQ) & (head < HQ + HKV)
    is_v = (head >= HQ + HKV) & exists
    dtype = q_out.dtype.element_ty

    source = qkv + slot * qkv_stride + head * D + cols
    raw_first = tl.load(source, mask=exists, other=0.0)
    raw_second = tl.load(source + half, mask=exists, other=0.0)
    position = tl.load(positions + slot).to(tl.int64)
    page = tl.load(block_table + slot * table_stride + position // PAGE).to(tl.int64)
    first, second = raw_first, raw_second
    if cos is not None:
        c = tl.load(cos + position * half + cols)
        s = tl.load(sin + position * half + cols)
        first = raw_first.to(tl.float32) * c - raw_second.to(tl.float32) * s
        second = raw_second.to(tl.float32) * c + raw_first.to(tl.float32) * s
    target = q_out + slot * HQ * D + head * D + cols
    tl.store(target, first.to(dtype), mask=is_q)
    tl.store(target + half, second.to(dtype), mask=is_q)
    place = page * page_stride + (position % PAGE) * D
    target = k_pool + place + (head - HQ) * (PAGE * D) + cols
    tl.store(target, first.to(dtype), mask=is_k)
    tl.store(target + half, second.to(dtype), mask=is_k)
    target = v_pool + place + (head - HQ - HKV) * (PAGE * D) + cols
    tl.store(target, raw_first, mask=is_v)
    tl.store(target + half, raw_second, mask=is_v)


def rope_store(
    qkv: Tensor,
    tables: tuple[Tensor, Tensor] | None,
    positions: Tensor,
    block_table: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
) -> Tensor:
    """Turn q and k of one new token per slot, and store k and v in its page.

    Args:
        qkv: [S, (Hq + 2 Hkv) * D] float, heads of q, k, v in this order; rows contiguous.
        tables: cosines and sines, [max_positions, D/2] f32 contiguous each; None: q and k are
            taken as they are.
        positions: [S] int32 or int64, the index that each slot writes.
        block_table: [S, max_pages] int32, the pages of each slot in order; rows contiguous.
        k_pool: [num_pages, Hkv, 16, D] in the dtype of `qkv`, written; a page is contiguous.
        v_pool: like `k_pool`, with the same strides.

    Returns:
        q as [S, Hq, D], contiguous. Slots that share a page and a position (idle ones, on the
        scratch page) leave either's k and v there.

    Raises:
        ValueError: on a GPU, pools as in `check_pools`.
    """
    if not runs_kernel(qkv):
        return reference.rope_store(qkv, tables, positions, block_table, k_pool, v_pool)
    num_slots, width = qkv.shape
    _, num_kv_heads, page_size, head_dim = k_pool.shape
    num_q_heads = width // head_dim - 2 * num_kv_heads
    check_pools(k_pool, v_pool)
    q = torch.empty(num_slots, num_q_heads, head_dim, dtype=qkv.dtype, device=qkv.device)
    cos, sin = tables if tables is not None else (None, None)
    num_heads = num_q_heads + 2 * num_kv_heads
    _rope_store_kernel[(num_slots, cdiv(num_heads, HEADS_PER_PROGRAM))](
        qkv,
        cos,
        sin,
        positions,
        block_table,
        q,
        k_pool,
        v_pool,
        qkv.stride(0),
        block_table.stride(0),
        k_pool.stride(0),
        HQ=num_q_heads,
        HKV=num_kv_heads,
        D=head_dim,
        PAGE=page_size,
        HEADS=HEADS_PER_PROGRAM,
        num_warps=2,
    )
    return q
