"""The benches: each operation has one, and what it times is what it says."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from recipes.bench.kernels import OPERATIONS, max_error_of
from tests.kernels import test_launch
from ttsbatch.kernels import bench, launch
from ttsbatch.kernels.bench import timing

SMALLER = {"FRAMES": 1, "TEXT_ROWS": 300}  # of the modules that have them


class OnCPU(TorchFunctionMode):
    """What is made on a GPU is made on the CPU instead."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("device") == "cuda":
            kwargs = kwargs | {"device": "cpu"}
        if func is torch.Tensor.to:
            args = tuple("cpu" if isinstance(a, str) else a for a in args)
        return func(*args, **kwargs)


@pytest.fixture
def bench_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The bench of an operation, on a CPU in plain torch and on shorter clips."""
    monkeypatch.setattr(launch, "INTERPRET", False)

    def of(operation: str) -> ModuleType:
        module = import_module(f"{bench.__name__}.{operation}")
        for name, value in SMALLER.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
        return module

    with OnCPU():
        yield of


def test_every_operation_has_a_bench() -> None:
    assert sorted(OPERATIONS) == sorted(test_launch.OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_bench_calls_an_operation_and_its_reference_alike(operation: str, bench_of: Any) -> None:
    works = bench_of(operation).works(1)
    names = [work.name for work in works]
    assert len(set(names)) == len(names)
    for work in works:
        assert timing.max_error(work) <= max_error_of(work)
        assert work.num_bytes > 0


def test_snake_beta_is_timed_after_the_head_and_every_upsampling(bench_of: Any) -> None:
    works = bench_of("snake_beta").works(2)
    sizes = [work.inputs[0][0].shape for work in works]
    assert sizes == [(2, 1536, 4), (2, 768, 32), (2, 384, 160), (2, 192, 640), (2, 96, 1920)]
    assert [work.num_bytes for work in works] == [2 * 2 * size.numel() for size in sizes]


def test_a_rival_is_compiled_for_every_shape() -> None:
    compilations = []

    def counted(graph: Any, inputs: Any) -> Any:
        compilations.append(graph)
        return graph.forward

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x + x

    limit = torch._dynamo.config.recompile_limit
    for size in range(2, limit + 6):
        x = torch.ones(size)
        assert timing.compiled(doubled, counted)(x).equal(2 * x)
    assert len(compilations) == limit + 4
