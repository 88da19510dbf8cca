"""SiLU-gated product in plain torch."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def silu_mul(gate_up: Tensor) -> Tensor:
    """[..., 2 I] of gate, then up, to `silu(gate) * up` [..., I]; the SiLU is rounded first."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up
