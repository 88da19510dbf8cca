"""Drawing one codebook's ids in plain torch: what the CPU runs and what the kernel must equal.

The order of the logit steps is that of the published Qwen3-TTS code, which is that of
transformers' `generate`: repetition penalty, end ban, suppression, temperature, top-k, top-p.
The draw is ours: one counter-based uniform per (row, frame, codebook), so that neither the slot nor
the batch changes what a row says.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MASK32 = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox_uniform(seed: Tensor, age: Tensor, codebook: int | Tensor, stream: Tensor) -> Tensor:
    """Uniforms in (0, 1], one per row, that depend on nothing but the arguments.

    Philox4x32-10 with key (low, high half of `seed`) and counter (age, codebook, stream, 0); the
    upper 24 bits of the first output word make the number.
    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

    Args:
        seed: [S] int64, the row's own.
        age: [S] int64, the frame that is being made; its low 32 bits count.
        codebook: which codebook of the frame; or [Q, 1] int64 of them, for [Q, S] uniforms.
        stream: [S] int64, what else tells draws apart (segment, attempt); its low 32 bits count.

    Returns:
        [S] f32. The largest word rounds up to 1.0, which `sample` takes as "the last kept id".
    """
    zero = torch.zeros_like(seed + codebook)
    words = philox_words(
        (age & _MASK32, zero + (codebook & _MASK32), stream & _MASK32, zero),
        (seed & _MASK32, (seed >> 32) & _MASK32),
    )
    return ((words[0] >> 8).to(torch.float32) + 0.5) * 2.0**-24


def philox_words(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ten rounds of Philox4x32, on 32-bit words kept in int64 tensors of one shape."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 = (k0 + _WEYL[0]) & _MASK32
        k1 = (k1 + _WEYL[1]) & _MASK32
    return c0, c1, c2, c3


def _multiply(word: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    # Both halves of a 32 x 32 bit product; in 16-bit steps, as the whole would overflow int64.
    upper = (word >> 16) * constant
    lower = (word & 0xFFFF) * constant
    middle = (upper & 0xFFFF) + (lower >> 16)
    return (upper >> 16) + (middle >> 16), ((middle & 0xFFFF) << 16) | (lower & 0xFFFF)


def process_logits(
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
) -> Tensor:
    """Logits of which a softmax is the distribution to draw from.

    Args:
        logits: [S, V] float, not changed.
        temperature: [S] f32; rows at 0 are greedy: they are neither divided nor cut.
        top_k: [S] int64; anything from V on, or below 1, is off. Ties with the k-th value stay.
        top_p: [S] f32; from 1 on off. Below, the ascending tail whose cumulative probability is at
            most 1 - top_p goes; among equal logits the lower id goes first; one id always stays.
        penalty: [S] f32 or None; a positive logit of a seen id is divided by it, any other
            multiplied.
        seen: [S, V] bool or None, the ids under the penalty.
        banned: [V] bool or None, ids that are never drawn.
        end_id: banned in rows with `age < min_frames`; -1: no such id.
        min_frames: see `end_id`.
        age: [S] int64, frames that the row has.

    Returns:
        [S, V] f32, -inf where an id can't be drawn.
    """
    x = logits.to(torch.float32, copy=True)
    num_ids = x.shape[1]
    if penalty is not None and seen is not None:
        factor = penalty[:, None]
        x = torch.where(seen, torch.where(x > 0, x / factor, x * factor), x)
    if end_id >= 0:
        x[:, end_id] = x[:, end_id].masked_fill(age < min_frames, -torch.inf)
    if banned is not None:
        x = x.masked_fill(banned, -torch.inf)
    greedy = temperature <= 0
    x = x / torch.where(greedy, 1.0, temperature)[:, None]

    # Values may steer the work on the CPU only: elsewhere reading one would wait for the device.
    limited = (top_k > 0) & (top_k < num_ids) & ~greedy
    if x.is_cuda or bool(limited.any()):
        place = torch.where(limited, top_k, num_ids) - 1
        widest = num_ids if x.is_cuda else int(torch.where(limited, top_k, 1).max())
        best = x.topk(widest, dim=1).values
        kth = best.gather(1, place.clamp(max=widest - 1)[:, None])
        x = x.masked_fill((x < kth) & limited[:, None], -torch.inf)
    nucleus = (top_p < 1) & ~greedy
    if x.is_cuda or bool(nucleus.any()):
        ascending, order = x.sort(dim=1, stable=True)
        dropped = ascending.softmax(dim=1).cumsum(dim=1) <= (1 - top_p)[:, None]
        dropped[:, -1] = False
        dropped = torch.zeros_like(dropped).scatter(1, order, dropped)
        x = x.masked_fill(dropped & nucleus[:, None], -torch.inf)
    return x


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
    """An id per row: the first whose cumulative probability exceeds the row's uniform.

    Args:
        logits: as all up to `age` in `process_logits`.
        seed: as `codebook` and `stream` in `philox_uniform`.
        uniform: [S] f32, what `philox_uniform` gives for this row and codebook, where it has been
            computed for the whole frame; None: compute it here.
        mark_seen: set `seen[row, id]` to True, in place.

    Returns:
        [S] int64 in [0, V), also for rows of NaN. Rows at temperature 0 get the first of their
        largest logits.

    Raises:
        ValueError: `mark_seen` without `seen`.
    """
    x = process_logits(
        logits, temperature, top_k, top_p, penalty, seen, banned, end_id, min_frames, age
    )
    best = x.amax(dim=1, keepdim=True)
    weights = (x - best).exp()
    mass = weights.cumsum(dim=1)
    if uniform is None:
        uniform = philox_uniform(seed, age, codebook, stream)
    target = uniform[:, None] * mass[:, -1:]
    ids = torch.arange(x.shape[1], device=x.device)
    drawable = weights > 0
    # Rounding may leave no sum above the target; then it is the last id that can be drawn.
    last = torch.where(drawable, ids, 0).amax(dim=1)
    first = torch.where(drawable & (mass > target), ids, x.shape[1]).amin(dim=1)
    drawn = torch.where(first < x.shape[1], first, last)
    result = torch.where(temperature > 0, drawn, x.argmax(dim=1))
    if mark_seen:
        if seen is None:
            raise ValueError("mark_seen needs `seen`, the mask to mark in; found None")
        seen.scatter_(1, result[:, None], True)
    return result
