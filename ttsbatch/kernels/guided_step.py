"""A step of the Euler solver with projected guidance, in one launch.

Every rounding to the run dtype happens where separate operations would round. The rows that hear
and those that do not lie in one batch, and the step leaves both with the same new patch.
Source: `unified_cfm.py` of package `voxcpm` 2.0.3; CFG-Zero* (Fan et al., 2025).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import guided_step as reference
from ttsbatch.kernels.reference.guided_step import GUARD


@jit()
def _guided_step_kernel(
    x,
    velocity,
    strength,
    width,
    out,
    num_slots,
    width_stride,
    P: tl.constexpr,
    C: tl.constexpr,
    GUARD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    slot = tl.program_id(0).to(tl.int64)
    dtype = out.dtype.element_ty
    place = tl.arange(0, BLOCK)
    inside = place < P * C
    row = place // C * (2 * num_slots) + slot  # latents lie before rows
    at = row * C + place % C
    heard = tl.load(velocity + at, mask=inside, other=0.0).to(tl.float32)
    unheard = tl.load(velocity + at + num_slots * C, mask=inside, other=0.0).to(tl.float32)
    product = (heard * unheard).to(dtype).to(tl.float32)
    square = (unheard * unheard).to(dtype).to(tl.float32)
    dot = tl.sum(product, axis=0).to(dtype).to(tl.float32)
    norm = (tl.sum(square, axis=0).to(dtype).to(tl.float32) + GUARD).to(dtype).to(tl.float32)
    share = (dot / norm).to(dtype).to(tl.float32)
    along = (unheard * share).to(dtype).to(tl.float32)
    beyond = (heard - along).to(dtype).to(tl.float32)
    guided = along + (tl.load(strength + slot) * beyond).to(dtype).to(tl.float32)
    guided = guided.to(dtype).to(tl.float32)
    move = (tl.load(width + slot * width_stride) * guided).to(dtype).to(tl.float32)
    moved = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - move).to(dtype)
    tl.store(out + at, moved, mask=inside)
    tl.store(out + at + num_slots * C, moved, mask=inside)


def guided_step(x: Tensor, velocity: Tensor, strength: Tensor, width: Tensor) -> Tensor:
    """Move patches along the velocity beyond its part that is there without hearing, too.

    Args:
        x: [P, 2 S, C] float, contiguous: the S patches on their way, twice.
        velocity: [P, 2 S, C] in the dtype of `x`, contiguous: first of the rows that hear the
            language models, then of those that do not.
        strength: [S] f32, contiguous: of the guidance; 1: none.
        width: [S] f32, of the step; elements may lie apart.

    Returns:
        [P, 2 S, C] like `x`, the new patches twice. Every operation rounds to the dtype of `x`,
        sums once at their end.

    Raises:
        ValueError: tensors of other shapes, or on a GPU strides between elements.
    """
    num_latents, num_rows, channels = x.shape
    num_slots = num_rows // 2
    if velocity.shape != x.shape or not strength.shape == width.shape == (num_slots,):
        raise ValueError(
            f"x {tuple(x.shape)}, velocity {tuple(velocity.shape)}, strength "
            f"{tuple(strength.shape)} and width {tuple(width.shape)} are not of the same slots"
        )
    if not runs_kernel(x):
        return reference.guided_step(x, velocity, strength, width)
    if not (x.is_contiguous() and velocity.is_contiguous() and strength.is_contiguous()):
        raise ValueError("guided_step needs contiguous patches, velocities and strengths")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = next_power_of_2(num_latents * channels)
    _guided_step_kernel[(num_slots,)](
        x,
        velocity,
        strength,
        width,
        out,
        num_slots,
        width.stride(0),
        P=num_latents,
        C=channels,
        GUARD=GUARD,
        BLOCK=block,
        num_warps=min(max(block // 256, 1), 8),  # the official 256 elements: sums within a warp
    )
    return out
