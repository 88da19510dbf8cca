"""CUDA graph capture and replay of work whose shapes depend on one number; a plain call on a CPU.

A frame of every slot is such work (the number bounds the context length, which chooses the
attention's path), and so is the prefill of packed prompts (the number of tokens). A capture that
fails is an error, never a silent eager run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ttsbatch.errors import EngineError

WARMUP_CALLS = 2  # before capture: Triton compiles, cuBLAS picks its kernels and workspaces


class BucketGraphs:
    """Runs `work(size)`: rounded up to a bucket and replayed on a GPU, as it is on a CPU."""

    def __init__(
        self, name: str, work: Callable[[int], None], device: torch.device, buckets: Sequence[int]
    ) -> None:
        """Capture nothing yet.

        Args:
            name: for messages.
            work: fixed shapes for a size, no host sync, no tensor that outlives the call.
            device: where it runs.
            buckets: sizes to capture, ascending; what exceeds the last runs eagerly.
        """
        self._name, self._work, self._device = name, work, device
        self._buckets = list(buckets)
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self.num_eager = 0
        """Calls that ran without a graph."""

    def capture(self, stream: torch.cuda.Stream | None, pool: Any = None) -> Any:
        """Capture every bucket on a stream, the largest first; their memory pool is returned.

        Kernels keep the priority of that stream wherever they are replayed.

        Nothing else may use what `work` writes meanwhile. Without a stream (on a CPU) a no-op.

        Raises:
            EngineError: a bucket that cannot be captured.
        """
        if stream is None:
            return None
        current = torch.cuda.current_stream(self._device)
        for size in reversed(self._buckets):
            stream.wait_stream(current)
            try:
                with torch.cuda.stream(stream):
                    for _ in range(WARMUP_CALLS):
                        self._work(size)
                current.wait_stream(stream)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    self._work(size)
            except Exception as e:
                raise EngineError(
                    f"{self._device}: {self._name} of size {size} cannot be captured: {e}"
                ) from e
            pool = graph.pool()
            self._graphs.insert(0, graph)
        return pool

    def rehearse(self) -> None:
        """Do the work of the smallest and of the largest size without a graph."""
        for size in dict.fromkeys((self._buckets[0], self._buckets[-1])):
            self._work(size)

    def run(self, size: int) -> None:
        """Do the work of this size, which the host has counted, never read from the device."""
        bucket = bisect_left(self._buckets, size)
        if bucket < len(self._graphs):
            self._graphs[bucket].replay()
            return
        self._work(size)
        self.num_eager += 1
