"""Jobs through the real loop of slots, in the order given; on a GPU from a stream that is busy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from ttsbatch.engine.decode import DecodeLoop, FinishedFrames
from ttsbatch.engine.queue import JobQueue, Prefetch, Refusal
from ttsbatch.engine.slots import Job
from ttsbatch.models.protocol import PAGE_SIZE, CodecLM
from ttsbatch.types import EngineStats

BUSY_CYCLES = 100_000_000  # about 50 ms


def run_loop(
    model: CodecLM,
    jobs: Sequence[Job],
    num_slots: int,
    use_graphs: bool = True,
    max_positions: int = 128,
) -> list[FinishedFrames]:
    """The frames of every job, in the order in which rows end."""
    on_gpu = model.device.type == "cuda"
    if on_gpu:  # what state is filled on: a loop that does not wait for it shows
        torch.cuda._sleep(BUSY_CYCLES)
    num_pages = num_slots * (max_positions // PAGE_SIZE) + 1
    loop = DecodeLoop(model, num_slots, num_pages, max_positions, EngineStats(), use_graphs)
    incoming: Prefetch[Job | Refusal] = Prefetch(jobs, 64, "jobs")
    with incoming:
        done = list(loop.run(JobQueue(incoming, lookahead=1)))  # 1: keep the given order
    if on_gpu:  # the loop's stream has made what is read on this one
        torch.cuda.synchronize()
    finished = [f for f in done if isinstance(f, FinishedFrames)]
    assert len(finished) == len(done) == len(jobs)
    return finished


def by_id(finished: Iterable[FinishedFrames]) -> dict[str, FinishedFrames]:
    """Finished rows by the ids of their utterances."""
    return {f.job.prompt.segment.utterance.id: f for f in finished}
