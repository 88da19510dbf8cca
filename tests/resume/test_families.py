"""Killed while a real model speaks, and run again: the audio of an unbroken run, each row once."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.families import CODEC_LMS, Family, made_rows, unlike, write_corpus
from tests.resume.test_kills import WRITES, killed
from tests.sinks.fake_run import content
from ttsbatch import pipeline
from ttsbatch.sinks.findings import DAMAGE
from ttsbatch.sinks.shards import ShardSink
from ttsbatch.sinks.verify import OutputCheck

NUM_ROWS = 5
KILLS = (0.45, 0.75)
"""Where of its calls that change a file a run is killed: the first third is spent on the folder."""


@pytest.mark.parametrize("family", CODEC_LMS, ids=lambda f: f.name)
def test_run_killed_while_it_writes_ends_in_the_audio_of_an_unbroken_run(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each row is committed by itself, so that a kill leaves some.
    sink = partial(ShardSink, group_rows=1, group_seconds=0.0)
    monkeypatch.setattr(pipeline, "ShardSink", sink)
    corpus = write_corpus(tmp_path / "rows.jsonl", family.corpus()[-NUM_ROWS:])
    num_changes = _count_changes(partial(family.synth, corpus, tmp_path / "whole"))
    committed = []
    for share in KILLS:
        out = tmp_path / f"{share}"
        assert killed(partial(family.synth, corpus, out), round(share * num_changes))
        check = OutputCheck(out)
        assert check.findings.count(DAMAGE) == 0
        before = content(out)
        family.synth(corpus, out)
        assert unlike(out, tmp_path / "whole", family) == set()
        now, rows = content(out), made_rows(out)
        finished = [m for i, m in rows.items() if check.is_made(i)]
        assert all(now[m["audio_filepath"]] == before[m["audio_filepath"]] for m in finished)
        assert OutputCheck(out).findings.by_kind == {}
        committed.append(len(finished))
    assert any(0 < n < NUM_ROWS for n in committed)


def _count_changes(job: Callable[[], object]) -> int:
    """How many calls of a job change a file."""
    calls: list[str] = []

    def counted(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if name != "open" or args[1] & os.O_CREAT:
                calls.append(name)
            return call(*args, **kwargs)

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            patch.setattr(os, name, counted(getattr(os, name), name))
        job()
    return len(calls)
