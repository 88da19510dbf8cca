"""A whole run over workers makes what a run in one process makes."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.workers import openers
from ttsbatch.cli.signals import stopped_by_signals
from ttsbatch.loading import open_here
from ttsbatch.models.protocol import Speaker
from ttsbatch.pipeline import synthesize
from ttsbatch.plan import RunPlan, make_plan
from ttsbatch.progress import make_progress
from ttsbatch.report import RunReport
from ttsbatch.stop import Stop
from ttsbatch.timeline import Timeline
from ttsbatch.types import ModelCard
from ttsbatch.verify import verify_run
from ttsbatch.workers.pool import WorkerPool

TINY = Path(__file__).parents[1] / "data/qwen3_tts_tiny/custom-voice"
Rows = Callable[..., Path]


def run(
    plan: RunPlan,
    out: Path,
    load: Callable[[ModelCard, RunPlan], Speaker] | None,
    timeline: Timeline | None = None,
    stop: Stop | None = None,
) -> RunReport:
    quiet = make_progress(io.StringIO(), quiet=True)
    return synthesize(plan, out, quiet, stop, load, timeline)


def workers(card: ModelCard, plan: RunPlan) -> Speaker:
    opener = partial(open_here, card, plan.engine, plan.output.save_codes)
    return WorkerPool(card, ["one", "two"], [opener] * 2)


def files(out: Path) -> dict[str, bytes]:
    """Recordings and codes by name, whatever shard they are in."""
    return {p.name: p.read_bytes() for p in out.rglob("*") if p.suffix in (".wav", ".npy")}


def test_rows_retries_and_failures_are_the_same(tmp_path: Path, write_rows: Rows) -> None:
    rows = [
        {"id": f"r{n}", "text": f"Row number {n}.", "voice": "ryan", "max_seconds": 0.4 + 0.2 * n}
        for n in range(5)
    ]
    long = {"id": "long", "text": "One more sentence. " * 20, "voice": "ryan", "max_seconds": 2}
    corpus = write_rows(*rows, long)
    options = {"corpus": [str(corpus)], "model": str(TINY), "save_codes": True}
    options |= {"device": "cpu", "retries": 1}
    plan = make_plan(options)
    here = run(plan, tmp_path / "here", None)
    timeline = Timeline()
    there = run(plan, tmp_path / "there", workers, timeline)
    assert len(files(tmp_path / "here")) >= 6
    assert files(tmp_path / "there") == files(tmp_path / "here")
    for name in ("utterances", "attempts", "finish_reasons", "audio_seconds"):
        assert there.values[name] == here.values[name]
    assert here.values["attempts"] > 6  # random weights are flagged: retries went there too
    assert there.values["slots"]["count"] == 2 * here.values["slots"]["count"]
    threads = {e["args"]["name"] for e in timeline.events() if e["ph"] == "M"}
    assert {"one ttsbatch-decode", "two ttsbatch-decode"} <= threads
    assert not verify_run(tmp_path / "there").num_damaged


def test_ctrl_c_finishes_what_was_begun_and_the_rest_is_made_later(
    tmp_path: Path, write_rows: Rows
) -> None:
    corpus = write_rows(*[{"id": f"r{n}", "text": f"wait 0.01 {n}"} for n in range(200)])
    plan = make_plan({"corpus": [str(corpus)], "normalize": False})

    def load(card: ModelCard, plan: RunPlan) -> Speaker:
        first = partial(openers.mischief, ctrl_c_after=20)
        return WorkerPool(card, ["one", "two"], [first, openers.mischief])

    stop = Stop()
    with stopped_by_signals(stop):
        first = run(plan, tmp_path / "out", load, stop=stop)
    assert stop.by_signal
    assert 20 <= first.values["utterances"]["made"] < 200
    assert first.values["utterances"]["failed"] == 0
    again = run(plan, tmp_path / "out", lambda card, plan: openers.mischief())
    assert again.values["utterances"]["made"] == 200
    assert not verify_run(tmp_path / "out").num_damaged


def test_a_worker_that_dies_ends_the_run_and_a_rerun_makes_the_rest(
    tmp_path: Path, write_rows: Rows
) -> None:
    texts = [f"row {n}" for n in range(200)]
    texts[120] = "die now"
    corpus = write_rows(*[{"id": f"r{n}", "text": text} for n, text in enumerate(texts)])
    plan = make_plan({"corpus": [str(corpus)], "normalize": False})
    with pytest.raises(Exception, match="one: its process was killed by signal 9"):
        run(plan, tmp_path / "out", lambda c, p: WorkerPool(c, ["one"], [openers.mischief]))
    made = files(tmp_path / "out")
    assert len(made) >= 32
    done = run(plan, tmp_path / "out", lambda card, plan: openers.FakeSpeaker(card))
    assert done.values["utterances"]["made"] == 200
    assert made.items() <= files(tmp_path / "out").items()
