"""`python -m tests.kernels.compile_kernels [--sm 90] MODEL ...`: every kernel of a run, compiled.

No GPU and no weights are needed: the model of official size consists of fake tensors, and what it
launches is compiled to machine code instead of being run, for an H100 or H200 (sm_90) unless told
otherwise. That finds what the interpreter cannot: what the compiler refuses, and tiles that need
more shared memory than there is. Prints a JSON object per kernel variant, with a few facts about
its code.
Source: `torch._subclasses.FakeTensorMode`; `JITFunction.run(warmup=True)` of Triton 3.6 to 3.9.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction, MockTensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ttsbatch.engine.decode import DecodeLoop
from ttsbatch.kernels import causal_conv, launch
from ttsbatch.models import FAMILIES, open_card
from ttsbatch.models.protocol import CodecLM
from ttsbatch.models.qwen3_tts import model as qwen3_tts
from ttsbatch.models.voxcpm2 import model as voxcpm2
from ttsbatch.types import Demand, EngineStats

SHARED_BYTES = {
    80: 163 * 1024,
    86: 99 * 1024,
    89: 99 * 1024,
    90: 227 * 1024,
    100: 227 * 1024,
    120: 99 * 1024,
}
"""Of a program, by compute capability. Source: CUDA C++ Programming Guide, compute capabilities."""
MAX_POSITIONS = 4096  # long enough for the split path of attention
NUM_SLOTS = 64


class NoDriver:
    """What Triton asks of a driver while it compiles."""

    def __init__(self, sm: int) -> None:
        self._target = GPUTarget("cuda", sm, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_stream(self, _device: int) -> int:
        return 0


class Compiled:
    """Compiles launches in place of running them, each variant once."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._run = JITFunction.run

    def run(self, kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        variant = " ".join([*map(_describe, args), *(f"{k}={v}" for k, v in options.items())])
        name = f"{kernel.__name__} {variant}"
        if name in self._known:
            return
        self._known.add(name)
        line: dict[str, Any] = {"kernel": kernel.__name__, "variant": variant}
        try:
            found = self._run(kernel, *map(_mock, args), grid=grid, warmup=True, **options)
            ptx = found.asm["ptx"]
            line["shared"] = found.metadata.shared
            line["barriers"] = ptx.count("bar.sync")
            line["loads_of_2_bytes"] = ptx.count("ld.global.b16")
            line["tensor_core"] = "wgmma" in ptx
        except Exception as e:
            line["error"] = f"{type(e).__name__}: {e}"[:2000]
        print(json.dumps(line), flush=True)


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"*{str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, TensorDescriptor):
        return f"tile{list(value.block_shape)} of {_describe(value.base)}"
    if isinstance(value, int) and not isinstance(value, bool):
        return "1" if value == 1 else "16n" if value % 16 == 0 else "n"
    return "none" if value is None else type(value).__name__


def _mock(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return MockTensor(value.dtype, list(value.shape))
    return value


def launch_all(model: CodecLM) -> None:
    """A frame of each path, a prefill, and codec passes."""
    for call in model.trial_calls():
        call()
    loop = DecodeLoop(model, NUM_SLOTS, 2, MAX_POSITIONS, EngineStats(), use_graphs=False)
    loop.rehearse()


def main(names: list[str], sm: int) -> None:
    launch.INTERPRET = True  # kernels, though no tensor is on a GPU
    triton.runtime.driver.set_active(NoDriver(sm))
    causal_conv.shared_bytes = lambda _tensor: SHARED_BYTES[sm]
    compiled = Compiled()
    JITFunction.run = lambda kernel, *args, **options: compiled.run(kernel, *args, **options)
    qwen3_tts.CodecDecoder = partial(qwen3_tts.CodecDecoder, fused=True)  # as on a GPU
    voxcpm2.AudioVAE = partial(voxcpm2.AudioVAE, fused=True)
    voxcpm2.vae_dtype = lambda _device, _dtype: torch.float16
    for name in names:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
            card = open_card(name)
            load: Callable[..., CodecLM] | None = FAMILIES[card.family].load_codec_lm
            assert load is not None
            launch_all(load(card, torch.device("cpu"), torch.bfloat16, Demand()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sm", type=int, default=90, choices=SHARED_BYTES)
    parser.add_argument("models", nargs="+")
    options = parser.parse_args()
    main(options.models, options.sm)
