"""The end of a frame in one launch: keep its codes, age the rows, end those that are over.

In plain torch these are 17 launches of 2 us each on a few hundred values, a percent of a frame.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import cdiv, jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import advance_rows as reference

ROWS_PER_PROGRAM = 8


@jit(do_not_specialize=["num_rows", "num_frames", "if_ended", "if_full"])
def _advance_rows_kernel(
    values,
    ended,
    active,
    ages,
    caps,
    finish,
    kept,
    num_rows,
    num_frames,
    if_ended,
    if_full,
    Q: tl.constexpr,
    KEEP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < num_rows
    ends = tl.load(ended + row, mask=exists, other=1) != 0
    runs = tl.load(active + row, mask=exists, other=0) != 0
    age = tl.load(ages + row, mask=exists, other=0)
    goes_on = runs & (ends == 0)
    made = goes_on
    if KEEP:
        made = runs

    book = tl.arange(0, BLOCK)[None, :]
    inside = exists[:, None] & (book < Q)
    frame = tl.load(values + row[:, None] * Q + book, mask=inside, other=0)
    place = (row * (num_frames + 1) + age)[:, None] * Q + book
    fits = made & (age < num_frames)
    tl.store(kept + place, frame.to(kept.dtype.element_ty), mask=inside & fits[:, None])

    age += made.to(tl.int64)
    full = goes_on & (age >= tl.load(caps + row, mask=exists, other=0))
    reason = (runs & ends).to(tl.int64) * if_ended + full.to(tl.int64) * if_full
    reason += tl.load(finish + row, mask=exists, other=0)
    tl.store(ages + row, age, mask=exists)
    tl.store(finish + row, reason, mask=exists)
    tl.store(active + row, (goes_on & (full == 0)).to(tl.uint8), mask=exists)


def advance_rows(
    values: Tensor,
    ended: Tensor,
    active: Tensor,
    age: Tensor,
    cap: Tensor,
    finish: Tensor,
    kept: Tensor,
    if_ended: int,
    if_full: int,
    keep_last: bool = False,
) -> None:
    """Take a frame of every row in; rows that are not active stay as they are.

    Args:
        values: [S, Q] codes (int64) or latents (a float), contiguous.
        ended: [S] bool: the row ends, and its `values` are no frame, unless `keep_last`.
        active: [S] bool; in place: rows that go on.
        age: [S] int64 frames kept; in place.
        cap: [S] int64: a row that has as many ends.
        finish: [S] int64; in place: `if_ended` or `if_full` is added to what ends.
        kept: [S, F + 1, Q] int16 or a float, contiguous; in place at the row's age. Frames from F
            on are not kept, and what the last place holds is undefined.
        if_ended: see `finish`.
        if_full: see `finish`.
        keep_last: the frame that a row ends with is kept and counted.

    Raises:
        ValueError: on a GPU, `values` or `kept` is not contiguous.
    """
    if not runs_kernel(values):
        reference.advance_rows(
            values, ended, active, age, cap, finish, kept, if_ended, if_full, keep_last
        )
        return
    if not (values.is_contiguous() and kept.is_contiguous()):
        raise ValueError("advance_rows needs contiguous frames, old and new")
    num_rows, num_places, width = kept.shape
    _advance_rows_kernel[(cdiv(num_rows, ROWS_PER_PROGRAM),)](
        values,
        ended.view(torch.uint8),
        active.view(torch.uint8),
        age,
        cap,
        finish,
        kept,
        num_rows,
        num_places - 1,
        if_ended,
        if_full,
        Q=width,
        KEEP=keep_last,
        ROWS=ROWS_PER_PROGRAM,
        BLOCK=next_power_of_2(width),
        num_warps=1,
    )
