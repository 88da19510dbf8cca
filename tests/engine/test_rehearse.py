"""The rehearsal before capture: every kernel's calls, and no trace of them in a run."""

from __future__ import annotations

from tests.engine.fake import FakeLM, check, job, loop_of, queue_of, segment


def test_a_rehearsed_loop_runs_each_frame_size_and_prefill_and_then_works_as_ever() -> None:
    model = FakeLM()
    loop = loop_of(model, 4)
    loop.rehearse()
    assert model.num_steps > 0
    assert loop.num_eager == 0
    jobs = [job(segment("end 5", seed=i, name=str(i))) for i in range(6)]
    assert sorted(check(f) for f in loop.run(queue_of(jobs))) == [str(i) for i in range(6)]
