"""`python -m ttsbatch.kernels.bench.sampler`: talker and predictor vocabularies."""

from __future__ import annotations

from typing import Any

import torch

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.reference import sampler as reference
from ttsbatch.kernels.sampler import sample


def works(num_slots: int) -> list[Work]:
    """Codebook 0 with its rules, another codebook with top-k, and with top-k and top-p."""
    num_ids = 3072
    banned = torch.arange(num_ids, device="cuda") >= 2048
    banned[2150] = False
    seen = torch.rand(num_slots, num_ids, device="cuda") < 0.02
    penalty = torch.full((num_slots,), 1.05, device="cuda")
    rules = (penalty, seen, banned, 2150, 2)
    plain = (None, None, None, -1, 0)
    return [
        _work(f"sample S={num_slots} V=3072 k=50 rules", num_slots, 3072, 1.0, rules),
        _work(f"sample S={num_slots} V=2048 k=50", num_slots, 2048, 1.0, plain),
        _work(f"sample S={num_slots} V=2048 k=50 p=0.9", num_slots, 2048, 0.9, plain),
    ]


def _work(name: str, num_slots: int, num_ids: int, top_p: float, rules: tuple[Any, ...]) -> Work:
    logits = torch.randn(num_slots, num_ids, device="cuda") * 3
    row = torch.arange(num_slots, device="cuda")
    settings = (
        torch.full((num_slots,), 0.9, device="cuda"),
        torch.full((num_slots,), 50, device="cuda"),
        torch.full((num_slots,), top_p, device="cuda"),
    )
    call = (logits, *settings, *rules, row, row * 7919, 1, row)
    return Work(
        name,
        sample,
        reference.sample,
        [call],
        num_bytes(logits),
        compiled=False,  # as sorts dominate the reference, compiled or not
        exact=True,
    )


if __name__ == "__main__":
    main(works)
