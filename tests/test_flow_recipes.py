"""The VoxCPM2 benches of `recipes/bench` on the tiny checkpoint, as they will run on a GPU."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from recipes.bench.flow_launches import tally
from recipes.bench.flow_plain import Compiled, in_plain_torch
from tests.parity.voxcpm2 import ATOL, FIXTURE
from tests.parity.voxcpm2_rows import job, model, run, segment
from ttsbatch.models import open_card

Bench = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Runs a script and gives the lines of its JSON file by their names."""

    def of(name: str, *options: str) -> dict[str, dict[str, Any]]:
        file = tmp_path / "lines.json"
        arguments = ["--model", str(FIXTURE), "--device", "cpu", "--json", str(file), *options]
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        import_module(f"recipes.bench.{name}").main()
        values = json.loads(file.read_text("utf8"))
        assert values["about"]["device"] == "cpu"
        return {line.pop("name"): line for line in values["lines"]}

    return of


STEPS = ("--slots", "2", "--frames", "1", "--context", "64", "--steps", "3")


def test_every_way_to_run_a_patch_gives_a_figure_and_the_same_patch(bench: Bench) -> None:
    lines = bench("flow_steps", *STEPS, "--backend", "eager")
    ways = {
        "our kernels, eager",
        "plain torch",
        "plain torch, layers compiled",
        "plain torch, LocDiT's forward compiled",
        "plain torch, LocDiT's solver compiled",
    }
    alone = {f"LocDiT: {way}" for way in (*ways, "our kernels, eager, row by row")}
    assert lines.keys() == {f"step: {way}" for way in ways} | alone
    assert all(line["ms"] > 0 for line in lines.values())
    assert all(lines[name]["off"] < 1e-4 for name in alone)


def test_a_compiler_that_fails_or_hangs_leaves_the_other_lines(bench: Bench) -> None:
    @torch._dynamo.register_backend
    def hangs(*_: Any) -> None:
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 600
        with suppress(TimeoutError):  # as torch does at some moments
            signal.raise_signal(signal.SIGALRM)  # as the timer does, ten minutes later

    @torch._dynamo.register_backend
    def fails(*_: Any) -> None:
        raise RuntimeError("no such kernel")

    for backend, words in (("hangs", "took more than 600 s"), ("fails", "no such kernel")):
        options = ("--backend", backend, "--limit", "600", "--compiled", "forward", "nothing")
        lines = bench("flow_steps", *STEPS, *options)
        failed = {name for name, line in lines.items() if "failed" in line}
        assert failed == {
            f"{x}: plain torch, LocDiT's forward compiled" for x in ("step", "LocDiT")
        }
        assert all(words in lines[name]["failed"] for name in failed)
        assert lines["LocDiT: plain torch"]["ms"] > 0


@pytest.mark.parametrize("compiled", ["nothing", "layers"])
def test_the_plain_networks_speak_as_the_model_does(compiled: Compiled) -> None:
    said = [segment(name) for name in ("short", "long", "coarse")]
    expected = run(model(), [job(s) for s in said], 3)
    with in_plain_torch(model(), compiled, "eager"):
        found = run(model(), [job(s) for s in said], 3)
    assert found.keys() == expected.keys()
    for name, row in expected.items():
        torch.testing.assert_close(found[name].frames, row.frames, atol=ATOL, rtol=0)


def test_launches_and_waits_are_told_apart_by_their_names() -> None:
    host = ["cudaLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC", "cudaGraphLaunch"]
    host += ["cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMemcpyAsync"]
    host += ["aten::mm", "cudaEventRecord", "cudaEventQuery"]
    device = ["_attend_kernel", "gemm", "Memcpy DtoH (Device -> Pinned)", "Memset (Device)"]
    counts = tally([*((name, False) for name in host), *((name, True) for name in device)])
    assert counts == {
        "kernels": 2,
        "launches": 3,
        "graph launches": 1,
        "copies": 2,
        "waits": 3,
        "operations": 1,
    }


def test_operations_of_a_step_are_counted_and_a_loop_on_a_cpu_waits_for_nothing(
    bench: Bench,
) -> None:
    lines = bench("flow_launches", *STEPS, "--seconds", "0.5")
    assert lines.keys() == {"per step, eager", "the loop, eager"}
    assert lines["per step, eager"]["operations"] > 500
    loop = lines["the loop, eager"]
    assert (loop["steps"], loop["waits"], loop["synchronizing calls"]) == (3, 0, 0)


def test_a_row_alone_is_timed_by_the_patch_at_every_length(bench: Bench) -> None:
    options = ("--seconds", "1,2", "--contexts", "64,4000", "--chars-per-s", "3", "--repeats", "1")
    lines = bench("flow_lengths", *options)
    assert [lines[n]["patches"] for n in ("1 s", "2 s")] == [6, 11]
    for name in ("1 s", "2 s"):
        line = lines[name]
        assert line["ms"] == pytest.approx(line["ar"] + line["codec"])
    assert lines["longest over shortest time per patch"]["spread"] >= 0
    assert lines["step alone"]["context"] == 64


def test_a_row_longer_than_the_model_allows_is_said_before_it_is_timed(bench: Bench) -> None:
    with pytest.raises(SystemExit, match=r"180 s takes .* positions; voxcpm2_tiny has 512"):
        bench("flow_lengths", "--seconds", "180", "--contexts", "64")


def test_the_official_size_has_room_for_three_minutes_and_their_text() -> None:
    card = open_card("random:voxcpm2")
    patches = 180 * card.frame_rate_hz
    assert patches < card.max_frames
    assert patches + 180 * 14 < card.config.max_positions  # a position for every character
