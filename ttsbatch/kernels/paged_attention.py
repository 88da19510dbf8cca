"""Attention of one new token per slot over its pages: the part of a step that grows with length.

It is bound by reading the cache, so a program takes a slot and a key/value head and serves all
query heads of the group from one read. The products go through `tl.dot` with the few query heads
padded to 16 rows: the tensor cores are idle anyway, and it lets Triton stream the pages through
shared memory, several tiles in flight, instead of through registers. Lengths are each slot's own.

Contexts that may pass 1,024 tokens are cut into splits (of each slot's own length), whose partial
results a second launch merges, so that a long row doesn't hold the step up alone.
Source: Dao et al., "Flash-Decoding for long-context inference" (2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ttsbatch.kernels.launch import cdiv, jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.qk_norm_rope import check_pools
from ttsbatch.kernels.reference import paged_attention as reference

ONE_PASS_LENGTH = 1024
TOKENS_PER_SPLIT = 512
FULL_PROGRAMS = 128  # about one for every multiprocessor
FEWEST_TOKENS_PER_SPLIT = 256
MAX_SPLITS = 16
LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Tile:
    """How a program reads the cache."""

    tokens: int = 64  # per iteration, over 4 pages: 32 KiB of bf16 keys and values
    num_warps: int = 4
    num_stages: int = 2


DEFAULT_TILE = Tile()


@jit()
def _attend_kernel(
    q,
    k_pool,
    v_pool,
    block_table,
    positions,
    out,  # [S, Hq, SPLITS, D], the run's dtype with one split, else f32
    maxima,  # [S, Hq, SPLITS] f32, base-2 logarithms; with one split unused
    sums,  # [S, Hq, SPLITS] f32
    table_stride,
    page_stride,
    HQ: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    SCALE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    slot = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.program_id(2)
    group: tl.constexpr = HQ // HKV
    cols = tl.arange(0, D)
    row = tl.arange(0, ROWS)
    real = row < group
    query_head = head * group + row

    length = tl.load(positions + slot).to(tl.int32) + 1
    begin = 0
    end = length
    if SPLITS > 1:
        share = tl.cdiv(tl.cdiv(length, SPLITS), TOKENS) * TOKENS
        begin = split * share
        end = tl.minimum(begin + share, length)
    queries = tl.load(
        q + (slot * HQ + query_head[:, None]) * D + cols[None, :], mask=real[:, None], other=0.0
    )
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, D], tl.float32)
    inside_page = head * (PAGE * D) + cols[None, :]
    for start in range(begin, end, TOKENS):
        token = start + tl.arange(0, TOKENS)
        valid = token < end
        page = tl.load(block_table + slot * table_stride + token // PAGE, mask=valid, other=0)
        place = page.to(tl.int64)[:, None] * page_stride + (token % PAGE)[:, None] * D + inside_page
        keys = tl.load(k_pool + place, mask=valid[:, None], other=0.0)
        values = tl.load(v_pool + place, mask=valid[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * SCALE
        scores = tl.where(valid[None, :], scores, float("-inf"))  # [ROWS, TOKENS], base 2
        new_best = tl.maximum(best, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_best[:, None])
        fade = tl.exp2(best - new_best)
        total = total * fade + tl.sum(weights, axis=1)
        mixed = mixed * fade[:, None]
        mixed = tl.dot(weights.to(values.dtype), values, mixed, input_precision=PRECISION)
        best = new_best

    if SPLITS == 1:
        mixed = mixed / total[:, None]
        target = out + (slot * HQ + query_head[:, None]) * D + cols[None, :]
        tl.store(target, mixed.to(out.dtype.element_ty), mask=real[:, None])
    else:
        partial = (slot * HQ + query_head) * SPLITS + split
        target = out + partial[:, None] * D + cols[None, :]
        tl.store(target, mixed, mask=real[:, None])
        tl.store(maxima + partial, best, mask=real)
        tl.store(sums + partial, total, mask=real)


@jit()
def _merge_kernel(
    partials, maxima, sums, out, D: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)  # slot and query head
    split = tl.arange(0, BLOCK)
    cols = tl.arange(0, D)
    real = split < SPLITS
    best = tl.load(maxima + row * SPLITS + split, mask=real, other=float("-inf"))
    fade = tl.exp2(best - tl.max(best, axis=0))  # 0 for a split that got no token
    total = tl.sum(tl.load(sums + row * SPLITS + split, mask=real, other=0.0) * fade, axis=0)
    source = partials + (row * SPLITS + split[:, None]) * D + cols[None, :]
    mixed = tl.load(source, mask=real[:, None], other=0.0) * fade[:, None]
    result = tl.sum(mixed, axis=0) / total
    tl.store(out + row * D + cols, result.to(out.dtype.element_ty))


def paged_attention(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    block_table: Tensor,
    positions: Tensor,
    max_length: int,
    num_splits: int | None = None,
    tile: Tile = DEFAULT_TILE,
) -> Tensor:
    """Attend from each slot's newest token to all its tokens.

    Args:
        q: [S, Hq, D] float, contiguous, normed and turned.
        k_pool: [num_pages, Hkv, 16, D] in the dtype of `q`; a page is contiguous. Holds the newest
            token already.
        v_pool: like `k_pool`, with the same strides.
        block_table: [S, max_pages] int32, the pages of each slot in order; rows contiguous.
        positions: [S] int32 or int64, of the newest token; a slot has `positions + 1` tokens.
        max_length: no slot has more tokens than this. Known to the host, as it chooses the path:
            one pass up to 1,024, beyond that splits of about 512 and a second launch to merge, and
            more splits where slots are few.
        num_splits: take this many splits instead.
        tile: how a program reads the cache.

    Returns:
        [S, Hq, D] in the dtype of `q`; scores, softmax and sums in f32, scale 1/sqrt(D).

    Raises:
        ValueError: `max_length` is more than the pages of a slot hold; on a GPU also pools as in
            `check_pools`, a `q` that is not contiguous, or an Hq that is no multiple of Hkv.
    """
    num_slots, num_q_heads, head_dim = q.shape
    _, num_kv_heads, page_size, _ = k_pool.shape
    if max_length > block_table.shape[1] * page_size:
        raise ValueError(
            f"{max_length} tokens don't fit {block_table.shape[1]} pages of {page_size}"
        )
    if not runs_kernel(q):
        return reference.paged_attention(q, k_pool, v_pool, block_table, positions, max_length)
    check_pools(k_pool, v_pool)
    if num_q_heads % num_kv_heads or not q.is_contiguous():
        raise ValueError(
            f"q must be contiguous with a multiple of {num_kv_heads} heads; found {num_q_heads}"
        )
    splits = num_splits or splits_for(max_length, num_slots * num_kv_heads)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    partials, maxima, sums = out, None, None
    if splits > 1:
        shape = (num_slots, num_q_heads, splits)
        partials = torch.empty(*shape, head_dim, dtype=torch.float32, device=q.device)
        maxima = torch.empty(shape, dtype=torch.float32, device=q.device)
        sums = torch.empty(shape, dtype=torch.float32, device=q.device)
    _attend_kernel[(num_slots, num_kv_heads, splits)](
        q,
        k_pool,
        v_pool,
        block_table,
        positions,
        partials,
        maxima,
        sums,
        block_table.stride(0),
        k_pool.stride(0),
        HQ=num_q_heads,
        HKV=num_kv_heads,
        D=head_dim,
        PAGE=page_size,
        TOKENS=tile.tokens,
        ROWS=max(next_power_of_2(num_q_heads // num_kv_heads), 16),  # what a tensor core takes
        SPLITS=splits,
        SCALE=head_dim**-0.5 * LOG2_E,
        PRECISION="ieee",  # f32 runs stay f32; says nothing in bf16
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    if splits > 1:
        _merge_kernel[(num_slots * num_q_heads,)](
            partials,
            maxima,
            sums,
            out,
            D=head_dim,
            SPLITS=splits,
            BLOCK=next_power_of_2(splits),
            num_warps=1 if splits <= 4 else 4,
        )
    return out


def splits_for(max_length: int, num_programs: int) -> int:
    """How many parts a context of at most `max_length` tokens is read in.

    Args:
        max_length: tokens.
        num_programs: of one part, a slot and a KV head each. While they leave multiprocessors idle,
            more parts keep a step from growing with the context.
    """
    splits = 1 if max_length <= ONE_PASS_LENGTH else cdiv(max_length, TOKENS_PER_SPLIT)
    idle_share = cdiv(FULL_PROGRAMS, num_programs)
    splits = max(splits, min(idle_share, cdiv(max_length, FEWEST_TOKENS_PER_SPLIT)))
    return min(splits, MAX_SPLITS)
