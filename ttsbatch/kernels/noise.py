"""Normal numbers for a frame of every slot, keyed like the draws of ids, in one launch.

Philox4x32-10 makes four words at a time, Box and Muller's transform four normal numbers of them.
Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; Box and Muller, "A
note on the generation of random normal deviates" (1958).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ttsbatch.kernels.launch import jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import noise as reference

NOISE = reference.NOISE
TWO_PI = 2 * math.pi


@jit()
def _uniform(word):
    return ((word >> 8).to(tl.int32).to(tl.float32) + 0.5) * 5.9604644775390625e-08  # 2**-24


@jit()
def _noise_kernel(
    seeds,
    ages,
    streams,
    out,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
    LAST: tl.constexpr,
    CIRCLE: tl.constexpr,
):
    slot = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, BLOCK)
    zero = block * 0
    seed = tl.load(seeds + slot)
    age = tl.load(ages + slot).to(tl.int32) + zero
    stream = tl.load(streams + slot).to(tl.int32) + zero
    w0, w1, w2, w3 = tl.philox(seed, age, block, stream, zero + LAST)
    target = out + slot * COUNT + 4 * block
    near = tl.sqrt(-2.0 * tl.log(_uniform(w0)))
    angle = CIRCLE * _uniform(w1)
    tl.store(target, near * tl.cos(angle), mask=4 * block < COUNT)
    tl.store(target + 1, near * tl.sin(angle), mask=4 * block + 1 < COUNT)
    far = tl.sqrt(-2.0 * tl.log(_uniform(w2)))
    angle = CIRCLE * _uniform(w3)
    tl.store(target + 2, far * tl.cos(angle), mask=4 * block + 2 < COUNT)
    tl.store(target + 3, far * tl.sin(angle), mask=4 * block + 3 < COUNT)


def philox_normal(seed: Tensor, age: Tensor, stream: Tensor, count: int) -> Tensor:
    """Standard normal numbers that depend on nothing but the arguments.

    The key is the seed, the counter (age, place, stream, 1); draws of ids have a 0 in place of the
    1, so that neither repeats the other.

    Args:
        seed: [S] int64, the row's own.
        age: [S] int64, the frame that is being made; its low 32 bits count.
        stream: [S] int64, what else tells draws apart (segment, attempt); its low 32 bits count.
        count: numbers per row.

    Returns:
        [S, count] f32, contiguous.
    """
    if not runs_kernel(seed):
        return reference.philox_normal(seed, age, stream, count)
    out = torch.empty(len(seed), count, dtype=torch.float32, device=seed.device)
    _noise_kernel[(len(seed),)](
        seed,
        age,
        stream,
        out,
        COUNT=count,
        BLOCK=next_power_of_2(-(-count // 4)),
        LAST=NOISE,
        CIRCLE=TWO_PI,
        num_warps=1,
    )
    return out
