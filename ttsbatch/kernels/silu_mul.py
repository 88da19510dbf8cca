"""The gate of the feed-forward block, on the packed gate-up projection, in one launch."""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import cdiv, jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import silu_mul as reference

LARGEST_BLOCK = 1024


@jit()
def _silu_mul_kernel(gate_up, out, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < WIDTH
    dtype = out.dtype.element_ty
    gate = tl.load(gate_up + row * stride + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * stride + WIDTH + cols, mask=inside, other=0.0).to(tl.float32)
    gated = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(out + row * WIDTH + cols, (gated * up).to(dtype), mask=inside)


def silu_mul(gate_up: Tensor) -> Tensor:
    """Multiply the upper half of each row by the SiLU of the lower.

    Args:
        gate_up: [..., 2 I] float, gate before up; rows may lie apart, a row is contiguous.

    Returns:
        [..., I] contiguous, in the dtype of `gate_up`. The SiLU is taken in f32 and rounded to that
        dtype before the product, as two operations would.

    Raises:
        ValueError: on a GPU, a row that is not contiguous.
    """
    if not runs_kernel(gate_up):
        return reference.silu_mul(gate_up)
    width = gate_up.shape[-1] // 2
    rows = gate_up.view(-1, 2 * width)
    if rows.stride(1) != 1:
        raise ValueError("silu_mul needs contiguous rows; found a stride between elements")
    out = torch.empty(*gate_up.shape[:-1], width, dtype=gate_up.dtype, device=gate_up.device)
    block = min(next_power_of_2(width), LARGEST_BLOCK)
    _silu_mul_kernel[(rows.shape[0], cdiv(width, block))](
        rows,
        out,
        rows.stride(0),
        WIDTH=width,
        BLOCK=block,
        num_warps=max(block // 256, 1),  # 16 bytes of bf16 per thread and operand
    )
    return out
