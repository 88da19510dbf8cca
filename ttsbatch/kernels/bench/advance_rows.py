"""`python -m ttsbatch.kernels.bench.advance_rows`: the end of a frame of 16 codebooks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ttsbatch.kernels.advance_rows import advance_rows
from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.reference import advance_rows as reference

NUM_FRAMES, NUM_CODEBOOKS = 250, 16


def works(num_slots: int) -> list[Work]:
    """Rows in the middle of their life."""

    def integers(*shape: int) -> Tensor:
        return torch.randint(100, shape, device="cuda")

    codes = integers(num_slots, NUM_CODEBOOKS)
    ended = torch.zeros(num_slots, device="cuda", dtype=torch.bool)
    cap = integers(num_slots) + 10_000
    kept = torch.zeros(num_slots, NUM_FRAMES + 1, NUM_CODEBOOKS, device="cuda", dtype=torch.int16)

    def in_place(advance: Callable[..., None]) -> Callable[..., tuple[Tensor, Tensor]]:
        active = torch.ones(num_slots, device="cuda", dtype=torch.bool)
        age, finish = torch.zeros_like(cap), torch.zeros_like(cap)

        def call(codes: Tensor, ended: Tensor) -> tuple[Tensor, Tensor]:
            advance(codes, ended, active, age, cap, finish, kept, 1, 2)
            return finish, kept[:, 0]

        return call

    return [
        Work(
            f"advance_rows S={num_slots} Q={NUM_CODEBOOKS}",
            in_place(advance_rows),
            in_place(reference.advance_rows),
            [(codes, ended)],
            num_bytes(codes, ended, cap, cap, cap) + codes.numel() * 2,
            compiled=False,  # it works in place
            exact=True,
        )
    ]


if __name__ == "__main__":
    main(works)
