"""Every kernel once, on threads, before anything is captured.

Triton compiles a kernel at its first launch, on one core; it lets go of the interpreter meanwhile,
so that threads compile in parallel. With nothing in its cache on disk, warm-up on an H200 took
47 s one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

from ttsbatch.engine.decode import FEWEST_SLOTS_CAPTURED, DecodeLoop
from ttsbatch.models.protocol import CodecLM
from ttsbatch.types import EngineStats

NUM_THREADS = 8


def rehearse(model: CodecLM, max_positions: int) -> None:
    """Launch what frames, prefills and codec passes launch, on small inputs.

    Args:
        model: on a CUDA device.
        max_positions: of the slots that will be allocated; decides on attention's paths.

    Raises:
        Exception: whatever a call raised; the others have ended.
    """
    frames: Callable[[], object] = partial(_frames, model, max_positions)
    calls = [frames, *model.trial_calls()]
    loading = torch.cuda.current_stream(model.device)  # weights may still be on their way
    with ThreadPoolExecutor(NUM_THREADS, "ttsbatch-rehearse") as pool:
        for call in [pool.submit(_on_stream, model.device, loading, call) for call in calls]:
            call.result()


def _frames(model: CodecLM, max_positions: int) -> None:
    num_slots = FEWEST_SLOTS_CAPTURED
    DecodeLoop(model, num_slots, 2, max_positions, EngineStats(), use_graphs=False).rehearse()


@torch.inference_mode()
def _on_stream(device: torch.device, after: torch.cuda.Stream, call: Callable[[], object]) -> None:
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    stream.wait_stream(after)
    with torch.cuda.stream(stream):
        call()
    stream.synchronize()
