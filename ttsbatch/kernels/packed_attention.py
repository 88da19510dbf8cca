"""Causal attention over prompts laid one behind another, without their lengths on the host.

A program takes a block of tokens and a query head. The keys that the block can need begin where
its first token's prompt begins, which that token's position tells; a key counts where it belongs
to the same prompt. So shapes depend on the number of tokens alone, and a graph can hold it.
Source: Dao, "FlashAttention-2: Faster attention with better parallelism and work partitioning"
(2023), for the running softmax.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import cdiv, jit, runs_kernel, tl
from ttsbatch.kernels.reference import packed_attention as reference

BLOCK_TOKENS = 32  # prompts are a few dozen tokens: larger blocks would mostly mask
LOG2_E = 1.4426950408889634


@jit()
def _packed_attention_kernel(
    q,
    k,
    v,
    position,
    out,
    num_tokens,
    q_stride,
    k_stride,
    v_stride,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    SCALE: tl.constexpr,
):
    first = tl.program_id(0) * BLOCK
    head = tl.program_id(1)
    kv_head = head // GROUP
    cols = tl.arange(0, D)
    token = first + tl.arange(0, BLOCK)
    real = token < num_tokens
    begins = token - tl.load(position + token, mask=real, other=0)  # where each prompt begins
    queries = tl.load(
        q + token.to(tl.int64)[:, None] * q_stride + head * D + cols[None, :],
        mask=real[:, None],
        other=0.0,
    )
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, D], tl.float32)
    start = tl.min(tl.where(real, begins, first), axis=0)
    for at in range(start, tl.minimum(first + BLOCK, num_tokens), BLOCK):
        key = at + tl.arange(0, BLOCK)
        there = key < num_tokens
        place = key.to(tl.int64)[:, None]
        keys = tl.load(
            k + place * k_stride + kv_head * D + cols[None, :], mask=there[:, None], other=0.0
        )
        values = tl.load(
            v + place * v_stride + kv_head * D + cols[None, :], mask=there[:, None], other=0.0
        )
        # What a query does not see has weight 0, but 0 * NaN is NaN: the product gets finite values
        # alone, and a value that is none makes its score NaN, for those that see it.
        poison = tl.sum((values - values).to(tl.float32), axis=1)  # 0 or NaN
        values = tl.where(values - values == 0.0, values, 0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * SCALE + poison[None, :]
        visible = (key[None, :] >= begins[:, None]) & (key[None, :] <= token[:, None])
        scores = tl.where(visible & there[None, :], scores, float("-inf"))
        now = tl.maximum(best, tl.max(scores, axis=1))
        # A block of keys that a row sees nothing of leaves its maximum at -inf: no 0/0 then.
        safe = tl.where(now == float("-inf"), 0.0, now)
        weights = tl.exp2(scores - safe[:, None])
        fade = tl.exp2(best - safe)
        total = total * fade + tl.sum(weights, axis=1)
        mixed = mixed * fade[:, None] + tl.dot(
            weights.to(values.dtype), values, input_precision="ieee"
        )
        best = now
    result = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    target = out + (token.to(tl.int64)[:, None] * HEADS + head) * D + cols[None, :]
    tl.store(target, result.to(out.dtype.element_ty), mask=real[:, None])


def packed_attention(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
    """Attend within each prompt, causally.

    Args:
        q: [T, Hq, D] float, normed and turned; the heads of a token are contiguous.
        k: [T, Hkv, D] in the dtype of `q`, likewise. Hq is a multiple of Hkv, D a power of two.
        v: like `k`.
        position: [T] int64, each token's place in its prompt; a 0 begins a prompt, and the first
            token is at 0.

    Returns:
        [T, Hq, D] contiguous in the dtype of `q`; softmax in f32, scale 1/sqrt(D). A token whose
        key or value is NaN, or its value infinite, makes NaN of those that see it, and of no other.

    Raises:
        ValueError: on a GPU, heads that do not lie one after the other, or a D that is no
            power of two.
    """
    if not runs_kernel(q):
        return reference.packed_attention(q, k, v, position)
    num_tokens, num_heads, head_dim = q.shape
    for x in (q, k, v):
        if x.stride()[1:] != (head_dim, 1) or head_dim & (head_dim - 1):
            raise ValueError(
                f"heads must be contiguous and a power of two wide; found {x.shape}, {x.stride()}"
            )
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    _packed_attention_kernel[(cdiv(num_tokens, BLOCK_TOKENS), num_heads)](
        q,
        k,
        v,
        position,
        out,
        num_tokens,
        q.stride(0),
        k.stride(0),
        v.stride(0),
        HEADS=num_heads,
        GROUP=num_heads // k.shape[1],
        D=head_dim,
        BLOCK=BLOCK_TOKENS,
        SCALE=head_dim**-0.5 * LOG2_E,
        num_warps=4,
    )
    return out
