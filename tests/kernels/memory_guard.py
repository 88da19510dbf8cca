"""Memory that a kernel has no business with, made visible in Triton's interpreter.

The interpreter reads and writes whatever address a kernel computes: beside a tensor that is
another object of the process, whose bytes change from run to run, or no memory at all. `Guard`
stands between the two. A kernel that leaves the storages of its arguments fails; a kernel that is
wrong on purpose reads poison there instead, and what it writes there is dropped.
Source: `triton/runtime/interpreter.py` of Triton 3.9, whose names it replaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch


class Guard:
    """In place of `interpreter._interpreter`, the compiled part that touches memory."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._starts = self._ends = np.empty(0, np.uint64)
        self.lenient = False  # for kernels that are wrong on purpose

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def allow(self, arguments: Any) -> None:
        """Only the storages of these arguments may be touched from now on."""
        spans = {
            (storage.data_ptr(), storage.data_ptr() + storage.nbytes())
            for storage in (t.untyped_storage() for t in _tensors(arguments))
        }
        ordered = np.array(sorted(spans), np.uint64).reshape(-1, 2)
        self._starts, self._ends = ordered[:, 0], ordered[:, 1]

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        """Read where `mask`."""
        inside = self._inside(pointers, mask, np.dtype(dtype).itemsize, "reads")
        found = self._compiled.load(pointers, mask & inside, other, dtype)
        outside = mask & ~inside
        if not outside.any():
            return found
        poison = np.nan if np.issubdtype(found.dtype, np.floating) else 0
        return np.where(outside, np.asarray(poison, found.dtype), found)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        """Write where `mask`."""
        inside = self._inside(pointers, mask, value.dtype.itemsize, "writes")
        return self._compiled.store(pointers, value, mask & inside)

    def atomic_rmw(self, op: Any, pointers: Any, value: Any, mask: Any, order: Any) -> Any:
        """Read, change and write where `mask`."""
        inside = self._inside(pointers, mask, value.dtype.itemsize, "changes")
        return self._compiled.atomic_rmw(op, pointers, value, mask & inside, order)

    def _inside(self, pointers: Any, mask: Any, size: int, does: str) -> Any:
        """Where the value at a pointer lies within one storage."""
        first = pointers.astype(np.uint64)
        n = np.searchsorted(self._starts, first, side="right")
        known = n > 0
        end = self._ends[np.maximum(n, 1) - 1] if len(self._ends) else np.zeros_like(first)
        inside = known & (first + np.uint64(size) <= end)
        outside = int((mask & ~inside).sum())
        if outside and not self.lenient:
            raise AssertionError(f"the kernel {does} {outside} values outside of its tensors")
        return inside


def installed(monkeypatch: pytest.MonkeyPatch) -> Guard:
    """A guard between the interpreter and the memory, for one test."""
    from triton.runtime import interpreter

    guard = Guard(interpreter._interpreter)
    begin = interpreter.GridExecutor._init_args_hst

    def watched(executor: Any, positional: Any, named: Any) -> Any:
        on_host = begin(executor, positional, named)
        guard.allow(on_host)
        return on_host

    monkeypatch.setattr(interpreter, "_interpreter", guard)
    monkeypatch.setattr(interpreter.GridExecutor, "_init_args_hst", watched)
    return guard


def _tensors(arguments: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested arguments, tensor descriptors among them."""
    if isinstance(arguments, torch.Tensor):
        yield arguments
    elif isinstance(arguments, Mapping):
        for value in arguments.values():
            yield from _tensors(value)
    elif isinstance(arguments, list | tuple):
        for value in arguments:
            yield from _tensors(value)
    elif hasattr(arguments, "base"):
        yield from _tensors(arguments.base)
