"""`python -m ttsbatch.kernels.bench.embed_rms_norm`: the passes of a code predictor."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.timing import Work, main
from ttsbatch.kernels.embed_rms_norm import embed_rms_norm
from ttsbatch.kernels.reference import embed_rms_norm as reference

TABLE_ROWS, WIDTH = 2048, 1024


def works(num_slots: int) -> list[Work]:
    """The predictor of Qwen3-TTS 1.7B."""
    table, before = (
        torch.randn(rows, WIDTH, device="cuda", dtype=torch.bfloat16)
        for rows in (TABLE_ROWS, num_slots)
    )
    weight = torch.randn(WIDTH, device="cuda", dtype=torch.bfloat16)
    ids = torch.randint(TABLE_ROWS, (num_slots,), device="cuda")
    return [
        Work(
            f"embed_rms_norm S={num_slots} E={WIDTH}{' after a vector' if first else ''}",
            embed_rms_norm,
            reference.embed_rms_norm,
            [(ids, table, weight, 1e-6, before if first else None)],
            (2 if first else 1) * 3 * num_slots * WIDTH * 2,
        )
        for first in (False, True)
    ]


if __name__ == "__main__":
    main(works)
