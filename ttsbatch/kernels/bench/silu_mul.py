"""`python -m ttsbatch.kernels.bench.silu_mul`: the gate at model widths."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.reference import silu_mul as reference
from ttsbatch.kernels.silu_mul import silu_mul


def works(num_slots: int) -> list[Work]:
    """Talker and predictor widths."""
    return [_work(num_slots, width) for width in (6144, 3072)]


def _work(num_slots: int, width: int) -> Work:
    gate_up = torch.randn(num_slots, 2 * width, device="cuda", dtype=torch.bfloat16)
    return Work(
        f"silu_mul S={num_slots} I={width}",
        silu_mul,
        reference.silu_mul,
        [(gate_up,)],
        num_bytes(gate_up) * 3 // 2,
    )


if __name__ == "__main__":
    main(works)
