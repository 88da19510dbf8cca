"""Attention within rows of a few tokens that all see each other, rotary included, in one launch.

A local stack's rows are 5 or 11 tokens: a library attention and the rotation before it are a dozen
launches, most of which move more than they compute. Here a program takes a row, a key/value head
and a block of that head's queries (a token's heads side by side, so that padding costs little) from
the packed projection to the attention's output. Tokens lie before rows in memory: then a stack's
last layer and its changing tokens are slices that no copy has to gather.
Source: the attention of MiniCPM4 in package `voxcpm` 2.0.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ttsbatch.kernels.launch import cdiv, jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import local_attention as reference

SMALLEST_SIDE = 16  # what a tensor core takes
MOST_TOKENS = 64
LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Tile:
    """How the queries of a row and a key/value head are shared out."""

    rows: int  # queries at a time, a power of two from 16 on
    blocks: int  # of so many queries, that a program takes one after the other
    num_warps: int


TILE = Tile(rows=32, blocks=1, num_warps=1)
"""The 88 queries of LocDiT are three blocks, 8 rows padding. One warp measures best on an H200."""


@jit()
def _turned_heads(heads, cos, sin, token, there, D: tl.constexpr):
    """Heads [.., D] at pointers [.., 1], turned in f32 and rounded once.

    Each half is read again as the other's partner, from the nearest cache: two tiles of a half each
    would take twice the registers and moves between layouts.
    """
    half: tl.constexpr = D // 2
    cols = tl.arange(0, D)[None, :]
    partner = (cols + half) % D
    sign = tl.where(cols < half, -1.0, 1.0)
    angle = token * half + cols % half
    a = tl.load(heads + cols, mask=there, other=0.0)
    b = tl.load(heads + partner, mask=there, other=0.0)
    c = tl.load(cos + angle, mask=there, other=0.0)
    s = tl.load(sin + angle, mask=there, other=0.0)
    return (a.to(tl.float32) * c + b.to(tl.float32) * (s * sign)).to(a.dtype)


@jit()
def _local_attention_kernel(
    q,
    kv,
    cos,
    sin,
    out,
    num_rows,
    q_token_stride,
    q_row_stride,
    kv_token_stride,
    kv_row_stride,
    FIRST: tl.constexpr,
    QUERIES: tl.constexpr,
    TOKENS: tl.constexpr,
    HQ: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    SCALE: tl.constexpr,
):
    program = tl.program_id(0)
    row = (program // (HKV * PROGRAMS)).to(tl.int64)
    kv_head = program // PROGRAMS % HKV
    group: tl.constexpr = HQ // HKV
    cols = tl.arange(0, D)[None, :]

    key = tl.arange(0, KEYS)[:, None]
    there = key < TOKENS
    key_heads = kv + key.to(tl.int64) * kv_token_stride + row * kv_row_stride + kv_head * D
    keys = _turned_heads(key_heads, cos, sin, key, there, D)
    values = tl.load(key_heads + HKV * D + cols, mask=there, other=0.0)
    real = (tl.arange(0, KEYS) < TOKENS)[None, :]
    for block in range(program % PROGRAMS * BLOCKS, (program % PROGRAMS + 1) * BLOCKS):
        query = (block * BLOCK + tl.arange(0, BLOCK))[:, None]  # a token's heads lie side by side
        asked = query < group * QUERIES
        token = query // group
        head = kv_head * group + query % group
        query_heads = q + token.to(tl.int64) * q_token_stride + row * q_row_stride + head * D
        queries = _turned_heads(query_heads, cos, sin, FIRST + token, asked, D)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * SCALE
        scores = tl.where(real, scores, float("-inf"))
        weights = tl.exp2(scores - tl.max(scores, axis=1)[:, None])
        total = tl.sum(weights, axis=1)[:, None]
        mixed = tl.dot(weights.to(values.dtype), values, input_precision="ieee") / total
        target = out + ((token.to(tl.int64) * num_rows + row) * HQ + head) * D + cols
        tl.store(target, mixed.to(values.dtype), mask=asked)


def local_attention(
    q: Tensor, kv: Tensor, cos: Tensor, sin: Tensor, first: int = 0, *, tile: Tile = TILE
) -> Tensor:
    """Turn q and k, and attend within each row; every query sees every token of its row.

    Args:
        q: [N, B, Hq * D] float, projected queries of N tokens of each of B rows; token and row may
            lie apart, as in a slice of a packed projection.
        kv: [T, B, 2 Hkv * D] in the dtype of `q`, the projected keys of all T >= N tokens, then the
            values; likewise. Hq is a multiple of Hkv.
        cos: [T, D/2] f32, contiguous: the rotary angles of each token of `kv`, wherever it lies.
        sin: like `cos`.
        first: the token of `kv` that the first query belongs to; the others follow.
        tile: for benches; fewer queries than its rows make it smaller.

    Returns:
        [N, B, Hq * D] contiguous in the dtype of `q`; rotation in f32, rounded once, half-split;
        softmax in f32, scale 1/sqrt(D).

    Raises:
        ValueError: widths that do not fit each other, queries beyond the tokens; on a GPU also more
            than 64 tokens, or a D that is no power of two from 16 on.
    """
    num_queries, num_rows, q_width = q.shape
    num_tokens, head_dim = len(kv), 2 * cos.shape[1]
    num_q_heads, num_kv_heads = q_width // head_dim, kv.shape[2] // (2 * head_dim)
    if (
        not num_kv_heads
        or q_width != num_q_heads * head_dim
        or kv.shape[1:] != (num_rows, 2 * num_kv_heads * head_dim)
        or num_q_heads % num_kv_heads
        or cos.shape != (num_tokens, head_dim // 2)
        or sin.shape != cos.shape
    ):
        raise ValueError(
            f"q {tuple(q.shape)}, kv {tuple(kv.shape)} and angles {tuple(cos.shape)}, "
            f"{tuple(sin.shape)} are no heads of one width over the same rows and tokens"
        )
    if not 0 <= first <= num_tokens - num_queries:
        raise ValueError(f"{num_queries} queries from token {first} leave the {num_tokens} tokens")
    if not runs_kernel(q):
        return reference.local_attention(q, kv, cos, sin, first)
    if num_tokens > MOST_TOKENS or head_dim < SMALLEST_SIDE or head_dim & (head_dim - 1):
        raise ValueError(
            f"at most {MOST_TOKENS} tokens, heads a power of two wide from {SMALLEST_SIDE} on; "
            f"found {num_tokens} and {head_dim}"
        )
    if q.stride(2) != 1 or kv.stride(2) != 1 or not (cos.is_contiguous() and sin.is_contiguous()):
        raise ValueError("local_attention needs contiguous heads and angles")
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    queries = num_q_heads // num_kv_heads * num_queries
    rows = min(max(next_power_of_2(queries), SMALLEST_SIDE), tile.rows)
    programs = cdiv(queries, rows * tile.blocks)
    # Programs that share keys are neighbours. One axis, as the others end at 65,535.
    _local_attention_kernel[(num_rows * num_kv_heads * programs,)](
        q,
        kv,
        cos,
        sin,
        out,
        num_rows,
        q.stride(0),
        q.stride(1),
        kv.stride(0),
        kv.stride(1),
        FIRST=first,
        QUERIES=num_queries,
        TOKENS=num_tokens,
        HQ=num_q_heads,
        HKV=num_kv_heads,
        D=head_dim,
        KEYS=max(next_power_of_2(num_tokens), SMALLEST_SIDE),
        BLOCK=rows,
        BLOCKS=cdiv(cdiv(queries, rows), programs),
        PROGRAMS=programs,
        SCALE=head_dim**-0.5 * LOG2_E,
        num_warps=max(tile.num_warps * rows // tile.rows, 1),
        num_stages=1,
    )
    return out
