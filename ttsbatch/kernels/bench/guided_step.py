"""`python -m ttsbatch.kernels.bench.guided_step`: a solver step of VoxCPM2's patches."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.guided_step import guided_step
from ttsbatch.kernels.reference import guided_step as reference

NUM_LATENTS, CHANNELS = 4, 64


def works(num_slots: int) -> list[Work]:
    """Patches of 4 latents of 64, guidance 2."""
    shape = (NUM_LATENTS, num_slots, CHANNELS)
    x, heard = torch.randn(2, *shape, device="cuda", dtype=torch.bfloat16)
    unheard = heard + torch.randn_like(heard) / 4
    x, velocity = torch.cat([x, x], dim=1), torch.cat([heard, unheard], dim=1)
    strength, width = (torch.full((num_slots,), n, device="cuda") for n in (2.0, 0.125))
    return [
        Work(
            f"guided_step S={num_slots}",
            guided_step,
            reference.guided_step,
            [(x, velocity, strength, width)],
            2 * num_bytes(velocity) + num_bytes(x) // 2,
        )
    ]


if __name__ == "__main__":
    main(works)
