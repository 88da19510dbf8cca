"""The next talker input from a frame's codes: one launch in place of a gather per codebook.

Source: qwen-tts 0.1.1; in bf16 it reduces the code vectors in f32 with one rounding, and rounds
again when it adds the text.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import cdiv, jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import embed_sum as reference
from ttsbatch.kernels.reference.embed_sum import RunningText

__all__ = ["RunningText", "embed_sum"]

LARGEST_BLOCK = 512


@jit(do_not_specialize=["pad_id"])
def _embed_sum_kernel(
    codes,
    table,
    offsets,
    text_ids,
    text_places,
    text_lengths,
    text_table,
    out,
    ids_stride,
    pad_id,
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
        place = tl.load(text_places + slot)
        said = place < tl.load(text_lengths + slot)
        row = tl.load(text_ids + slot * ids_stride + place, mask=said, other=pad_id).to(tl.int64)
        text = tl.load(text_table + row * E + cols, mask=inside, other=0.0).to(tl.float32)
        result = (result.to(tl.float32) + text).to(dtype)
    tl.store(out + slot * E + cols, result, mask=inside)


def embed_sum(
    codes: Tensor,
    table: Tensor,
    offsets: Tensor,
    text: RunningText | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Add up the embeddings of a frame's codes, and the vector of its piece of a running text.

    Args:
        codes: [S, Q] integers, contiguous, each inside its codebook's table.
        table: [sum of V_q, E] float, contiguous: the tables of the codebooks one after the other.
        offsets: [Q] int64, the row at which each codebook's table begins.
        text: where each row's text vector is found; None adds none.
        out: [S, E] in the dtype of `table`, contiguous: written and returned; None: a new one.

    Returns:
        [S, E] in the dtype of `table`. The codes are summed in f32 and rounded once; the sum with
        the text is rounded again.

    Raises:
        ValueError: on a GPU, codes, a table, a row of text ids or `out` is not contiguous.
    """
    if not runs_kernel(table):
        return reference.embed_sum(codes, table, offsets, text, out)
    if not (codes.is_contiguous() and table.is_contiguous()):
        raise ValueError("embed_sum needs contiguous codes and table")
    if text is not None and not (text.table.is_contiguous() and text.ids.stride(1) == 1):
        raise ValueError("embed_sum needs a contiguous text table and contiguous rows of text ids")
    if out is not None and not out.is_contiguous():
        raise ValueError("embed_sum needs contiguous room for its result")
    num_slots, num_codebooks = codes.shape
    width = table.shape[1]
    if out is None:
        out = torch.empty(num_slots, width, dtype=table.dtype, device=table.device)
    block = min(next_power_of_2(width), LARGEST_BLOCK)
    _embed_sum_kernel[(num_slots, cdiv(width, block))](
        codes,
        table,
        offsets,
        None if text is None else text.ids,
        None if text is None else text.places,
        None if text is None else text.lengths,
        None if text is None else text.table,
        out,
        0 if text is None else text.ids.stride(0),
        0 if text is None else text.pad_id,
        E=width,
        Q=num_codebooks,
        BLOCK=block,
        num_warps=max(block // 256, 1),  # 16 bytes of bf16 per thread, and all Q rows in flight
    )
    return out
