"""How the benches time: the same three rivals, the same graph, the same row of a table.

Each call is captured into a CUDA graph several times over and the graph is replayed: what a frame
step pays, without the launch cost of Python, and with inputs too large for the cache rotated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

WARM_UP_CALLS = 3
REPLAYS = 15


@dataclass(frozen=True, slots=True)
class Work:
    """A call to time: the kernel and its reference, on inputs made for both."""

    name: str  # operation and what tells this shape apart
    kernel: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Sequence[tuple[Any, ...]]  # argument tuples, used in turn
    num_bytes: int  # that one call must at least read and write
    compiled: bool = True  # time `torch.compile` of the reference as well
    exact: bool = False  # ids: the error is the share that differs


@dataclass(frozen=True, slots=True)
class Row:
    """What a table says of one shape."""

    name: str
    kernel_us: float
    spread_us: float  # slowest replay less the fastest
    gb_per_s: float
    reference_us: float
    compiled_us: float | None
    max_error: float

    HEADER = (
        f"{'operation':<44}{'us':>9}{'+-':>7}{'GB/s':>8}{'ref us':>10}{'comp. us':>10}{'error':>10}"
    )

    def __str__(self) -> str:
        compiled = "-" if self.compiled_us is None else f"{self.compiled_us:.1f}"
        return (
            f"{self.name:<44}{self.kernel_us:>9.2f}{self.spread_us:>7.2f}{self.gb_per_s:>8.0f}"
            f"{self.reference_us:>10.1f}{compiled:>10}{self.max_error:>10.1e}"
        )


def measure(work: Work, num_calls: int = 20) -> Row:
    """Check a kernel against its reference and time both, and the compiled reference.

    Raises:
        RuntimeError: no CUDA device.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("a bench needs a CUDA device")
    error = max_error(work)
    kernel_us, spread_us = replay_us(work.kernel, work.inputs, num_calls)
    reference_us, _ = replay_us(work.reference, work.inputs, max(num_calls // 5, 1))
    compiled_us = None
    if work.compiled:
        compiled_us, _ = replay_us(compiled(work.reference), work.inputs, num_calls)
    gb_per_s = work.num_bytes / kernel_us / 1e3
    return Row(work.name, kernel_us, spread_us, gb_per_s, reference_us, compiled_us, error)


def compiled(call: Callable[..., Any], backend: Any = "inductor") -> Callable[..., Any]:
    """A reference that is compiled when it is called, for its inputs' shapes.

    What was compiled before is dropped: the compiler counts by function, and beyond its limit of
    shapes (8) it would run the function as it is, under the name of a compiled one.
    """
    torch._dynamo.reset()
    return torch.compile(call, dynamic=False, backend=backend)


def max_error(work: Work) -> float:
    """Largest difference over largest magnitude, of outputs; or the share of ids that differ."""
    found, expected = (call(*work.inputs[0]) for call in (work.kernel, work.reference))
    pairs = [(found, expected)] if isinstance(found, Tensor) else zip(found, expected, strict=True)
    if work.exact:
        return max(float((a != b).double().mean()) for a, b in pairs)
    return max(
        float((a.double() - b.double()).abs().max() / b.double().abs().max()) for a, b in pairs
    )


def replay_us(
    call: Callable[..., Any], inputs: Sequence[tuple[Any, ...]], num_calls: int
) -> tuple[float, float]:
    """Median and spread of a call in microseconds, inside one graph of `num_calls` calls."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_CALLS):
            call(*inputs[0])
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(num_calls):
            call(*inputs[index % len(inputs)])
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / num_calls)
    times.sort()
    return times[len(times) // 2], times[-1] - times[0]


def num_bytes(*tensors: Tensor) -> int:
    """Bytes that tensors hold."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def main(works: Callable[[int], list[Work]], slots: Sequence[int] = (64, 256, 512)) -> None:
    """Print the table of one operation."""
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    print(Row.HEADER)
    for num_slots in slots:
        for work in works(num_slots):
            print(measure(work))
