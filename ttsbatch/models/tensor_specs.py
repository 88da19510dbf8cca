"""Name, shape and random scale of a checkpoint's tensors; no torch.

A family's table of them serves the strict check of a checkpoint and the making of random weights
alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape of a tensor, and mean and deviation of its random stand-in."""

    shape: tuple[int, ...]
    mean: float = 0.0
    std: float = 0.0


Specs = dict[str, TensorSpec]


def num_parameters(specs: Mapping[str, TensorSpec]) -> int:
    """Numbers in all the tensors of a table."""
    return sum(math.prod(spec.shape) for spec in specs.values())
