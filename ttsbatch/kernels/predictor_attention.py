"""All of the code predictor's attention in one launch per layer and pass.

The predictor runs 15 passes a frame over at most 16 positions, where a library attention costs far
more to launch than to compute: 8.9 of 13.6 ms at 256 slots. Here a program takes a slot and a
key/value head from the packed projection to the attention's output; the keys fit in registers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.qk_norm_rope import norm_rope
from ttsbatch.kernels.reference import predictor_attention as reference

MAX_NEW_TOKENS = 2
FEWEST_KEYS = 4  # a tile below this would save nothing and cost a compilation


@jit()
def _load_head(base, w_first, w_second, c, s, EPS: tl.constexpr, D: tl.constexpr):
    half: tl.constexpr = D // 2
    cols = tl.arange(0, half)
    return norm_rope(
        tl.load(base + cols).to(tl.float32),
        tl.load(base + half + cols).to(tl.float32),
        w_first,
        w_second,
        c,
        s,
        EPS,
    )


@jit(do_not_specialize=["position"])
def _predictor_attention_kernel(
    qkv,
    q_weight,
    k_weight,
    cos,
    sin,
    k_cache,
    v_cache,
    out,
    qkv_stride,
    position,
    HQ: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    NEW: tl.constexpr,
    KEYS: tl.constexpr,
    EPS: tl.constexpr,
    SCALE: tl.constexpr,
):
    slot = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    half: tl.constexpr = D // 2
    group: tl.constexpr = HQ // HKV
    dtype = out.dtype.element_ty
    cols = tl.arange(0, half)
    key = tl.arange(0, KEYS)

    # Everything is kept in halves of D: the rotation needs them, and one layout serves all tiles.
    cached = (slot * HKV + head) * P * D + key[:, None] * D + cols[None, :]
    old = (key < position)[:, None]
    k_first = tl.load(k_cache + cached, mask=old, other=0.0)
    k_second = tl.load(k_cache + cached + half, mask=old, other=0.0)
    v_first = tl.load(v_cache + cached, mask=old, other=0.0)
    v_second = tl.load(v_cache + cached + half, mask=old, other=0.0)

    w_first = tl.load(k_weight + cols).to(tl.float32)
    w_second = tl.load(k_weight + half + cols).to(tl.float32)
    for t in tl.static_range(NEW):
        now = position + t
        base = qkv + (slot * NEW + t) * qkv_stride + (HQ + head) * D
        c = tl.load(cos + now * half + cols).to(dtype)
        s = tl.load(sin + now * half + cols).to(dtype)
        first, second = _load_head(base, w_first, w_second, c, s, EPS, D)
        v_new_first = tl.load(base + HKV * D + cols)
        v_new_second = tl.load(base + HKV * D + half + cols)
        target = (slot * HKV + head) * P * D + now * D + cols
        tl.store(k_cache + target, first)
        tl.store(k_cache + target + half, second)
        tl.store(v_cache + target, v_new_first)
        tl.store(v_cache + target + half, v_new_second)
        here = (key == now)[:, None]
        k_first = tl.where(here, first[None, :], k_first)
        k_second = tl.where(here, second[None, :], k_second)
        v_first = tl.where(here, v_new_first[None, :], v_first)
        v_second = tl.where(here, v_new_second[None, :], v_second)

    keys_first = k_first.to(tl.float32)
    keys_second = k_second.to(tl.float32)
    values_first = v_first.to(tl.float32)
    values_second = v_second.to(tl.float32)
    w_first = tl.load(q_weight + cols).to(tl.float32)
    w_second = tl.load(q_weight + half + cols).to(tl.float32)
    for t in tl.static_range(NEW):
        now = position + t
        c = tl.load(cos + now * half + cols).to(dtype)
        s = tl.load(sin + now * half + cols).to(dtype)
        for g in tl.static_range(group):
            query_head = head * group + g
            base = qkv + (slot * NEW + t) * qkv_stride + query_head * D
            first, second = _load_head(base, w_first, w_second, c, s, EPS, D)
            products = keys_first * first.to(tl.float32)[None, :]
            products += keys_second * second.to(tl.float32)[None, :]
            scores = tl.where(key <= now, tl.sum(products, axis=1) * SCALE, float("-inf"))
            weights = tl.exp(scores - tl.max(scores, axis=0))
            weights = (weights / tl.sum(weights, axis=0))[:, None]
            target = out + ((slot * NEW + t) * HQ + query_head) * D + cols
            tl.store(target, tl.sum(weights * values_first, axis=0).to(dtype))
            tl.store(target + half, tl.sum(weights * values_second, axis=0).to(dtype))


def predictor_attention(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    position: int,
    k_cache: Tensor,
    v_cache: Tensor,
    eps: float,
) -> Tensor:
    """Norm, turn and store the new tokens, and attend from them to all positions so far.

    Args:
        qkv: [S, (Hq + 2 Hkv) * D] float for one new token per slot, or [S, T, (Hq + 2 Hkv) * D]
            for T = 1 or 2; contiguous.
        q_weight: [D] in the dtype of `qkv`.
        k_weight: [D] in the dtype of `qkv`.
        cos: [>= P, D/2] f32, contiguous; cast to the dtype of `qkv` before use.
        sin: like `cos`.
        position: of the first new token; positions before it have been stored this frame.
        k_cache: [S, Hkv, P, D] in the dtype of `qkv`, contiguous; written at the new positions.
        v_cache: like `k_cache`.
        eps: of the norms.

    Returns:
        [S, Hq * D] or [S, T, Hq * D], contiguous, in the dtype of `qkv`; softmax in f32. With two
        tokens the first does not see the second.

    Raises:
        ValueError: the new tokens leave the cache; on a GPU also more than two of them, a D that is
            no power of two, an Hq that is no multiple of Hkv, or a `qkv` or cache that is not
            contiguous.
    """
    num_slots, num_kv_heads, num_positions, head_dim = k_cache.shape
    num_new = 1 if qkv.dim() == 2 else qkv.shape[1]
    if not 0 <= position <= num_positions - num_new:
        raise ValueError(
            f"{num_new} tokens from position {position} leave the cache of {num_positions}"
        )
    if not runs_kernel(qkv):
        return reference.predictor_attention(
            qkv, q_weight, k_weight, cos, sin, position, k_cache, v_cache, eps
        )
    if num_new > MAX_NEW_TOKENS:
        raise ValueError(f"at most {MAX_NEW_TOKENS} new tokens; found {num_new}")
    num_q_heads = qkv.shape[-1] // head_dim - 2 * num_kv_heads
    if head_dim & (head_dim - 1) or num_q_heads % num_kv_heads:
        raise ValueError(
            f"the head width must be a power of two and the query heads a multiple of the others; "
            f"found {head_dim}, {num_q_heads} and {num_kv_heads}"
        )
    if not (qkv.is_contiguous() and k_cache.is_contiguous() and v_cache.is_contiguous()):
        raise ValueError("predictor_attention needs contiguous qkv and caches")
    out = torch.empty(*qkv.shape[:-1], num_q_heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    _predictor_attention_kernel[(num_slots, num_kv_heads)](
        qkv,
        q_weight,
        k_weight,
        cos,
        sin,
        k_cache,
        v_cache,
        out,
        qkv.shape[-1],
        position,
        HQ=num_q_heads,
        HKV=num_kv_heads,
        D=head_dim,
        P=num_positions,
        NEW=num_new,
        KEYS=max(next_power_of_2(position + num_new), FEWEST_KEYS),
        EPS=eps,
        SCALE=head_dim**-0.5,
        num_warps=1,  # all sums stay within a warp: no barrier, no shared memory
    )
    return out
