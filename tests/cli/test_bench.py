"""`ttsbatch bench` on the tiny checkpoint: each part gives a figure, and the trace is a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.parity.qwen3 import FIXTURE
from ttsbatch.bench import LONGEST_S, MEAN_S, lengths_s
from ttsbatch.cli.app import app

MODEL = ["bench", "--model", str(FIXTURE / "custom-voice"), "--device", "cpu", "--json"]


@pytest.mark.parametrize(
    ("part", "options", "names"),
    [
        ("step", ["--slots", "2", "--slots", "3", "--context", "64"], ["step", "step"]),
        ("ar", ["--slots", "2", "--utterances", "2"], ["ar"]),
    ],
)
def test_each_part_gives_a_figure(part: str, options: list[str], names: list[str]) -> None:
    result = CliRunner().invoke(app, [*MODEL, "--part", part, *options])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["about"]["device"] == "cpu"
    assert [t["name"] for t in found["timings"]] == names
    for timing in found["timings"]:
        assert timing["audio_seconds"] > 0
        assert timing["audio_seconds_per_second"] == pytest.approx(
            timing["audio_seconds"] / timing["seconds"]
        )


def test_a_trace_is_written(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    options = ["--part", "step", "--slots", "2", "--context", "64", "--trace", str(trace)]
    result = CliRunner().invoke(app, [*MODEL, *options])
    assert result.exit_code == 0, result.output
    assert json.loads(trace.read_text("utf8"))["traceEvents"]


def test_a_model_without_parts_is_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "--model", "hibari"])
    assert result.exit_code == 2


def test_the_workload_has_the_stated_lengths() -> None:
    lengths = lengths_s(2048)
    assert lengths.mean() == pytest.approx(MEAN_S, rel=0.05)
    assert lengths.max() <= LONGEST_S
