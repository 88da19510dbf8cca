"""The timeline: spans by thread, as a trace that a browser opens."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ttsbatch.cli.app import app
from ttsbatch.errors import PlanError, SinkError
from ttsbatch.timeline import Timeline


def test_a_span_ends_when_it_is_added_on_the_thread_that_adds_it() -> None:
    timeline = Timeline()
    time.sleep(0.02)
    timeline.add("decode", 0.01)
    thread = threading.Thread(target=timeline.add, args=("write", 60.0), name="writer")
    thread.start()
    thread.join()
    names = {e["tid"]: e["args"]["name"] for e in timeline.events() if e["ph"] == "M"}
    spans = {e["name"]: e for e in timeline.events() if e["ph"] == "X"}
    assert names[spans["write"]["tid"]] == "writer"
    assert names[spans["decode"]["tid"]] == threading.current_thread().name
    assert spans["decode"]["dur"] == pytest.approx(10_000)
    assert spans["decode"]["ts"] >= 10_000
    assert spans["write"]["ts"] < spans["decode"]["ts"] + spans["decode"]["dur"]
    ends = {stage: span["ts"] + span["dur"] for stage, span in spans.items()}
    assert 20_000 <= ends["decode"] <= ends["write"]


def test_a_run_writes_the_stages_that_the_report_counts(
    tmp_path: Path, write_rows: Callable[..., Path]
) -> None:
    corpus, out, file = (
        write_rows({"text": "Yes."}, {"text": "No."}),
        tmp_path / "o",
        tmp_path / "t",
    )
    arguments = ["synth", str(corpus), "-o", str(out), "--quiet", "--timeline", str(file)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    spans = [e for e in json.loads(file.read_text("utf8"))["traceEvents"] if e["ph"] == "X"]
    stages = json.loads((out / "report.json").read_text("utf8"))["stages"]
    assert {s["name"] for s in spans} == {n for n, s in stages.items() if s["busy_seconds"] > 0}
    for name in ("prepare", "decode", "encode"):
        busy_s = sum(s["dur"] for s in spans if s["name"] == name) / 1e6
        assert busy_s == pytest.approx(stages[name]["busy_seconds"])


def test_folder_of_a_trace_is_there_or_is_the_output(tmp_path: Path) -> None:
    out = tmp_path / "out"
    Timeline.check_file(tmp_path / "t.json", str(out))
    Timeline.check_file(out / "t.json", str(out))
    with pytest.raises(PlanError, match=r"t\.json'; expected a file in a folder that exists"):
        Timeline.check_file(out / "traces/t.json", str(out))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"no/such\.json: cannot be written"):
        Timeline().write(tmp_path / "no" / "such.json")
