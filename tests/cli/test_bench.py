"""`ttsbatch bench` on the tiny checkpoints: every part gives a figure, no slow path passes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from tests.parity.qwen3 import FIXTURE, model
from ttsbatch.bench import profiles
from ttsbatch.bench import workload as workloads
from ttsbatch.bench.end_to_end import bench_end_to_end
from ttsbatch.bench.parts import bench_codec, bench_prefill, bench_step, jobs_of
from ttsbatch.bench.run import PARTS
from ttsbatch.bench.timing import Timing, check_paths
from ttsbatch.bench.workload import LONGEST_S, MEAN_S, Variant, clip, lengths_s, voices_of, workload
from ttsbatch.cli import bench as command
from ttsbatch.cli.app import app
from ttsbatch.errors import EngineError, PlanError
from ttsbatch.models import FAMILIES, open_card

CUSTOM_VOICE, BASE, VOICE_DESIGN = "custom-voice", "base", "voice-design"


def bench(checkpoint: str, *options: str) -> Result:
    arguments = ["bench", "--model", str(FIXTURE / checkpoint), "--device", "cpu", "--json"]
    return CliRunner().invoke(app, [*arguments, *options])


@pytest.fixture
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload of rows of half a second."""
    monkeypatch.setattr(workloads, "LONGEST_S", workloads.SHORTEST_S)


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize(
    ("checkpoint", "options", "names"),
    [
        (CUSTOM_VOICE, ["step", "--slots", "2", "--slots", "3", "--context", "64"], ["step"] * 2),
        (BASE, ["step", "--slots", "2", "--context", "64"], ["step"]),
        (CUSTOM_VOICE, ["ar", "--slots", "2", "--utterances", "2"], ["ar"]),
        (
            BASE,
            ["prefill", "--utterances", "2", "--references", "2"],
            ["prefill 128", "prefill 256"],
        ),
        (BASE, ["speaker", "--references", "2"], ["speaker", "codec encoder"]),
    ],
)
def test_each_part_gives_a_figure(checkpoint: str, options: list[str], names: list[str]) -> None:
    result = bench(checkpoint, "--part", *options)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["about"]["device"] == "cpu"
    assert [t["name"] for t in found["timings"]] == names
    for timing in found["timings"]:
        assert timing["audio_seconds"] > 0
        assert timing["audio_seconds_per_second"] == pytest.approx(
            timing["audio_seconds"] / timing["seconds"]
        )


def test_the_codec_is_timed_on_the_samples_that_it_makes() -> None:
    timing = bench_codec(model("custom-voice"), frames=5, batch=2)
    assert timing.name == "codec 2x5"
    assert timing.audio_seconds == pytest.approx(10 / 12.5)


@pytest.mark.usefixtures("short_rows")
def test_end_to_end_is_the_command_itself_and_says_how_it_was_run(tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    result = bench(
        CUSTOM_VOICE,
        "--part",
        "e2e",
        "--slots",
        "2",
        "--utterances",
        "1",
        "--timeline",
        str(timeline),
    )
    assert result.exit_code == 0, result.output
    (timing,) = json.loads(result.stdout)["timings"]
    assert timing["command"].startswith("ttsbatch synth bench.jsonl -o out --model ")
    assert "--slots 2 --device cpu --dtype float32 --retries 0 --quiet" in timing["command"]
    report = timing["report"]
    assert report["utterances"]["made"] == 1
    assert timing["audio_seconds"] == pytest.approx(report["audio_seconds"])
    assert timing["seconds"] == report["wall_seconds"]
    stages = {e["name"] for e in json.loads(timeline.read_text("utf8"))["traceEvents"]}
    assert {"prepare", "prefill", "decode", "codec", "encode", "write"} <= stages


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    rows = workload(1, voices=[{"voice": "nobody"}])
    with pytest.raises(EngineError, match="synth ended with exit code 7"):
        bench_end_to_end(tmp_path, rows, {"--model": str(FIXTURE / CUSTOM_VOICE)})


@pytest.mark.parametrize("checkpoint", ["custom-voice", "base", "voice-design"])
def test_the_step_runs_at_the_context_that_was_asked_for(checkpoint: str, tmp_path: Path) -> None:
    loaded = model(checkpoint)
    (voice, *_) = voices_of(loaded.card, None, 1, tmp_path)
    timing = bench_step(loaded, 2, 100, voice, tmp_path, frames=4)
    assert timing.extra["context"] == pytest.approx(100, abs=1)


def test_a_context_below_the_prompt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="--context leaves 4 positions"):
        bench_step(model("custom-voice"), 2, 20, {"voice": "ryan"}, tmp_path, frames=32)


def test_a_prefill_pass_is_as_full_as_prompts_fit() -> None:
    loaded = model("custom-voice")
    voice = loaded.card.voices[0]
    rows = workload(40, voices=[{"voice": voice}])
    lengths = [j.prompt.num_positions for j in jobs_of(loaded, rows)]
    for timing in bench_prefill(loaded, rows):
        size, count = int(timing.name.split()[1]), int(timing.extra["rows"])
        assert sum(lengths[:count]) <= size < sum(lengths[: count + 1])


@pytest.mark.parametrize(
    ("checkpoint", "variant", "fields"),
    [
        (CUSTOM_VOICE, None, {"voice"}),
        (VOICE_DESIGN, "named", {"instruct"}),
        (BASE, None, {"ref_audio", "ref_text"}),
        (BASE, "cloning", {"ref_audio", "ref_text"}),
        (BASE, "embedding", {"ref_audio"}),
    ],
)
def test_a_variant_gives_rows_the_voices_that_it_names(
    checkpoint: str, variant: Variant | None, fields: set[str], tmp_path: Path
) -> None:
    voices = voices_of(open_card(str(FIXTURE / checkpoint)), variant, 3, tmp_path)
    assert {name for v in voices for name in v} == fields
    if "ref_audio" in fields:
        assert len({v["ref_audio"] for v in voices}) == 3
        rows = workload(5, voices=voices)
        assert [r["ref_audio"] for r in rows[:4]] == [voices[i]["ref_audio"] for i in (0, 1, 2, 0)]


@pytest.mark.parametrize(
    "options",
    [
        [BASE, "--variant", "named"],
        [CUSTOM_VOICE, "--variant", "cloning"],
        [CUSTOM_VOICE, "--part", "speaker"],
        [CUSTOM_VOICE, "--part", "ar", "--kernels"],
        [CUSTOM_VOICE, "--part", "step", "--timeline", "t.json"],
    ],
)
def test_an_option_that_nothing_has_a_use_for_is_refused(options: list[str]) -> None:
    assert bench(*options).exit_code == 2


def test_a_model_without_parts_is_refused() -> None:
    assert CliRunner().invoke(app, ["bench", "--model", "hibari"]).exit_code == 2


def test_a_trace_and_a_table_of_kernels_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "TRACED_FRAMES", 1)
    monkeypatch.setattr(profiles, "TABLED_FRAMES", 1)
    trace = tmp_path / "trace.json"
    step = ["--part", "step", "--slots", "2", "--context", "64"]
    result = bench(CUSTOM_VOICE, *step, "--trace", str(trace), "--kernels")
    assert result.exit_code == 0, result.output
    assert json.loads(trace.read_text("utf8"))["traceEvents"]
    found = json.loads(result.stdout)
    kernels = found["kernels"]
    assert [k["us"] for k in kernels] == sorted((k["us"] for k in kernels), reverse=True)
    assert next(k for k in kernels if k["name"] == "aten::mm")["calls"] >= 1


def test_the_parts_of_the_command_are_those_that_there_are() -> None:
    assert [p.value for p in command.Part] == [*PARTS, "all"]


def timing(**slow_paths: int) -> Timing:
    return Timing("ar", 64, 1.0, 1.0, {}, slow_paths)


def test_a_slow_path_fails_the_bench() -> None:
    check_paths([timing(), timing(eager_steps=0)])
    with pytest.raises(EngineError, match="ar with 64 slots: 3 eager_steps; expected none") as e:
        check_paths([timing(eager_steps=0), timing(eager_steps=3)])
    assert e.value.exit_code == 5


def test_what_ran_eagerly_is_counted(tmp_path: Path) -> None:
    loaded = model("custom-voice")  # on a CPU all does
    step = bench_step(loaded, 2, 64, {"voice": loaded.card.voices[0]}, tmp_path, frames=4)
    assert step.slow_paths["eager_steps"] == 4 + 2  # the prefill and the frame before them too
    assert bench_codec(loaded, 2, 1).slow_paths["codec_graph_misses"] > 0


def test_the_encoders_alone_are_those_of_the_model() -> None:
    loaded = model("base")
    load = FAMILIES["qwen3_tts"].load_encoders
    assert load is not None
    encoders = load(loaded.card, torch.device("cpu"))
    clips = [torch.from_numpy(clip(n, 1.0)) for n in range(2)]
    assert loaded._encoders is not None
    assert torch.equal(encoders.embed(clips), loaded._encoders.embed(clips))
    assert len({x.numpy().tobytes() for x in encoders.encode(clips)}) == 2


def test_the_encoders_of_random_weights_need_no_checkpoint() -> None:
    card = open_card("random:qwen3-tts-0.6b-base")
    speaker = replace(card.config.speaker, channels=(16, 16, 16, 16, 48), se_channels=8)
    small = replace(card, config=replace(card.config, speaker=speaker))
    load = FAMILIES["qwen3_tts"].load_encoders
    assert load is not None
    vectors = load(small, torch.device("cpu")).embed([torch.from_numpy(clip(0, 0.5))])
    assert vectors.shape == (1, speaker.enc_dim)
    assert vectors.isfinite().all()


def test_the_workload_has_the_stated_lengths() -> None:
    lengths = lengths_s(2048)
    assert lengths.mean() == pytest.approx(MEAN_S, rel=0.05)
    assert lengths.max() <= LONGEST_S


def test_clips_are_speech_loud_and_distinct() -> None:
    clips: list[Any] = [clip(n, 1.0) for n in range(2)]
    assert clips[0].shape == (24_000,)
    assert clips[0].dtype == np.float32
    assert 0.05 < np.abs(clips[0]).max() <= 1
    assert not np.array_equal(*clips)
