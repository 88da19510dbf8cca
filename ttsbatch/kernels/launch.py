"""When a Triton kernel runs and when plain torch does, the same for all kernels.

Triton is published for Linux only, so this is the one place that imports it: elsewhere `jit` leaves
the kernel a plain function, and every operation takes its reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ttsbatch.kernels.thread_safety import make_safe_for_threads

__all__ = [
    "cdiv",
    "count_fallback",
    "fallbacks",
    "jit",
    "next_power_of_2",
    "runs_kernel",
    "shared_bytes",
    "tensor_descriptor",
    "tl",
    "unlaunchable",
]

try:
    import triton
    import triton.language as tl
except ImportError:  # pragma: no cover
    triton = None
    tl = None

unlaunchable: tuple[type[Exception], ...] = ()
"""What Triton raises where a device cannot run a kernel: it asks for too much, or is not known."""

if triton is not None:
    from triton.runtime.errors import OutOfResources, PTXASError

    unlaunchable = (OutOfResources, PTXASError)
    make_safe_for_threads()

# Tests switch this on to run the kernels themselves on a CPU, which needs Triton's interpreter
# (TRITON_INTERPRET=1 before the first import of triton). The interpreter is wrong in bf16.
INTERPRET = False

fallbacks: Counter[str] = Counter()
"""Plain torch that ran on a CUDA device where kernels would have, by name; see `count_fallback`."""


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`triton.jit` with its options; the function as it is where Triton isn't installed."""

    def decorate(function: Callable[..., Any]) -> Any:
        return function if triton is None else triton.jit(function, **options)

    return decorate


def runs_kernel(tensor: Tensor) -> bool:
    """Whether an operation on `tensor` launches its kernel rather than its reference."""
    return tensor.is_cuda or INTERPRET


def count_fallback(name: str, tensor: Tensor) -> None:
    """Count a path that does without the kernels there are for it, where it runs on a GPU.

    An operation of this package never does: on a GPU it launches its kernel or raises. A capture
    counts once, however often its graph is replayed.
    """
    if tensor.is_cuda:
        fallbacks[name] += 1


HOPPER_SHARED_BYTES = 227 * 1024


def shared_bytes(tensor: Tensor) -> int:
    """Shared memory that one program may take where `tensor` is, in bytes; of Hopper on a CPU."""
    return _shared_bytes(tensor.get_device()) if tensor.is_cuda else HOPPER_SHARED_BYTES


@lru_cache
def _shared_bytes(device: int) -> int:
    properties: Any = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", HOPPER_SHARED_BYTES))


def tensor_descriptor(tensor: Tensor, block: list[int]) -> Any:
    """What a kernel loads whole blocks of `tensor` by; outside of it they hold zeros.

    Strides other than the last one, which is 1, must be multiples of 16 bytes.
    """
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(tensor, block)


def next_power_of_2(number: int) -> int:
    """The least power of two that is not below `number`, itself at least 1."""
    return 1 << (number - 1).bit_length()


def cdiv(number: int, step: int) -> int:
    """`number / step`, rounded up."""
    return -(-number // step)
