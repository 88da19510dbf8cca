"""CUDA graph capture and replay of one frame of every slot; the plain call on a CPU.

A frame is one graph: talker, draws, predictor, feedback, end flags. There is one graph per bound of
the context length, since the bound chooses the attention's path. A capture that fails is an error,
never a silent eager run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import torch

from ttsbatch.errors import EngineError
from ttsbatch.types import EngineStats

WARMUP_FRAMES = 2  # before capture: Triton compiles, cuBLAS picks its kernels and workspaces
SHORT_BOUNDS = (1024,)  # positions; what one-pass attention takes, see kernels/paged_attention.py


class FrameGraphs:
    """Runs `frame(bound)`: replayed on a GPU, called on a CPU."""

    def __init__(
        self,
        frame: Callable[[int], None],
        device: torch.device,
        max_positions: int,
        stats: EngineStats,
    ) -> None:
        """Capture nothing yet; `frame` must have fixed shapes and leave no tensor behind."""
        self._frame, self._device, self._stats = frame, device, stats
        self._bounds = [b for b in SHORT_BOUNDS if b < max_positions] + [max_positions]
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def capture(self) -> None:
        """Capture every bound, the largest first, while no slot is active. No-op on a CPU.

        Raises:
            EngineError: a frame that cannot be captured.
        """
        if self._device.type != "cuda":
            return
        pool = None
        stream = torch.cuda.Stream(self._device)
        for bound in reversed(self._bounds):
            stream.wait_stream(torch.cuda.current_stream(self._device))
            try:
                with torch.cuda.stream(stream):
                    for _ in range(WARMUP_FRAMES):
                        self._frame(bound)
                torch.cuda.current_stream(self._device).wait_stream(stream)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    self._frame(bound)
            except Exception as e:
                raise EngineError(
                    f"{self._device}: a frame of bound {bound} cannot be captured: {e}"
                ) from e
            pool = graph.pool()
            self._graphs[bound] = graph

    def run(self, longest: int) -> None:
        """Make a frame in every slot; no row then has more than `longest` positions.

        `longest` comes from the host's own count, never from the device.
        """
        if not self._graphs:
            self._frame(longest)
            self._stats.eager_steps += 1
            return
        self._graphs[self._bounds[bisect_left(self._bounds, longest)]].replay()
