"""`python -m ttsbatch.kernels.bench.noise`: the noise of a patch of latents."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.noise import philox_normal
from ttsbatch.kernels.reference import noise as reference

COUNT = 256  # of VoxCPM2: 4 latents of 64


def works(num_slots: int) -> list[Work]:
    """Rows of any age."""
    seed = torch.randint(2**62, (num_slots,), device="cuda")
    age = torch.randint(400, (num_slots,), device="cuda")
    stream = torch.zeros_like(age)
    return [
        Work(
            f"noise S={num_slots} N={COUNT}",
            philox_normal,
            reference.philox_normal,
            [(seed, age, stream, COUNT)],
            num_bytes(seed, age, stream) + 4 * num_slots * COUNT,
        )
    ]


if __name__ == "__main__":
    main(works)
