"""An embedding row and its RMSNorm: how a pass over a drawn id begins, in one launch.

A vector may stand before each row, as the talker's output does before codebook 0 in the first pass
of a code predictor.
Source: the Qwen3 RMSNorm of transformers 4.57.3 (variance in f32, cast, then times weight).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import embed_rms_norm as reference


@jit()
def _embed_rms_norm_kernel(
    ids,
    table,
    before,
    weight,
    normed,
    x,
    before_stride,
    E: tl.constexpr,
    T: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    slot = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1)
    cols = tl.arange(0, BLOCK)
    inside = cols < E
    dtype = normed.dtype.element_ty
    source = table + tl.load(ids + slot).to(tl.int64) * E
    if before is not None:
        source = tl.where(token == 0, before + slot * before_stride, source)
    raw = tl.load(source + cols, mask=inside, other=0.0)
    value = raw.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / E + EPS)
    factor = tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    result = (value * scale).to(dtype).to(tl.float32) * factor
    target = (slot * T + token) * E + cols
    tl.store(x + target, raw, mask=inside)
    tl.store(normed + target, result.to(dtype), mask=inside)


def embed_rms_norm(
    ids: Tensor, table: Tensor, weight: Tensor, eps: float, before: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Look ids up and normalise what was found.

    Args:
        ids: [S] int64 rows of `table`.
        table: [V, E] float, contiguous.
        weight: [E] in the dtype of `table`.
        eps: added to the mean square.
        before: [S, E] in the dtype of `table`, a token that goes before each found one; rows may
            lie apart, a row is contiguous.

    Returns:
        The normed tokens and the tokens, [S, T, E] each in the dtype of `table`, contiguous; T is 2
        with `before`, else 1. Mean square in f32, rounded before the weight.

    Raises:
        ValueError: on a GPU, the table or a row of `before` is not contiguous.
    """
    if not runs_kernel(table):
        return reference.embed_rms_norm(ids, table, weight, eps, before)
    if not table.is_contiguous() or (before is not None and before.stride(1) != 1):
        raise ValueError("embed_rms_norm needs a contiguous table and contiguous rows before")
    num_slots, width = len(ids), table.shape[1]
    num_tokens = 1 if before is None else 2
    x = torch.empty(num_slots, num_tokens, width, dtype=table.dtype, device=table.device)
    normed = torch.empty_like(x)
    block = next_power_of_2(width)
    _embed_rms_norm_kernel[(num_slots, num_tokens)](
        ids,
        table,
        before,
        weight,
        normed,
        x,
        0 if before is None else before.stride(0),
        E=width,
        T=num_tokens,
        EPS=eps,
        BLOCK=block,
        num_warps=min(max(block // 256, 1), 8),  # as rms_norm: the row is one load deep
    )
    return normed, x
