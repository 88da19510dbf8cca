"""Solver steps through `synth`, a resume and `redo`, on the tiny VoxCPM2 checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner, Result

import ttsbatch.pipeline
from tests.fake_speaker import FakeSpeaker
from tests.parity.voxcpm2 import FIXTURE
from ttsbatch.cli.app import app
from ttsbatch.types import Demand

PATCH_SAMPLES = 7680


def synth(corpus: Path, out: Path, *options: str) -> Result:
    given = ["--model", str(FIXTURE), "--max-seconds", "0.4", "--retries", "0", "--quiet"]
    result = CliRunner().invoke(app, ["synth", str(corpus), "-o", str(out), *given, *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def manifest(out: Path) -> dict[str, dict[str, Any]]:
    lines = (out / "manifest.jsonl").read_text("utf8").splitlines()
    return {line["id"]: line for line in map(json.loads, lines)}


def samples(out: Path, name: str) -> np.ndarray:
    data, _ = soundfile.read(out / manifest(out)[name]["audio_filepath"], dtype="int16")
    return data.astype(int)


def test_more_steps_than_the_official_ones_can_be_asked_of_a_run_or_of_a_row(
    tmp_path: Path, write_rows: Callable[..., Path]
) -> None:
    row = {"text": "hello world.", "seed": 1}
    corpus = write_rows(
        {"id": "run", **row}, {"id": "own", **row, "steps": 12}, {"id": "same", **row, "steps": 10}
    )
    out = tmp_path / "out"
    assert synth(corpus, out, "--steps", "20").exit_code == 0
    heard = {name: samples(out, name)[:PATCH_SAMPLES] for name in ("run", "own", "same")}
    assert np.abs(heard["run"] - heard["own"]).max() > 10
    redone = CliRunner().invoke(app, ["redo", str(out), "--id", "run", "--quiet"])
    assert redone.exit_code == 0, redone.output
    assert manifest(out)["run"]["attempts"] == 2
    corpus = write_rows({"id": "official", **row})
    assert synth(corpus, tmp_path / "official").exit_code == 0
    official = samples(tmp_path / "official", "official")[:PATCH_SAMPLES]
    assert np.abs(heard["same"] - official).max() <= 2


def test_rows_that_are_still_to_be_made_decide_on_the_steps_that_are_loaded(
    tmp_path: Path, write_rows: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Demand] = []

    def open_speaker(
        card: Any, plan: Any, keep_codes: bool, demand: Demand, standby: None
    ) -> FakeSpeaker:
        asked.append(demand)
        return FakeSpeaker(card)

    monkeypatch.setattr(ttsbatch.pipeline, "open_speaker", open_speaker)
    rows = [
        {"id": "fine", "text": "hello.", "steps": 20},
        {"id": "plain", "text": "hello."},
        {"id": "refused", "text": "hello.", "steps": 101},
    ]
    out = tmp_path / "out"
    assert synth(write_rows(*rows), out).exit_code == 7
    assert synth(write_rows(*rows, {"id": "coarse", "text": "a", "steps": 4}), out).exit_code == 7
    arguments = ["redo", str(out), "--id", "fine", "--quiet"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert [d.steps for d in asked] == [{20, None}, {4}, {20}]
    assert [d.num_parallel for d in asked] == [2, 1, 1]


@pytest.mark.parametrize("steps", [1, 101])
def test_steps_out_of_range_are_refused_before_a_model_is_loaded(
    steps: int, tmp_path: Path, write_rows: Callable[..., Path]
) -> None:
    good, bad = {"id": "good", "text": "a"}, {"id": "bad", "text": "a", "steps": steps}
    refused = synth(write_rows(good), tmp_path / "never", "--steps", str(steps))
    assert refused.exit_code == 2
    assert f"--steps is {steps}; expected a whole number from 2 to 100" in refused.stderr
    assert synth(write_rows(good, bad), tmp_path / "out").exit_code == 7
    (failure,) = map(json.loads, (tmp_path / "out" / "failures.jsonl").read_text().splitlines())
    assert (failure["id"], failure["reason"]) == ("bad", "bad_value")
