"""What lies between the qkv projection and the attention of a decode step, in one launch.

Per-head RMSNorm of q and k, rotary, and the store of k and v into the paged cache. Every rounding
to the run dtype happens where separate operations would round, so that bf16 does not drift.
Source: the Qwen3 attention of transformers 4.57.3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import cdiv, jit, runs_kernel, tl
from ttsbatch.kernels.reference import qk_norm_rope as reference

HEADS_PER_PROGRAM = 8


@jit()
def norm_rope(first, second, w_first, w_second, cos, sin, EPS: tl.constexpr):
    """Norm and turn heads given as halves, [.., D/2] f32 each; the results are rounded, as f32.

    All arguments are f32 that hold values of the run dtype, which is the dtype of `cos`.
    """
    dtype = cos.dtype
    half: tl.constexpr = first.shape[-1]
    square = tl.sum(first * first, axis=-1) + tl.sum(second * second, axis=-1)
    scale = tl.expand_dims(tl.rsqrt(square / (2 * half) + EPS), -1)
    c = cos.to(tl.float32)
    s = sin.to(tl.float32)
    first = ((first * scale).to(dtype).to(tl.float32) * w_first).to(dtype).to(tl.float32)
    second = ((second * scale).to(dtype).to(tl.float32) * w_second).to(dtype).to(tl.float32)
    turned_first = (first * c).to(dtype).to(tl.float32) - (second * s).to(dtype).to(tl.float32)
    turned_second = (second * c).to(dtype).to(tl.float32) + (first * s).to(dtype).to(tl.float32)
    return turned_first.to(dtype), turned_second.to(dtype)


@jit()
def _qk_norm_rope_kernel(
    qkv,
    q_weight,
    k_weight,
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
    EPS: tl.constexpr,
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
    c = tl.load(cos + position * half + cols).to(dtype)
    s = tl.load(sin + position * half + cols).to(dtype)
    w_first = tl.where(is_q, tl.load(q_weight + cols), tl.load(k_weight + cols))
    w_second = tl.where(is_q, tl.load(q_weight + half + cols), tl.load(k_weight + half + cols))

    first, second = norm_rope(
        raw_first.to(tl.float32),
        raw_second.to(tl.float32),
        w_first.to(tl.float32),
        w_second.to(tl.float32),
        c,
        s,
        EPS,
    )
    target = q_out + slot * HQ * D + head * D + cols
    tl.store(target, first, mask=is_q)
    tl.store(target + half, second, mask=is_q)
    place = page * page_stride + (position % PAGE) * D
    target = k_pool + place + (head - HQ) * (PAGE * D) + cols
    tl.store(target, first, mask=is_k)
    tl.store(target + half, second, mask=is_k)
    target = v_pool + place + (head - HQ - HKV) * (PAGE * D) + cols
    tl.store(target, raw_first, mask=is_v)
    tl.store(target + half, raw_second, mask=is_v)


def qk_norm_rope(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    block_table: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    eps: float,
) -> Tensor:
    """Norm and turn q and k of one new token per slot, and store k and v in its page.

    Args:
        qkv: [S, (Hq + 2 Hkv) * D] float, heads of q, k, v in this order; rows contiguous.
        q_weight: [D] in the dtype of `qkv`.
        k_weight: [D] in the dtype of `qkv`.
        cos: [max_positions, D/2] f32, contiguous; cast to the dtype of `qkv` before use.
        sin: like `cos`.
        positions: [S] int32 or int64, the index that each slot writes.
        block_table: [S, max_pages] int32, the pages of each slot in order; rows contiguous.
        k_pool: [num_pages, Hkv, 16, D] in the dtype of `qkv`, written; a page is contiguous.
        v_pool: like `k_pool`, with the same strides.
        eps: of the norms.

    Returns:
        q as [S, Hq, D], contiguous. Slots that share a page and a position (idle ones, on the
        scratch page) leave either's k and v there.

    Raises:
        ValueError: on a GPU, pools as in `check_pools`.
    """
    if not runs_kernel(qkv):
        return reference.qk_norm_rope(
            qkv, q_weight, k_weight, cos, sin, positions, block_table, k_pool, v_pool, eps
        )
    num_slots, width = qkv.shape
    _, num_kv_heads, page_size, head_dim = k_pool.shape
    num_q_heads = width // head_dim - 2 * num_kv_heads
    check_pools(k_pool, v_pool)
    q = torch.empty(num_slots, num_q_heads, head_dim, dtype=qkv.dtype, device=qkv.device)
    num_heads = num_q_heads + 2 * num_kv_heads
    _qk_norm_rope_kernel[(num_slots, cdiv(num_heads, HEADS_PER_PROGRAM))](
        qkv,
        q_weight,
        k_weight,
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
        EPS=eps,
        HEADS=HEADS_PER_PROGRAM,
        num_warps=2,  # 8 heads of 128 are then 16-byte loads, two per thread
    )
    return q


def check_pools(k_pool: Tensor, v_pool: Tensor) -> None:
    """Refuse pools that aren't what the kernels' address arithmetic takes them for.

    Raises:
        ValueError: the head width is no power of two, the strides of the pools differ, or a page
            is not contiguous.
    """
    _, num_kv_heads, page_size, head_dim = k_pool.shape
    if head_dim & (head_dim - 1):
        raise ValueError(f"the head width must be a power of two; found {head_dim}")
    inner = (page_size * head_dim, head_dim, 1)
    if k_pool.stride() != v_pool.stride() or k_pool.stride()[1:] != inner:
        raise ValueError(
            f"pools need equal strides and contiguous pages; found {k_pool.stride()} and "
            f"{v_pool.stride()} for {num_kv_heads} heads, pages of {page_size}, width {head_dim}"
        )
