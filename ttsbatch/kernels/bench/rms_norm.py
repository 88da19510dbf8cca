"""`python -m ttsbatch.kernels.bench.rms_norm`: residual add + RMSNorm at model widths."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.reference import rms_norm as reference
from ttsbatch.kernels.rms_norm import add_rms_norm


def works(num_slots: int) -> list[Work]:
    """Talker and predictor widths."""
    return [_work(num_slots, width) for width in (2048, 1024)]


def _work(num_slots: int, width: int) -> Work:
    x, residual = torch.randn(2, num_slots, width, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(width, device="cuda", dtype=torch.bfloat16)
    return Work(
        f"add_rms_norm S={num_slots} E={width}",
        add_rms_norm,
        reference.add_rms_norm,
        [(x, residual, weight, 1e-6)],
        2 * num_bytes(x, residual),
    )


if __name__ == "__main__":
    main(works)
