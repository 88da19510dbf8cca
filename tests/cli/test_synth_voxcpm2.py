"""`ttsbatch synth` on the tiny VoxCPM2 checkpoint: every kind of row, refused ones, a rerun."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner, Result

from tests.parity.voxcpm2 import FIXTURE
from ttsbatch.cli.app import app

REF, PROMPT = (str(FIXTURE / "audio" / f"{name}.wav") for name in ("ref", "prompt"))
ROWS = [
    {"id": "plain", "text": "hello world.", "seed": 1},
    {"id": "described", "text": "hello.", "instruct": "soft", "seed": 2, "language": "zh"},
    {"id": "voiced", "text": "hello 你好.", "ref_audio": REF, "seed": 3, "guidance": 3.0},
    {"id": "continued", "text": "today!", "ref_audio": PROMPT, "ref_text": "今天 ", "seed": 4},
    {"id": "coarse", "text": "hello world.", "seed": 1, "steps": 4},
]
PATCH_SAMPLES = 7680


def synth(corpus: Path, out: Path, *options: str) -> Result:
    given = ["--model", str(FIXTURE), "--max-seconds", "0.8", "--retries", "0", "--quiet"]
    result = CliRunner().invoke(app, ["synth", str(corpus), "-o", str(out), *given, *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def manifest(out: Path) -> dict[str, dict[str, Any]]:
    lines = (out / "manifest.jsonl").read_text("utf8").splitlines()
    return {line["id"]: line for line in map(json.loads, lines)}


def samples(out: Path, name: str) -> np.ndarray:
    data, rate = soundfile.read(out / manifest(out)[name]["audio_filepath"], dtype="int16")
    assert rate == 48_000
    return data.astype(int)


def files(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder of every kind of row, spoken together in two slots."""
    folder = tmp_path_factory.mktemp("voxcpm2")
    corpus = folder / "rows.jsonl"
    corpus.write_text("".join(json.dumps(r) + "\n" for r in ROWS), "utf8")
    result = synth(corpus, folder / "out", "--slots", "2")
    assert result.exit_code == 0, result.output
    return folder


def test_every_kind_of_row_is_made_in_whole_patches(made: Path) -> None:
    lines = manifest(made / "out")
    assert lines.keys() == {r["id"] for r in ROWS}
    for name, line in lines.items():
        assert 1 <= line["num_frames"] <= 5
        assert line["num_samples"] == line["num_frames"] * PATCH_SAMPLES
        assert len(samples(made / "out", name)) == line["num_samples"]
    assert lines["plain"]["sample_rate"] == 48_000
    assert [lines[n]["language"] for n in ("plain", "described")] == ["auto", "zh"]


def test_solver_steps_and_descriptions_are_heard(made: Path) -> None:
    plain, coarse = (samples(made / "out", n)[:PATCH_SAMPLES] for n in ("plain", "coarse"))
    assert np.abs(plain - coarse).max() > 10


def test_a_row_alone_is_the_row_among_others(
    made: Path, tmp_path: Path, write_rows: Callable[..., Path]
) -> None:
    for name in ("plain", "continued"):
        row = next(r for r in ROWS if r["id"] == name)
        out = tmp_path / name
        assert synth(write_rows(row), out, "--slots", "1").exit_code == 0
        assert np.abs(samples(out, name) - samples(made / "out", name)).max() <= 2


def test_a_rerun_changes_no_byte(made: Path) -> None:
    before = files(made / "out")
    assert synth(made / "rows.jsonl", made / "out", "--slots", "2").exit_code == 0
    assert files(made / "out") == before


def test_verify_finds_nothing_wrong(made: Path) -> None:
    assert CliRunner().invoke(app, ["verify", str(made / "out")]).exit_code == 0


def test_rows_that_cannot_be_made_stop_no_other(
    tmp_path: Path, write_rows: Callable[..., Path]
) -> None:
    corpus = write_rows(
        {"id": "good", "text": "hello."},
        {"id": "sampled", "text": "hello.", "temperature": 0.5},
        {"id": "voice", "text": "hello.", "voice": "Ryan"},
        {"id": "both", "text": "a", "ref_audio": REF, "ref_text": "b", "instruct": "soft"},
        {"id": "fine", "text": "hello.", "steps": 101},
        {"id": "one step", "text": "hello.", "steps": 1},
        {"id": "wild", "text": "hello.", "guidance": -1},
    )
    assert synth(corpus, tmp_path / "out").exit_code == 7
    lines = (tmp_path / "out" / "failures.jsonl").read_text("utf8").splitlines()
    reasons = {line["id"]: line["reason"] for line in map(json.loads, lines)}
    assert reasons == {
        "sampled": "unsupported_option",
        "voice": "unknown_voice",
        "both": "unsupported_option",
        "fine": "bad_value",
        "one step": "bad_value",
        "wild": "bad_value",
    }
    assert manifest(tmp_path / "out").keys() == {"good"}


@pytest.mark.parametrize(
    "option", [["--save-codes"], ["--top-k", "5"], ["--steps", "1"], ["--guidance", "-1"]]
)
def test_options_without_a_use_exit_2(
    option: list[str], tmp_path: Path, write_rows: Callable[..., Path]
) -> None:
    assert synth(write_rows({"text": "hello."}), tmp_path / "out", *option).exit_code == 2


def test_voices_says_how_a_row_chooses_one() -> None:
    result = CliRunner().invoke(app, ["voices", str(FIXTURE)])
    assert result.exit_code == 0
    assert "48,000 Hz" in result.stdout
    assert "guidance" in result.stdout
