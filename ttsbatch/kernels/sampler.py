"""Drawing one codebook's ids in one launch, a program per slot with the whole row in registers.

In place of a sort, the k-th value and the edge of the nucleus are found by bisection on the bits of
the floats: read as integers (negative ones mirrored) they order as the numbers do, so 32 halvings
are exact for any k, and most rows need a dozen. The draw is the reference's: the same uniform, bit
for bit, and the first id whose cumulative probability exceeds it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import sampler as reference


@jit()
def _philox_uniform(seed, age, codebook, stream):
    # uint32 words wrap as the generator wants; int32 keeps the low half of a wider counter.
    word, _, _, _ = tl.philox(
        seed, age.to(tl.int32), codebook.to(tl.int32), stream.to(tl.int32), (age * 0).to(tl.int32)
    )
    return ((word >> 8).to(tl.int32).to(tl.float32) + 0.5) * 5.9604644775390625e-08  # 2**-24


@jit()
def _order(x):
    """f32 to int32 that orders alike; both zeros give 0."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@jit(do_not_specialize=["end_id", "min_frames", "codebook"])
def _sampler_kernel(
    logits,
    temperatures,
    top_ks,
    top_ps,
    penalties,
    seen,
    banned,
    ages,
    seeds,
    streams,
    ids,
    logits_stride,
    end_id,
    min_frames,
    codebook,
    V: tl.constexpr,
    MARK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    slot = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, BLOCK)
    exists = index < V
    minus_inf = float("-inf")
    age = tl.load(ages + slot)
    temperature = tl.load(temperatures + slot)
    sampled = temperature > 0.0

    x = tl.load(logits + slot * logits_stride + index, mask=exists, other=0.0).to(tl.float32)
    if penalties is not None:
        factor = tl.load(penalties + slot)
        repeated = tl.load(seen + slot * V + index, mask=exists, other=0) != 0
        x = tl.where(repeated, tl.where(x > 0.0, tl.div_rn(x, factor), x * factor), x)
    x = tl.where((index == end_id) & (age < min_frames), minus_inf, x)
    if banned is not None:
        x = tl.where(tl.load(banned + index, mask=exists, other=0) != 0, minus_inf, x)
    x = tl.div_rn(x, tl.where(sampled, temperature, 1.0))

    order = tl.where(exists, _order(x), -2147483648)  # below that of -inf
    highest = tl.max(order, axis=0)
    first_best = tl.min(tl.where(order == highest, index, BLOCK), axis=0)

    # Top-k: the highest value that k values reach. A count of exactly k ends the search early.
    k = tl.minimum(tl.maximum(tl.load(top_ks + slot), 0), V).to(tl.int32)
    low = tl.min(tl.where(exists, order, highest), axis=0)
    high = tl.where(sampled & (k > 0) & (k < V), highest, low)
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)  # rounded up, without overflow
        count = tl.sum((order >= middle).to(tl.int32), axis=0)
        high = tl.where(count == k, middle, tl.where(count > k, high, middle - 1))
        low = tl.where(count >= k, middle, low)
    kept = exists & (order >= low)

    best = tl.max(tl.where(exists, x, minus_inf), axis=0)
    weights = tl.where(kept, tl.exp(x - best), 0.0)

    p = tl.load(top_ps + slot)
    if sampled & (p < 1.0):
        # The lowest value up to which the mass exceeds the tail; all below it goes, and of the
        # ties at it, in ascending order of id, as many as still fit in the tail.
        tail = (1.0 - p) * tl.sum(weights, axis=0)
        high = highest
        while low < high:
            middle = (low & high) + ((low ^ high) >> 1)  # rounded down
            mass = tl.sum(tl.where(order <= middle, weights, 0.0), axis=0)
            high = tl.where(mass > tail, middle, high)
            low = tl.where(mass > tail, low, middle + 1)
        ties = kept & (order == low)
        below = tl.sum(tl.where(order < low, weights, 0.0), axis=0)
        each = tl.max(tl.where(ties, weights, 0.0), axis=0)
        rank = tl.cumsum(ties.to(tl.int32), axis=0)
        spared = rank == tl.sum(ties.to(tl.int32), axis=0)  # something always stays
        stays = (below + rank.to(tl.float32) * each > tail) | spared
        kept = kept & ((order > low) | (ties & stays))
        weights = tl.where(kept, weights, 0.0)

    uniform = _philox_uniform(tl.load(seeds + slot), age, codebook, tl.load(streams + slot))
    mass = tl.cumsum(weights, axis=0)
    target = uniform * tl.sum(weights, axis=0)
    drawable = weights > 0.0
    # Rounding may leave no sum above the target; then it is the last id that can be drawn.
    last = tl.max(tl.where(drawable, index, 0), axis=0)
    first = tl.min(tl.where(drawable & (mass > target), index, BLOCK), axis=0)
    drawn = tl.where(first < BLOCK, first, last)
    chosen = tl.where(sampled, drawn, first_best)
    tl.store(ids + slot, chosen.to(tl.int64))
    if MARK:
        tl.store(seen + slot * V + chosen, 1)


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    penalty: Tensor | None,
    seen: Tensor | None,
    banned: Tensor | None,
    end_id: int,
    min_frames: int,
    age: Tensor,
    seed: Tensor,
    codebook: int,
    stream: Tensor,
    mark_seen: bool = False,
    uniform: Tensor | None = None,
) -> Tensor:
    """An id per row, drawn from its filtered logits with one uniform of its own.

    The order is penalty, end ban, `banned`, temperature, top-k, top-p, softmax, draw. Equals
    `reference.sampler.sample` but where a probability or a cumulative sum differs in its last bits.

    Args:
        logits: [S, V] float; rows may lie apart, a row is contiguous. Not changed; all math is f32.
        temperature: [S] f32; 0: the first of the largest logits, whatever the settings below.
        top_k: [S] int64; anything from V on, or below 1, is off. Ties with the k-th value stay.
        top_p: [S] f32; from 1 on off. See `reference.sampler.process_logits` for ties.
        penalty: [S] f32 or None: of the ids in `seen`.
        seen: [S, V] bool or None, contiguous.
        banned: [V] bool or None.
        end_id: banned in rows with `age < min_frames`; -1: no such id.
        min_frames: see `end_id`.
        age: [S] int64, frames that the row has; part of the uniform's key, as the next three are.
        seed: [S] int64.
        codebook: which codebook of the frame.
        stream: [S] int64, what else tells draws apart.
        mark_seen: set `seen[row, id]` to True, in place.
        uniform: for the reference alone, see there; a kernel makes its own.

    Returns:
        [S] int64, each in [0, V).

    Raises:
        ValueError: `mark_seen` without `seen`; on a GPU also a row of logits or a `seen` that is
            not contiguous.
    """
    if mark_seen and seen is None:
        raise ValueError("mark_seen needs `seen`, the mask to mark in; found None")
    if not runs_kernel(logits):
        return reference.sample(
            logits,
            temperature,
            top_k,
            top_p,
            penalty,
            seen,
            banned,
            end_id,
            min_frames,
            age,
            seed,
            codebook,
            stream,
            mark_seen,
            uniform,
        )
    num_slots, num_ids = logits.shape
    if logits.stride(1) != 1 or (seen is not None and not seen.is_contiguous()):
        raise ValueError("sample needs contiguous rows of logits and a contiguous `seen`")
    ids = torch.empty(num_slots, dtype=torch.int64, device=logits.device)
    block = next_power_of_2(num_ids)
    _sampler_kernel[(num_slots,)](
        logits,
        temperature,
        top_k,
        top_p,
        None if seen is None else penalty,
        None if seen is None else seen.view(torch.uint8),
        None if banned is None else banned.view(torch.uint8),
        age,
        seed,
        stream,
        ids,
        logits.stride(0),
        end_id,
        min_frames,
        codebook,
        V=num_ids,
        MARK=mark_seen,
        BLOCK=block,
        # 16 logits per thread: a search step is a count across the warps, and fewer meet sooner.
        num_warps=min(max(block // 512, 1), 8),
    )
    return ids
