"""The bench scripts that can run without a GPU do."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_audiovae_bench_tells_closeness_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ROOT / "tests" / "data" / "voxcpm2_tiny"
    options = ["--device", "cpu", "--model", str(model), "--shapes", "2x3", "--encode", "1x2"]
    monkeypatch.setattr(sys, "argv", ["audiovae.py", *options])
    runpy.run_path(str(ROOT / "recipes" / "bench" / "audiovae.py"), run_name="__main__")
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
