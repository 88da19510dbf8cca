"""On a GPU an operation launches its kernel or raises; what does without kernels is counted."""

from __future__ import annotations

import ast
import pkgutil
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ttsbatch import kernels
from ttsbatch.kernels import launch, reference

OPERATIONS = [m.name for m in pkgutil.iter_modules(reference.__path__)]


@pytest.fixture
def gpu_tensor() -> Any:
    return SimpleNamespace(is_cuda=True)


def test_a_tensor_on_a_gpu_always_meets_the_kernel(
    gpu_tensor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "INTERPRET", False)
    assert launch.runs_kernel(gpu_tensor)
    assert not launch.runs_kernel(torch.zeros(1))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_calls_its_reference_only_where_no_kernel_runs(name: str) -> None:
    module = import_module(f"{kernels.__name__}.{name}")
    tree = ast.parse(Path(str(module.__file__)).read_text("utf8"))
    calls = {ast.dump(n) for n in ast.walk(tree) if is_reference_call(n)}
    guarded = {
        ast.dump(n)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test).startswith("not runs_kernel(")
        for statement in branch.body
        for n in ast.walk(statement)
        if is_reference_call(n)
    }
    assert calls == guarded
    assert calls


def is_reference_call(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and ast.unparse(called.value) == "reference"


def test_only_what_runs_on_a_gpu_counts_as_a_fallback(gpu_tensor: Any) -> None:
    before = launch.fallbacks.copy()
    launch.count_fallback("an operation", torch.zeros(1))
    assert launch.fallbacks == before
    launch.count_fallback("an operation", gpu_tensor)
    assert launch.fallbacks - before == {"an operation": 1}
    del launch.fallbacks["an operation"]
