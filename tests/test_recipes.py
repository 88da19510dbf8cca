"""The bench scripts that can run without a GPU do."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from recipes.bench import audiovae, cost_per_row, plot

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "recipes" / "bench"
NAMES = sorted(file.stem for file in BENCH.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_bench_is_imported_as_part_of_its_package_and_says_how_it_is_run(name: str) -> None:
    """By the name that its usage lines run it by; siblings as top-level modules aren't found."""
    module = importlib.import_module(f"recipes.bench.{name}")
    about = str(module.__doc__)
    commands = re.findall(r"^    (python.*)", about, flags=re.M)
    assert bool(commands) == hasattr(module, "main")
    assert all(c.split(maxsplit=3)[:3] == ["python", "-m", module.__name__] for c in commands)


def test_the_audiovae_bench_tells_closeness_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ROOT / "tests" / "data" / "voxcpm2_tiny"
    options = ["--device", "cpu", "--model", str(model), "--shapes", "2x3", "--encode", "1x2"]
    monkeypatch.setattr(sys, "argv", ["audiovae", *options])
    audiovae.main()
    out = capsys.readouterr().out
    said = re.findall(r"(decode|encode) .*(fp32|fp16|bf16) .* SNR +([\d.]+|inf) dB", out)
    assert [line[:2] for line in said] == [
        (what, kind) for what in ("decode", "encode") for kind in ("fp32", "fp16", "bf16")
    ]
    for exact, half, brain in (said[:3], said[3:]):
        assert exact[2] == "inf"
        assert float(half[2]) > float(brain[2]) + 10
    launches = re.findall(r"GB/s  (\w+)", out)
    assert launches[-1] == "last_conv"
    assert launches.count("depthwise_conv") == 3 * (launches.count("causal_conv") - 1)


def test_the_cost_of_a_row_to_its_run_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    corpus = tmp_path / "rows.jsonl"
    rows = [{"text": f"row {n}", "voice": "ryan", "max_seconds": 0.4} for n in range(5)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf8")
    monkeypatch.setattr(sys, "argv", ["cost_per_row", str(corpus)])
    cost_per_row.main()
    out = capsys.readouterr().out
    assert out.startswith("5 rows in ")
    costs = re.findall(r"^([\d.]+) ms .*a row in (the run|encode|write)", out, flags=re.M)
    assert [where for _, where in costs] == ["the run", "encode", "write"]
    assert all(float(ms) > 0 for ms, _ in costs)


def test_every_result_is_a_report_with_what_made_it_and_has_a_bar() -> None:
    keys = {"corpus", "command", "commit", "versions", "device", "report"}
    speeds = {}
    for name, label in plot.LABELS.items():
        values = json.loads((plot.RESULTS / f"{name}.json").read_text("utf8"))
        assert values.keys() == keys
        speeds[label] = values["report"]["audio_seconds_per_second"]
    assert {bar.label: bar.value for bar in plot.our_bars()} == speeds


def test_the_chart_shows_the_results_as_they_are() -> None:
    chart = (plot.RESULTS / "throughput.svg").read_text("utf8")
    assert chart == plot.draw(plot.all_bars())
