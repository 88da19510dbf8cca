"""`python -m ttsbatch.kernels.bench.embed_sum`: 16 codebooks and the text at model widths."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.timing import Work, main
from ttsbatch.kernels.embed_sum import RunningText, embed_sum
from ttsbatch.kernels.reference import embed_sum as reference

TABLE_ROWS = (3072, *[2048] * 15)
TEXT_ROWS = 151_936


def works(num_slots: int) -> list[Work]:
    """The width of Qwen3-TTS 1.7B."""
    width = 2048
    limits = torch.tensor(TABLE_ROWS, device="cuda")
    codes = (torch.rand(num_slots, len(TABLE_ROWS), device="cuda") * limits).long()
    table = torch.randn(sum(TABLE_ROWS), width, device="cuda", dtype=torch.bfloat16)
    text = RunningText(
        ids=torch.randint(TEXT_ROWS, (num_slots, 200), device="cuda", dtype=torch.int32),
        places=torch.randint(250, (num_slots,), device="cuda"),
        lengths=torch.randint(200, (num_slots,), device="cuda"),
        pad_id=0,
        table=torch.randn(TEXT_ROWS, width, device="cuda", dtype=torch.bfloat16),
    )
    offsets = limits.cumsum(0) - limits
    rows = num_slots * (len(TABLE_ROWS) + 2)
    return [
        Work(
            f"embed_sum S={num_slots} Q=16 E={width}",
            embed_sum,
            reference.embed_sum,
            [(codes, table, offsets, text)],
            rows * width * 2,
        )
    ]


if __name__ == "__main__":
    main(works)
