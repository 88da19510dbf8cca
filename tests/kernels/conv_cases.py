"""What is asked of every convolution kernel: tensors of its options, and how it's compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ttsbatch.kernels.conv_finish import Pointwise

Inputs = tuple[Tensor, Tensor, Tensor]  # x, weight, bias
Options = dict[str, Any]
Pair = tuple[Tensor | None, Tensor | None]  # activated, raw


def with_tensors(
    options: Options, shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Options:
    """Options of a call, whose tensors are made here.

    Args:
        options: residual and raw: their dtypes, or None for `dtype`; pointwise, affine and snake:
            whether they are there, of which snake is without being named. The rest stays.
        shape: [B, N, C] of what the convolution gives.
        dtype: of x.
        device: of all tensors.
    """
    options, channels = dict(options), shape[-1]
    residual = torch.randn(shape, device=device)
    if "residual" in options:
        options["residual"] = residual.to(options["residual"] or dtype)
    if "raw" in options:
        options["raw"] = torch.empty(shape, device=device, dtype=options["raw"] or dtype)
    if options.pop("pointwise", False):
        weight = (torch.randn(channels, channels, device=device) / channels**0.5).to(dtype)
        between, bias = table(channels, device), torch.randn(channels, device=device)
        options["pointwise"] = Pointwise(between, weight, bias)
    if options.pop("affine", False):
        options["affine"] = table(channels, device)
    if options.pop("snake", True):
        options["snake"] = table(channels, device)
    return options


def table(channels: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Two numbers for each channel."""
    return torch.randn(channels, device=device).exp(), torch.rand(channels, device=device) + 0.5


def depthwise_case(
    device: torch.device,
    dtype: torch.dtype,
    batch: int = 2,
    length: int = 40,
    channels: int = 12,
    taps: int = 7,
    **options: Any,
) -> tuple[Inputs, Options]:
    """Inputs and options of a depthwise convolution."""
    x = torch.randn(batch, length, channels, device=device).to(dtype)
    weight = torch.randn(taps, channels, device=device) / taps**0.5
    bias = torch.randn(channels, device=device)
    return (x, weight, bias), with_tensors(options, x.shape, dtype, device)


def both(operation: Callable[..., Tensor | None], inputs: Inputs, options: Options) -> Pair:
    """(activated, raw) of an operation, with a raw tensor of its own; NaN where it stays unset."""
    options = dict(options)
    raw = options.get("raw")
    if raw is not None:
        options["raw"] = torch.full_like(raw, torch.nan)
    return operation(*inputs, **options), options.get("raw")


def check(
    kernel: Callable[..., Tensor | None],
    reference: Callable[..., Tensor | None],
    inputs: Inputs,
    options: Options,
    error: Callable[[Tensor, Tensor], float],
    bound: float,
    **of_the_kernel: Any,
) -> None:
    """The kernel, with options of its own, is within the bound of its reference."""
    found = both(kernel, inputs, options | of_the_kernel)
    expected = both(reference, inputs, options)
    for ours, right in zip(found, expected, strict=True):
        assert (ours is None) == (right is None)
        if ours is not None and right is not None:
            assert ours.is_contiguous()
            assert error(ours, right) <= bound
