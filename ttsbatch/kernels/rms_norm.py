"""RMSNorm, alone or with the residual add before it: one launch, one read of the row.

Source: the Qwen3 RMSNorm of transformers 4.57.3 (variance in f32, cast, then times weight).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import rms_norm as reference


@jit()
def _rms_norm_kernel(
    x,
    residual,
    weight,
    normed,
    total,
    x_stride,
    residual_stride,
    E: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < E
    dtype = normed.dtype.element_ty
    value = tl.load(x + row * x_stride + cols, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        value += tl.load(residual + row * residual_stride + cols, mask=inside, other=0.0).to(
            tl.float32
        )
        # The run dtype's sum is what later layers see, so it is what the statistics are over.
        rounded = value.to(dtype)
        tl.store(total + row * E + cols, rounded, mask=inside)
        value = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / E + EPS)
    factor = tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    result = (value * scale).to(dtype).to(tl.float32) * factor
    tl.store(normed + row * E + cols, result.to(dtype), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise rows by their root mean square.

    Args:
        x: [..., E] float; rows may lie apart, a row is contiguous.
        weight: [E] in the dtype of `x`.
        eps: added to the mean square.

    Returns:
        [..., E] contiguous, in the dtype of `x`; mean square in f32, rounded before the weight.

    Raises:
        ValueError: on a GPU, a row that is not contiguous.
    """
    if not runs_kernel(x):
        return reference.rms_norm(x, weight, eps)
    normed = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, None, weight, normed, None, eps)
    return normed


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Add a residual, keep the sum and normalise it.

    Args:
        x: [..., E] float; rows may lie apart, a row is contiguous.
        residual: like `x`; not changed.
        weight: [E] in the dtype of `x`.
        eps: added to the mean square.

    Returns:
        The normed rows and the sums, both [..., E] contiguous in the dtype of `x`. The sum is
        rounded to that dtype before the statistics are taken, as separate operations would.

    Raises:
        ValueError: on a GPU, a row that is not contiguous, or a residual of another shape.
    """
    if not runs_kernel(x):
        return reference.add_rms_norm(x, residual, weight, eps)
    normed = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = torch.empty_like(normed)
    _launch(x, residual, weight, normed, total, eps)
    return normed, total


def _launch(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    normed: Tensor,
    total: Tensor | None,
    eps: float,
) -> None:
    width = x.shape[-1]
    rows = x.reshape(-1, width)  # heads split off a packed projection are copied here
    shortcut = None if residual is None else residual.reshape(-1, width)
    if rows.stride(1) != 1 or (shortcut is not None and shortcut.stride(1) != 1):
        raise ValueError("rms_norm needs contiguous rows; found a stride between elements")
    if shortcut is not None and shortcut.shape != rows.shape:
        raise ValueError(f"x is {tuple(x.shape)}, residual {tuple(residual.shape)}")  # type: ignore[union-attr]
    block = next_power_of_2(width)
    _rms_norm_kernel[(rows.shape[0],)](
        rows,
        shortcut,
        weight,
        normed,
        total,
        rows.stride(0),
        0 if shortcut is None else shortcut.stride(0),
        E=width,
        EPS=eps,
        BLOCK=block,
        # 16 bytes of bf16 per thread: the row is one load deep, as latency is all that counts.
        num_warps=min(max(block // 256, 1), 8),
    )
