"""`ttsbatch synth`: exit codes, stdout, stderr and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import ttsbatch.pipeline
import ttsbatch.progress
from tests.fake_speaker import FakeSpeaker
from tests.test_pipeline import Watcher
from tests.waiting import until
from ttsbatch.cli.app import app
from ttsbatch.types import Demand

Rows = Callable[..., Path]
GOOD = {"id": "a", "text": "Good morning."}


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Runs a command in `tmp_path` with a fake in place of the embedded model."""

    def open_speaker(
        card: Any, plan: Any, keep_codes: bool, demand: Demand, standby: None
    ) -> FakeSpeaker:
        return FakeSpeaker(card)

    monkeypatch.setattr(ttsbatch.pipeline, "open_speaker", open_speaker)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Result:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def test_all_good_exits_0_with_a_table_on_stderr_and_nothing_on_stdout(
    cli: Any, write_rows: Rows
) -> None:
    result = cli("synth", write_rows(GOOD), "-o", "out")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "RTF" in result.stderr
    assert Path("out/audio/shard-00000/a.wav").stat().st_size > 44


def test_rejected_rows_exit_7(cli: Any, write_rows: Rows) -> None:
    assert cli("synth", write_rows(GOOD, {"id": "b"}), "-o", "out").exit_code == 7


def test_failed_rows_exit_7(cli: Any, write_rows: Rows) -> None:
    assert cli("synth", write_rows({"text": "refuse"}), "-o", "out").exit_code == 7


def test_rows_that_are_not_made_are_counted_by_reason_with_one_of_each(
    cli: Any, write_rows: Rows
) -> None:
    corpus = write_rows(
        GOOD,
        {"id": "b", "text": ""},
        {"id": "c", "text": " "},
        GOOD,
        {"id": "d", "text": "refuse"},
        {"id": "e"},
        {"id": "f", "text": 3},
    )
    result = cli("synth", corpus, "-o", "out", "--json")
    assert result.exit_code == 7
    _, _, said = result.stderr.partition("6 rows were not made; ")
    assert said.splitlines()[0] == "each is in out/failures.jsonl with its reason"
    lines = said.splitlines()[1:]
    assert lines[0].startswith(f"  empty_text (2): such as {corpus}:2 'b': ")
    assert f"  duplicate_id (1): {corpus}:4 'a': " in said
    assert len(lines) == 4
    assert lines[3].startswith("  and ")
    assert "engine_error (1)" in said
    assert json.loads(result.stdout)["utterances"]["rejected"] == 5
    assert "not made" not in cli("synth", corpus, "-o", "other", "--quiet").stderr


def test_all_good_says_nothing_of_rows_that_are_not_made(cli: Any, write_rows: Rows) -> None:
    assert "failures.jsonl" not in cli("synth", write_rows(GOOD), "-o", "out").stderr


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"id": "b", "text": ""}, "was rejected, empty_text"),
        ({"id": "b", "text": "refuse"}, "failed, "),
    ],
)
@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_fail_fast_names_the_row_at_which_it_stopped(
    cli: Any, write_rows: Rows, row: dict[str, str], what: str, quiet: list[str]
) -> None:
    corpus = write_rows(GOOD, row, {**row, "id": "c"})
    result = cli("synth", corpus, "-o", "out", "--fail-fast", *quiet)
    assert result.exit_code == 7
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"ttsbatch: stopped (--fail-fast) at a row that {what}")
    assert f"{corpus}:2 'b': " in last


def test_json_prints_the_report_on_stdout(cli: Any, write_rows: Rows) -> None:
    result = cli("synth", write_rows(GOOD), "-o", "out", "--json", "--quiet")
    assert json.loads(result.stdout) == json.loads(Path("out/report.json").read_text("utf8"))
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["rows.jsonl"], 2, ["-o"]),
        (["-o", "out"], 2, ["corpus"]),
        (["rows.jsonl", "-o", "out", "--temperature", "0.5"], 2, ["--temperature", "hibari"]),
        (["rows.jsonl", "-o", "out", "--max-seconds", "3"], 2, ["--max-seconds"]),
        (["rows.jsonl", "-o", "out", "--voice", "Nobody"], 2, ["Nobody", "heart"]),
        (["rows.jsonl", "-o", "out", "--device", "cuda"], 2, ["--device", "cpu"]),
        (["rows.jsonl", "-o", "out", "--device", "foo"], 2, ["'foo'", "cuda:N"]),
        (["rows.jsonl", "-o", "out", "--timeline", "nowhere/t.json"], 2, ["nowhere/t.json"]),
        (["rows.jsonl", "-o", "out", "--slots", "none"], 2, ["--slots", "auto"]),
        (["rows.jsonl", "-o", "out", "--save-codes"], 2, ["--save-codes"]),
        (["rows.jsonl", "-o", "out", "--nonsense"], 2, ["--nonsense"]),
        (["rows.jsonl", "-o", "nowhere://bucket/out"], 6, ["nowhere://bucket/out", "filesystem"]),
        (["nowhere.jsonl", "-o", "out"], 3, ["nowhere.jsonl"]),
        (["rows.jsonl", "-o", "out", "--model", "./nowhere"], 4, ["./nowhere"]),
        (["rows.jsonl", "-o", "out", "--model", "random:gpt"], 4, ["random:gpt", "qwen3-tts"]),
        (["rows.jsonl", "-o", "rows.jsonl"], 6, ["rows.jsonl"]),
    ],
)
def test_what_cannot_start_exits_with_its_code_and_says_why(
    cli: Any, write_rows: Rows, arguments: list[str], code: int, words: list[str]
) -> None:
    write_rows(GOOD)
    result = cli("synth", *arguments)
    assert result.exit_code == code, result.stderr
    assert [w for w in words if w not in result.stderr] == []
    assert "Traceback" not in result.stderr
    assert not Path("out/audio").exists()
    if code == 2:
        assert not Path("out").exists()


def test_an_engine_error_exits_5(cli: Any, write_rows: Rows) -> None:
    result = cli("synth", write_rows({"text": "break"}), "-o", "out")
    assert result.exit_code == 5
    assert "the device fell off" in result.stderr


def test_a_bug_keeps_its_traceback(
    cli: Any, write_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(ttsbatch.pipeline, "synthesize", broken)
    with pytest.raises(ZeroDivisionError, match="ours"):
        cli("synth", write_rows(GOOD), "-o", "out")


def test_a_changed_setting_refuses_to_resume(cli: Any, write_rows: Rows) -> None:
    corpus = write_rows(GOOD)
    cli("synth", corpus, "-o", "out")
    assert cli("synth", corpus, "-o", "out", "--seed", "4").exit_code in (2, 6)


def test_another_model_is_named_and_so_is_the_option_that_goes_back(
    cli: Any, write_rows: Rows
) -> None:
    corpus = write_rows(GOOD)
    cli("synth", corpus, "-o", "out")
    tiny = Path(__file__).parents[1] / "data" / "qwen3_tts_tiny" / "custom-voice"
    other = ("synth", corpus, "-o", "out", "--model", tiny, "--voice", "Ryan")
    refused = cli(*other)
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert 'model was "hibari", now "custom-voice"; voice was not given, now "Ryan"' in said
    assert "Run with no --model and the old values to resume" in said
    assert "hash" not in said
    assert "sample-rate" not in said


def test_a_model_of_other_content_is_no_other_option(
    cli: Any, write_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_rows(GOOD)
    cli("synth", corpus, "-o", "out")
    card = ttsbatch.pipeline.open_card(None)
    changed = replace(card, content_hash="ab" * 32, sample_rate_hz=22_050)
    monkeypatch.setattr(ttsbatch.pipeline, "open_card", lambda _: changed)
    said = " ".join(cli("synth", corpus, "-o", "out").stderr.split())
    assert f'content of model "hibari" was {card.content_hash[:12]}, now abababababab' in said
    assert "Run with that model as it was to resume" in said
    assert "sample-rate" not in said


def test_flags_win_over_the_recipe(cli: Any, write_rows: Rows) -> None:
    write_rows(GOOD, {"id": "b", "text": "Good night."})
    Path("r.toml").write_text('corpus = "rows.jsonl"\nout = "here"\nlimit = 1\nseed = 3\n')
    assert cli("synth", "--recipe", "r.toml", "--limit", "2").exit_code == 0
    run = json.loads(Path("here/run.json").read_text("utf8"))
    assert len(Path("here/manifest.jsonl").read_text("utf8").splitlines()) == 2
    assert run["plan"]["rows"]["seed"] == 3


def test_an_unknown_recipe_key_is_an_error_with_the_nearest_name(
    cli: Any, write_rows: Rows
) -> None:
    write_rows(GOOD)
    Path("r.toml").write_text("temprature = 1\n")
    result = cli("synth", "rows.jsonl", "-o", "out", "--recipe", "r.toml")
    assert result.exit_code == 2
    assert "temperature" in result.stderr


def test_a_dry_run_writes_nothing(cli: Any, write_rows: Rows) -> None:
    result = cli("synth", write_rows(GOOD, {"id": "b"}), "-o", "out", "--dry-run")
    assert result.exit_code == 7
    assert "missing_text" in result.stdout
    assert not Path("out").exists()


def test_a_dry_run_counts_what_is_finished_and_refuses_what_the_run_would(
    cli: Any, write_rows: Rows
) -> None:
    corpus = write_rows(GOOD, {"id": "b", "text": "Good night."})
    cli("synth", corpus, "-o", "out", "--limit", "1")
    found = json.loads(cli("synth", corpus, "-o", "out", "--dry-run", "--json").stdout)
    assert found["rows"] == {"in": 2, "good": 2, "rejected": 0, "finished": 1, "to_make": 1}
    cli("synth", corpus, "-o", "out")
    table = cli("synth", corpus, "-o", "out", "--dry-run").stdout.splitlines()
    assert [line.split() for line in table[2:4]] == [["finished", "2"], ["to", "make", "0"]]
    assert cli("synth", corpus, "-o", "out", "--dry-run", "--seed", "1").exit_code == 2
    Path("foreign").mkdir()
    Path("foreign/thesis.txt").touch()
    assert cli("synth", corpus, "-o", "foreign", "--dry-run").exit_code == 6


def test_rows_come_from_stdin(cli: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ttsbatch", "synth", "-", "-o", "out", "--quiet"]
    rows = json.dumps(GOOD) + "\n"
    done = subprocess.run(command, input=rows, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(Path("out/manifest.jsonl").read_text("utf8").splitlines()) == 1


def test_ctrl_c_finishes_what_is_in_flight_exits_130_and_the_next_run_makes_the_rest(
    cli: Any, write_rows: Rows
) -> None:
    text = "The slow boat to the island leaves at nine, and comes back before the storm. " * 4
    write_rows(*({"id": f"r{i}", "text": text} for i in range(60)))
    command = [sys.executable, "-m", "ttsbatch", "synth", "rows.jsonl", "-o", "out"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until(lambda: list(Path("out").glob("audio/*/*.wav")), 60)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "resumes" in stderr
    made = Path("out/manifest.jsonl").read_text("utf8").splitlines()
    assert 0 < len(made) < 60
    assert cli("synth", "rows.jsonl", "-o", "out").exit_code == 0
    assert len(Path("out/manifest.jsonl").read_text("utf8").splitlines()) == 60


@pytest.mark.parametrize("command", ["synth", "redo"])
def test_a_signal_is_told_of_through_the_progress_that_is_on_the_screen(
    cli: Any, write_rows: Rows, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    corpus, watcher = write_rows(GOOD), Watcher()
    cli("synth", corpus, "-o", "out")

    def interrupt(segment: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def open_speaker(
        card: Any, plan: Any, keep_codes: bool, demand: Demand, standby: None
    ) -> FakeSpeaker:
        return FakeSpeaker(card, on_spoken=interrupt)

    monkeypatch.setattr(ttsbatch.pipeline, "open_speaker", open_speaker)
    monkeypatch.setattr(ttsbatch.progress, "make_progress", lambda stream, quiet: watcher)
    arguments = [corpus, "-o", "other"] if command == "synth" else ["out", "--id", "a"]
    result = cli(command, *arguments)
    assert result.exit_code == 130
    assert watcher.messages == ["ttsbatch: finishing the rows in flight; once more ends at once"]
    assert "in flight" not in result.stderr


def test_a_row_without_any_audio_is_tried_again_and_then_fails(
    cli: Any, write_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests import fake_speaker

    monkeypatch.setattr(fake_speaker, "RATE_HZ", 0)
    assert cli("synth", write_rows(GOOD), "-o", "out").exit_code == 7
    failure = json.loads(Path("out/failures.jsonl").read_text("utf8"))
    assert (failure["id"], failure["stage"], failure["reason"]) == ("a", "quality", "quality")
    assert failure["message"] == "no audio in 3 attempts"
    assert not Path("out/audio").exists()
