"""Processes started before it is known what they load: taken where they serve, else gone."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.workers import openers
from tests.workers.openers import said
from tests.workers.test_run import TINY, files, run
from ttsbatch import loading
from ttsbatch.errors import EngineError
from ttsbatch.loading import open_here, open_speaker, stand_by
from ttsbatch.models import open_card
from ttsbatch.plan import EnginePlan, make_plan
from ttsbatch.types import Demand
from ttsbatch.workers.standby import Standby

Rows = Callable[..., Path]
Start = Callable[..., Standby]


@pytest.fixture
def standby() -> Iterator[Start]:
    """`standby(count, find)`: processes that are gone after the test."""
    made: list[Standby] = []

    def start(count: int, find: Callable[[], list[str]]) -> Standby:
        made.append(Standby(count, "auto", find))
        return made[-1]

    yield start
    for one in made:
        one.close()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_they_become_the_workers_and_others_are_started_where_they_are_too_few(
    standby: Start, count: int
) -> None:
    early = standby(count, openers.two_gpus)
    waiting = {p.pid for p in multiprocessing.active_children()}
    speaker = open_speaker(
        open_card(str(TINY)),
        EnginePlan(),
        demand=Demand(num_parallel=9),
        opener=openers.opened,
        standby=early,
    )
    at_work = {p.pid for p in multiprocessing.active_children()}
    assert len(at_work & waiting) == count
    assert len(at_work) == max(count, 2)
    assert [n for n in speaker.stats.notes if " for " in n] == [
        "cuda:0: custom-voice on cuda:0 for 5",
        "cuda:1: custom-voice on cuda:1 for 5",
    ]
    assert len(list(speaker.speak(said("one", "two", "three")))) == 3
    speaker.close()
    early.close()
    assert not multiprocessing.active_children()


def test_they_end_where_the_model_is_opened_on_the_cpu(standby: Start) -> None:
    early = standby(1, openers.no_gpu_found)
    open_speaker(
        open_card(str(TINY)),
        EnginePlan(),
        opener=lambda card, plan, keep_codes, demand: openers.mischief(),
        standby=early,
    )
    assert not multiprocessing.active_children()


def test_what_they_find_wrong_is_raised_where_it_is_asked_for(standby: Start) -> None:
    early = standby(1, openers.no_gpus)
    with pytest.raises(EngineError, match="found 0 CUDA devices"):
        open_speaker(open_card(str(TINY)), EnginePlan(device="cuda"), standby=early)


def test_one_that_dies_is_told_of(standby: Start) -> None:
    with pytest.raises(EngineError, match="auto: its process was killed by signal 9"):
        standby(2, openers.dies).devices()


@pytest.mark.parametrize(
    ("model", "device", "node", "count"),
    [
        (str(TINY), "auto", "here", 1),
        (str(TINY), "auto", "away", 0),
        (str(TINY), "cpu", "here", 0),
        (str(TINY), "cuda", "away", 1),
        (str(TINY), "cuda:0,1", "away", 2),
        (None, "auto", "here", 0),
    ],
)
def test_they_are_started_where_gpus_are_likely(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model: str | None,
    device: str,
    node: str,
    count: int,
) -> None:
    (tmp_path / "here").touch()
    monkeypatch.setattr(loading, "GPU_NODES", (str(tmp_path / node),))
    early = stand_by(open_card(model), EnginePlan(device=device))
    assert len(multiprocessing.active_children()) == count
    if early is not None:
        early.close()
    assert not multiprocessing.active_children()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_run_that_waited_for_a_gpu_in_vain_is_the_same_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write_rows: Rows
) -> None:
    corpus = write_rows({"id": "a", "text": "One row.", "voice": "ryan", "max_seconds": 0.4})
    plan = make_plan({"corpus": [str(corpus)], "model": str(TINY), "retries": 0})
    run(plan, tmp_path / "without", lambda card, plan: open_here(card, plan.engine))
    monkeypatch.setattr(loading, "GPU_NODES", (str(tmp_path),))
    report = run(plan, tmp_path / "with", None)
    assert report.values["utterances"]["made"] == 1
    assert files(tmp_path / "with") == files(tmp_path / "without")
    run(plan, tmp_path / "with", None)  # nothing to do for them
    assert not multiprocessing.active_children()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_ends_the_run(tmp_path: Path, write_rows: Rows) -> None:
    corpus = write_rows({"id": "a", "text": "One row.", "voice": "ryan"})
    plan = make_plan({"corpus": [str(corpus)], "model": str(TINY), "device": "cuda:0,1"})
    with pytest.raises(EngineError, match="'cuda:0,1'; found 0 CUDA devices"):
        run(plan, tmp_path / "out", None)
    assert not multiprocessing.active_children()


PARENT = """
import io, sys
from functools import partial
from tests.workers import openers
from ttsbatch import loading, pipeline
from ttsbatch.cli.app import app
from ttsbatch.plan import make_plan
from ttsbatch.progress import make_progress
from ttsbatch.workers.standby import Standby

if __name__ == "__main__":
    model, corpus, out = sys.argv[1:]
    pipeline.stand_by = lambda card, plan: Standby(1, "auto", openers.two_gpus)
    pipeline.open_speaker = partial(loading.open_speaker, opener=openers.opened)
    plan = make_plan({"corpus": [corpus], "model": model, "retries": 0})
    report = pipeline.synthesize(plan, out, make_progress(io.StringIO(), quiet=True))
    print(report.values["utterances"]["made"], "torch" in sys.modules)
"""


def test_the_process_of_a_run_on_gpus_imports_no_torch(tmp_path: Path, write_rows: Rows) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    corpus = write_rows(*[{"id": f"r{n}", "text": "A row.", "voice": "ryan"} for n in range(9)])
    done = subprocess.run(
        [sys.executable, script, TINY, corpus, tmp_path / "out"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "9 False\n", done.stderr
