"""Kernels may be compiled and loaded on several threads at once."""

from __future__ import annotations

import gc
import shutil
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import triton

import ttsbatch.kernels.launch  # noqa: F401  makes Triton safe

SOURCE = """
#include <Python.h>
static PyObject *launch(PyObject *self, PyObject *args) { return PyUnicode_FromString("%s"); }
static PyMethodDef methods[] = {{"launch", launch, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "a_launcher", NULL, -1, methods};
PyMODINIT_FUNC PyInit_a_launcher(void) { return PyModule_Create(&module); }
"""


def test_kernels_may_be_parsed_at_once() -> None:
    """Before Python 3.12 garbage is collected within `ast.parse`, and may let in another thread."""
    functions = [triton.runtime.JITFunction(_some_kernel) for _ in range(4)]
    threshold = gc.get_threshold()
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert len(list(pool.map(_parse_often, functions))) == 4
    finally:
        gc.set_threshold(*threshold)


def _parse_often(function: Any) -> None:
    for _ in range(20):
        _Garbage()
        function.parse()


def _some_kernel(x: Any, y: Any) -> Any:
    z = [x + 2 * y, (x, y)]
    return z[0]


class _Garbage:
    """Takes its time to go, in which other threads get their turn."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(1e-4)


@pytest.mark.skipif(
    shutil.which("gcc") is None
    or not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists(),
    reason="Triton builds launchers with a C compiler",
)
def test_a_launcher_that_is_loaded_again_leaves_others_of_its_name_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    includes = [sysconfig.get_paths()["include"]]

    def load(name: str) -> Any:
        return triton.runtime.build.compile_module_from_src(
            SOURCE % name, "a_launcher", include_dirs=includes
        )

    first, second = load("first"), load("second")
    again = load("first")
    assert [m.launch() for m in (first, second, again)] == ["first", "second", "first"]

    def loaded_on_a_thread(n: int) -> bool:
        name = f"launcher {n % 3}"
        return all(load(name).launch() == name for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(loaded_on_a_thread, range(12)))
