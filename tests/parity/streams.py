"""What tests of the loop do on a GPU's current stream, which is not the loop's; no-ops on a CPU."""

from __future__ import annotations

import torch

BUSY_CYCLES = 100_000_000  # about 50 ms


def hold_current_stream(device: str) -> None:
    """Keep the stream busy that state is filled on: a loop that does not wait for it shows."""
    if device != "cpu":
        torch.cuda._sleep(BUSY_CYCLES)


def wait_for_all(device: str) -> None:
    """Until the loop's stream has made what is to be read on this one."""
    if device != "cpu":
        torch.cuda.synchronize()
