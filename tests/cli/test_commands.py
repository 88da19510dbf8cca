"""The other commands: help, version, check, models, voices, report."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ttsbatch import __version__, recipe
from ttsbatch.cli import tables
from ttsbatch.cli.app import app
from ttsbatch.cli.check import audio_length, disk_size
from ttsbatch.models.known import KNOWN_MODELS

Rows = Callable[..., Path]


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.parametrize("command", [["--help"], ["synth", "--help"], ["models"], ["voices"]])
def test_a_light_command_imports_neither_torch_nor_pyarrow(command: list[str]) -> None:
    script = (
        "import sys; from ttsbatch.cli.app import app\n"
        f"try: app({command})\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'pyarrow', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_check_imports_no_torch(write_rows: Rows) -> None:
    script = (
        "import sys; from ttsbatch.cli.app import app\n"
        f"try: app(['check', {str(write_rows({'text': 'Yes.'}))!r}, '--quiet'])\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "False"


def test_help_is_quick() -> None:
    def cpu_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = cpu_s()
    subprocess.run([sys.executable, "-m", "ttsbatch", "--help"], capture_output=True, check=True)
    # Half a second on an idle machine. Processor time, since a busy one makes any clock late.
    assert cpu_s() - before < 0.5


def test_the_module_and_the_console_script_print_the_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ttsbatch", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"ttsbatch {__version__}\n"
    assert run("--version").stdout == done.stdout


def test_without_a_command_there_is_the_help_and_exit_2() -> None:
    done = subprocess.run([sys.executable, "-m", "ttsbatch"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert all(f"\n  {name} " in done.stderr for name in ("synth", "check", "report", "verify"))


def test_every_recipe_field_is_an_option_of_synth() -> None:
    text = run("synth", "--help").stdout
    for name in set(recipe.FIELDS) - {"corpus"}:
        assert f"--{name.replace('_', '-')}" in text, name


def test_check_finds_the_rejects_of_synth(write_rows: Rows) -> None:
    corpus = write_rows(
        {"id": "a", "text": "Yes."}, {"id": "a", "text": "Again."}, {"text": 3}, "nonsense"
    )
    result = run("check", corpus)
    assert result.exit_code == 7
    assert f"{corpus}:2:" in result.stdout
    assert all(r in result.stdout for r in ("duplicate_id", "wrong_type", "invalid_json"))
    found = json.loads(run("check", corpus, "--json", "--quiet").stdout)
    assert found["rows"] == {"in": 4, "good": 1, "rejected": 3}
    assert {r: v["count"] for r, v in found["rejects"].items()} == {
        "duplicate_id": 1,
        "wrong_type": 1,
        "invalid_json": 1,
    }


def test_check_and_synth_reject_what_the_embedded_model_cannot_read_without_loading_it(
    write_rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr("ttsbatch.models.hibari.model.load", load)
    corpus = write_rows({"id": "zh", "text": "今天天气很好。"}, {"id": "ko", "text": "안녕하세요."})
    found = json.loads(run("check", corpus, "--json", "--quiet").stdout)
    assert found["rows"] == {"in": 2, "good": 0, "rejected": 2}
    made = run("synth", corpus, "-o", tmp_path / "out", "--json", "--quiet")
    assert made.exit_code == run("check", corpus).exit_code == 7
    rows = json.loads(made.stdout)["utterances"]
    assert (rows["made"], rows["rejected"], rows["failed"]) == (0, 2, 0)
    failures = (tmp_path / "out" / "failures.jsonl").read_text("utf8").splitlines()
    assert {json.loads(line)["reason"] for line in failures} == {"unsupported_language"}
    assert set(found["rejects"]) == {"unsupported_language"}


def test_check_estimates_audio_time_and_disk(write_rows: Rows) -> None:
    text = "The lamp on the hill burned through the whole of that long winter night."
    corpus = write_rows(*({"id": f"r{i}", "text": text} for i in range(100)))
    found = json.loads(run("check", corpus, "--json", "--quiet").stdout)
    assert 300 < found["audio_seconds"] < 700
    assert 0 < found["wall_seconds"] < found["audio_seconds"]
    assert found["disk_bytes"] > found["audio_seconds"] * 48_000


def test_check_of_a_good_corpus_exits_0(write_rows: Rows) -> None:
    assert run("check", write_rows({"text": "Yes."})).exit_code == 0


@pytest.mark.parametrize("model", ["hibari", "random:qwen3-tts-0.6b-base", "random:voxcpm2"])
@pytest.mark.parametrize("device", ["foo", "cuda:", "cuda:0,0", "cuda:²"])
def test_name_of_no_device_is_a_bad_option_of_every_model(
    write_rows: Rows, model: str, device: str
) -> None:
    result = run("check", write_rows({"text": "Yes."}), "--model", model, "--device", device)
    assert result.exit_code == 2
    assert f"--device is {device!r}; expected auto, cpu, cuda" in result.stderr


def test_check_takes_devices_that_this_machine_lacks(write_rows: Rows) -> None:
    corpus = write_rows({"text": "Yes.", "language": "en", "ref_audio": "r.wav"})
    for device in ("cuda", "cuda:5", "cuda:0,7"):
        result = run("check", corpus, "--model", "random:voxcpm2", "--device", device)
        assert "device" not in result.stderr


def test_small_corpora_are_told_in_small_units(write_rows: Rows) -> None:
    text = run("check", write_rows({"text": "Good morning to all of you."})).stdout
    found = dict(line.split("  ", 1) for line in text.splitlines())
    assert re.fullmatch(r" *[1-3]\.\d s \(about\)", found["audio"])
    assert found["wall time"] == "under 1 s"
    assert re.fullmatch(r" *\d\d+\.\d kB \(about\)", found["disk"])


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0 s"), (99.94, "99.9 s"), (270, "4.5 min"), (24400, "6.78 h")]
)
def test_length_of_audio(seconds: float, text: str) -> None:
    assert audio_length(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(4200, "4.2 kB"), (123_400_000, "123.4 MB"), (5_678_000_000, "5.678 GB")],
)
def test_size_on_the_disk(num_bytes: int, text: str) -> None:
    assert disk_size(num_bytes) == text


@pytest.mark.parametrize(
    "command", [["models"], ["voices", "random:voxcpm2"], ["voices", "hibari"]], ids=" ".join
)
def test_tables_fit_a_terminal_of_80_columns_and_break_no_word(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = run(*command).stdout
    monkeypatch.setattr(tables, "_columns", lambda: 80)
    shown = run(*command).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.split() == piped.split()


@pytest.mark.parametrize(
    "command", [c.name or c.callback.__name__ for c in app.registered_commands]
)
def test_help_at_80_columns_cuts_no_option(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert "…" not in done.stdout


def test_models_lists_licence_size_and_rate() -> None:
    text = run("models").stdout
    for model in KNOWN_MODELS:
        line = next(row for row in text.splitlines() if row.startswith(f"{model.name} "))
        assert model.licence in line
        assert f"{model.sample_rate_hz:,} Hz" in line
    listed = json.loads(run("models", "--json").stdout)
    assert [m["name"] for m in listed] == [m.name for m in KNOWN_MODELS]


def test_voices_of_the_embedded_model() -> None:
    assert "heart" in run("voices").stdout
    card = json.loads(run("voices", "hibari", "--json").stdout)
    assert (card["voices"], card["languages"], card["options"]) == (["heart"], ["en"], [])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("qwen3-tts-1.7b-base", "each row needs a ref_audio"),
        ("qwen3-tts-1.7b-voicedesign", "a row can describe one in instruct, else the model"),
        ("voxcpm2", "a row can describe one in instruct or clone a ref_audio, else the model"),
    ],
)
def test_voices_of_a_model_without_names_says_where_a_voice_comes_from(
    model: str, said: str
) -> None:
    assert f"voices       none of its own; {said}" in run("voices", f"random:{model}").stdout


def test_voices_of_an_unknown_model_exits_4() -> None:
    result = run("voices", "./nowhere")
    assert result.exit_code == 4
    assert "./nowhere" in result.stderr


def test_report_without_a_run_exits_6(tmp_path: Path) -> None:
    result = run("report", tmp_path)
    assert result.exit_code == 6
    assert "report.json" in result.stderr


def test_report_prints_the_report_of_a_run(write_rows: Rows, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("synth", write_rows({"text": "Yes, please."}), "-o", out, "--quiet").exit_code == 0
    assert "RTF" in run("report", out).stdout
    assert run("report", out, "--json").stdout == (out / "report.json").read_text("utf8")
