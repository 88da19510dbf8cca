"""The next talker input from a frame's codes: one launch in place of a gather per codebook.

Source: qwen-tts 0.1.1; in bf16 it reduces the code vectors in f32 with one rounding, and rounds
again when it adds the text.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import cdiv, jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import embed_sum as reference

LARGEST_BLOCK = 512


@jit()
def _embed_sum_kernel(
    codes,
    table,
    offsets,
    text_ids,
    text_table,
    out,
    E: tl.constexpr,
    Q: tl.constexpr,
    BLOCK: tl.constexpr,
):
    slot = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < E
    dtype = out.dtype.element_ty
    total = tl.zeros([BLOCK], tl.float32)
    for q in tl.static_range(Q):
        row = tl.load(codes + slot * Q + q).to(tl.int64) + tl.load(offsets + q)
        total += tl.load(table + row * E + cols, mask=inside, other=0.0).to(tl.float32)
    result = total.to(dtype)
    if text_ids is not None:
        row = tl.load(text_ids + slot).to(tl.int64)
        text = tl.load(text_table + row * E + cols, mask=inside, other=0.0).to(tl.float32)
        result = (result.to(tl.float32) + text).to(dtype)
    tl.store(out + slot * E + cols, result, mask=inside)


def embed_sum(
    codes: Tensor,
    table: Tensor,
    offsets: Tensor,
    text_ids: Tensor | None = None,
    text_table: Tensor | None = None,
) -> Tensor:
    """Add up the embeddings of a frame's codes, and its text vector.

    Args:
        codes: [S, Q] integers, contiguous, each inside its codebook's table.
        table: [sum of V_q, E] float, contiguous: the tables of the codebooks one after the other.
        offsets: [Q] int64, the row at which each codebook's table begins.
        text_ids: [S] integers, rows of `text_table`; None adds no text.
        text_table: [V_text, E] in the dtype of `table`, contiguous.

    Returns:
        [S, E] in the dtype of `table`. The codes are summed in f32 and rounded once; the sum with
        the text is rounded again.
    """
    if (text_ids is None) != (text_table is None):
        raise ValueError("embed_sum takes text_ids and text_table together; found one of them")
    if not runs_kernel(table):
        return reference.embed_sum(codes, table, offsets, text_ids, text_table)
    if not (codes.is_contiguous() and table.is_contiguous()):
        raise ValueError("embed_sum needs contiguous codes and table")
    if text_table is not None and not text_table.is_contiguous():
        raise ValueError("embed_sum needs a contiguous text table")
    num_slots, num_codebooks = codes.shape
    width = table.shape[1]
    out = torch.empty(num_slots, width, dtype=table.dtype, device=table.device)
    block = min(next_power_of_2(width), LARGEST_BLOCK)
    _embed_sum_kernel[(num_slots, cdiv(width, block))](
        codes,
        table,
        offsets,
        text_ids,
        text_table,
        out,
        E=width,
        Q=num_codebooks,
        BLOCK=block,
        num_warps=max(block // 256, 1),  # 16 bytes of bf16 per thread, and all Q rows in flight
    )
    return out
