"""The interpreter takes what the compiler refuses, and says nothing of the code that comes out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
ROOT = Path(__file__).parent.parent.parent


def test_a_residual_unit_compiles_for_an_h200_and_meets_shared_memory_once(tmp_path: Path) -> None:
    env = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compile_depthwise", "64"],
        cwd=ROOT,
        env=env | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    code = json.loads(done.stdout)
    assert code["tensor_core"]
    assert code["loads_of_2_bytes"] == 0  # 16 bytes at a time
    assert code["barriers"] < 12  # unrolled taps would make it 61
    assert code["machine_code_bytes"] > 0
