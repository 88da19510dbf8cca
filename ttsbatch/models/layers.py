"""Blocks that codec-LM families share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ttsbatch.models.protocol import PAGE_SIZE


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary angles of every position: cos and sin [max_positions, D/2] f32."""

    cos: Tensor
    sin: Tensor

    @staticmethod
    def make(theta: float, head_dim: int, max_positions: int, device: torch.device) -> Rotary:
        """Tables for frequencies theta^(-2i/D). Source: RoFormer (Su et al., 2021)."""
        steps = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
        angles = torch.outer(
            torch.arange(max_positions, dtype=torch.float32, device=device), 1.0 / theta**steps
        )
        return Rotary(angles.cos(), angles.sin())


@dataclass(frozen=True, slots=True)
class PagedKV:
    """Keys and values of every layer in pages: [L, num_pages, Hkv, PAGE_SIZE, D] each."""

    k: Tensor
    v: Tensor

    @staticmethod
    def make(
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        num_pages: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> PagedKV:
        """Zeroed pages."""
        shape = (num_layers, num_pages, num_kv_heads, PAGE_SIZE, head_dim)
        return PagedKV(
            torch.zeros(shape, device=device, dtype=dtype),
            torch.zeros(shape, device=device, dtype=dtype),
        )


def to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """A host array on the device, without waiting for it."""
    host = torch.from_numpy(np.ascontiguousarray(values))
    if device.type == "cuda":  # a copy from pageable memory would wait for the device
        host = host.pin_memory()
    return host.to(device, non_blocking=True)


@contextmanager
def full_float32(device: torch.device) -> Iterator[None]:
    """Keep TF32 out of convolutions and products in float32, where torch lets it into the former.

    Its 10-bit mantissa changes codes, and samples by as much as bf16 would, a batch's size deciding
    how. The settings are the process's.
    """
    if device.type != "cuda":
        yield
        return
    settings: tuple[Any, ...] = (torch.backends.cudnn.conv, torch.backends.cuda.matmul)  # type: ignore[attr-defined]
    before = [x.fp32_precision for x in settings]
    for x in settings:
        x.fp32_precision = "ieee"
    try:
        yield
    finally:
        for x, precision in zip(settings, before, strict=True):
            x.fp32_precision = precision
