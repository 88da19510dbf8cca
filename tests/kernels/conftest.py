"""What every kernel test needs: the interpreter on a CPU, poisoned outputs and mutants."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

from tests.kernels.memory_guard import Guard, installed
from ttsbatch.kernels import launch

FLOATS = [
    torch.float32,
    torch.float16,
    pytest.param(torch.bfloat16, marks=pytest.mark.gpu),  # the interpreter is wrong in it
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `dtype` runs in each dtype of a run."""
    if "dtype" in metafunc.fixturenames:
        metafunc.parametrize("dtype", FLOATS, ids=str)


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(launch, "INTERPRET", not torch.cuda.is_available())


@pytest.fixture(autouse=True)
def memory_guard(monkeypatch: pytest.MonkeyPatch) -> Guard | None:
    """In the interpreter a kernel that leaves its tensors fails."""
    return None if torch.cuda.is_available() else installed(monkeypatch)


@pytest.fixture(autouse=True)
def _poisoned_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a kernel forgets to write shows as NaN, or as an id out of range."""
    plain, plain_like = torch.empty, torch.empty_like

    def poison(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.fill_(torch.nan if tensor.is_floating_point() else -7777)

    monkeypatch.setattr(torch, "empty", lambda *a, **k: poison(plain(*a, **k)))
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: poison(plain_like(*a, **k)))


@pytest.fixture
def mutant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_guard: Guard | None
) -> Callable[[ModuleType, str, str], ModuleType]:
    """`mutant(module, old, new)`: the module again, with one place of its source made wrong.

    In the interpreter only: on a GPU a wrong address would end the context of all tests after it.
    """
    if torch.cuda.is_available():
        pytest.skip("wrong kernels run in the interpreter only")
    assert memory_guard is not None
    memory_guard.lenient = True

    def build(module: ModuleType, old: str, new: str) -> ModuleType:
        source = Path(str(module.__file__)).read_text()
        assert source.count(old) == 1, f"{old!r} is in the source {source.count(old)} times"
        path = tmp_path / f"mutant_of_{module.__name__.rsplit('.', 1)[-1]}.py"
        path.write_text(source.replace(old, new))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        wrong = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, wrong)
        spec.loader.exec_module(wrong)
        return wrong

    return build


@pytest.fixture
def error() -> Callable[[torch.Tensor, torch.Tensor], float]:
    """Largest difference over the largest expected magnitude; infinite where NaN is unexpected."""

    def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        wide, right = found.double(), expected.double()
        scale = right.abs().max().clamp(min=1e-30)
        worst = ((wide - right).abs() / scale).max()
        return float("inf") if bool(worst.isnan()) else float(worst)

    return relative


@pytest.fixture
def tolerance() -> Callable[[torch.dtype], float]:
    """A relative error of a few roundings in the dtype."""

    def bound(dtype: torch.dtype) -> float:
        return {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]

    return bound
