"""The rehearsal before capture: every kernel's calls, and no trace of them in a run."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.fake import FakeLM, check, job, loop_of, queue_of, segment
from ttsbatch.engine import rehearse as rehearsal
from ttsbatch.engine.rehearse import rehearse


def test_a_rehearsed_loop_runs_each_frame_size_and_prefill_and_then_works_as_ever() -> None:
    model = FakeLM()
    loop = loop_of(model, 4)
    loop.rehearse()
    assert model.num_steps > 0
    assert loop.num_eager == 0
    jobs = [job(segment("end 5", seed=i, name=str(i))) for i in range(6)]
    assert sorted(check(f) for f in loop.run(queue_of(jobs))) == [str(i) for i in range(6)]


@pytest.mark.gpu
def test_it_waits_for_weights_that_are_still_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 0)
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(rehearsal, "_frames", lambda model, max_positions: None)
    weights = torch.zeros(1000, device=device)
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)  # 50 ms
    weights.fill_(1)
    model: Any = SimpleNamespace(
        device=device, trial_calls=lambda: [lambda: seen.append(weights.clone())]
    )
    rehearse(model, 16)
    assert [float(x.min()) for x in seen] == [1.0]


def test_every_call_comes_after_the_loading_and_has_ended_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    class Stream:
        def __init__(self, device: torch.device) -> None:
            self.device = device

        def wait_stream(self, other: str) -> None:
            told.append(f"after {other}")

        def synchronize(self) -> None:
            told.append("ended")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "loading")
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(rehearsal, "_frames", lambda model, max_positions: told.append("frames"))
    monkeypatch.setattr(rehearsal, "NUM_THREADS", 1)
    model: Any = SimpleNamespace(
        device=torch.device("cuda"), trial_calls=lambda: [lambda: told.append("trial")]
    )
    rehearse(model, 16)
    assert told == [
        *("after loading", "frames", "ended"),
        *("after loading", "trial", "ended"),
    ]
