"""What tests of several folders need."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest

# Tiny models lose time to thread hand-over; set before anything imports torch or numpy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

# Their helpers' asserts say what they compared, as those of tests do.
pytest.register_assert_rewrite("tests.kernels", "tests.parity")

# The same examples in every run; HYPOTHESIS_PROFILE=search looks for new ones.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", max_examples=2_000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# Kernel tests run in Triton's interpreter where there's no GPU; read when triton is imported, which
# tests of other folders do before. What they call takes the reference all the same.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# Commands that tests start in other folders run this checkout, installed or not.
_paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped where there's none, with or without `-m "not gpu"`."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows (mappings, or raw lines) to a JSONL file and returns its path."""

    def write(*rows: dict[str, Any] | str, name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        lines = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in rows]
        path.write_text("".join(f"{line}\n" for line in lines), "utf8")
        return path

    return write


class _Counted:
    def __init__(self, kernel: Any, log: list[str], name: str) -> None:
        self.kernel, self.log, self.name = kernel, log, name

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.log.append(self.name)
            return self.kernel[grid](*args, **kwargs)

        return run


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """`launches(module, "_kernel", ...)`: a list that grows by a name with each launch."""

    def watch(module: ModuleType, *names: str) -> list[str]:
        log: list[str] = []
        for name in names:
            monkeypatch.setattr(module, name, _Counted(getattr(module, name), log, name))
        return log

    return watch


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny tensors: one thread is faster than several, and makes float sums repeat."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
