"""Compile depthwise_conv for an H200 without one: `python -m tests.kernels.compile_depthwise 64`.

Prints JSON about the machine code of a whole residual unit of so many channels in float16. A
process of its own, since the tests' one has Triton's interpreter on.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from ttsbatch.kernels import depthwise_conv as module
from ttsbatch.kernels import launch
from ttsbatch.kernels.conv_finish import Pointwise

HOPPER = 90


class Compiler:
    """Stands in for a kernel: compiles it for the arguments of a launch."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.compiled = kernel, None

    def __getitem__(self, grid: object) -> Any:
        return self.launch

    def launch(self, *values: Any, num_warps: int, **constants: Any) -> None:
        from triton import compile as compiled
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        signature, known, aligned = {}, dict(constants), {}
        for index, (name, value) in enumerate(zip(self.kernel.arg_names, values, strict=False)):
            if isinstance(value, torch.Tensor):
                signature[name] = {torch.float16: "*fp16", torch.float32: "*fp32"}[value.dtype]
                aligned[(index,)] = [["tt.divisibility", 16]]
            elif value is None:
                known[name] = None
            else:
                signature[name] = "i32"
        signature |= dict.fromkeys(known, "constexpr")
        order = {name: signature[name] for name in self.kernel.arg_names}
        source = ASTSource(self.kernel, order, known, aligned)
        target = GPUTarget("cuda", HOPPER, 32)
        self.compiled = compiled(source, target=target, options={"num_warps": num_warps})


def main(channels: int) -> None:
    def half(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.float16)

    table = torch.zeros(channels)
    x, stream = half(1, 1, channels), half(1, 1, channels)
    compiler = Compiler(module._depthwise_conv_kernel)
    module._depthwise_conv_kernel = compiler
    launch.INTERPRET = True  # no interpreter: just not the reference
    module.depthwise_conv(
        x,
        torch.zeros(7, channels),
        table,
        snake=(table, table),
        affine=(table, table),
        residual=stream,
        raw=stream,
        pointwise=Pointwise((table, table), half(channels, channels), table),
    )
    ptx = compiler.compiled.asm["ptx"]
    print(
        json.dumps(
            {
                "barriers": ptx.count("bar.sync"),
                "tensor_core": "wgmma" in ptx,
                "loads_of_2_bytes": ptx.count("ld.global.b16"),
                "machine_code_bytes": len(compiler.compiled.asm["cubin"]),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
