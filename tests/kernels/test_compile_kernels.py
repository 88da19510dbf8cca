"""The machine code of every kernel: what the interpreter of the other tests cannot tell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import ttsbatch.kernels
from ttsbatch.kernels.causal_conv_tiles import Tile

SHARED_BYTES = 227 * 1024  # of a program on an H100 or H200
PLAIN = {"_snake_beta_kernel"}  # of the unfused codecs of a float32 run
MODELS = ("random:qwen3-tts-1.7b-base", "random:voxcpm2")


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run there")
def test_every_kernel_of_a_run_compiles_and_fits() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.compile_kernels", *MODELS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line for line in found if "error" in line] == []
    assert [line for line in found if line["shared"] > SHARED_BYTES] == []
    assert {line["kernel"] for line in found} == kernels() - PLAIN
    convolutions = [line for line in found if line["kernel"] == "_causal_conv_kernel"]
    assert [line for line in convolutions if line["shared"] > bound(line["variant"])] == []
    fused = [x for x in found if x["kernel"] == "_depthwise_conv_kernel" and x["tensor_core"]]
    assert fused  # units with their 1x1: barriers once, not in every tap (61)
    assert all(line["barriers"] < 20 and line["loads_of_2_bytes"] == 0 for line in fused)


def bound(variant: str) -> int:
    """What the tile of a bf16 or fp16 convolution says that it needs."""
    told = {key: int(n) for key, n in re.findall(r"(\w+)=(\d+)", variant)}
    tile = Tile(told["ROWS"], told["WIDE"], told["MORE"], told["DEPTH"], 1, told["num_stages"])
    return tile.shared_bytes(2)


def kernels() -> set[str]:
    """Their names in the source."""
    folder = Path(ttsbatch.kernels.__file__).parent
    return {
        name
        for path in folder.glob("*.py")
        for name in re.findall(r"^def (_\w+_kernel)\(", path.read_text("utf8"), re.MULTILINE)
    }
