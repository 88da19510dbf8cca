"""`ttsbatch bench` on the tiny VoxCPM2: every part gives a figure, in patches of 0.16 s."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from tests.parity.voxcpm2 import CPU, FIXTURE
from tests.parity.voxcpm2_rows import model
from ttsbatch.bench import profiles
from ttsbatch.bench import workload as workloads
from ttsbatch.bench.parts import bench_codec, bench_codecs, bench_step
from ttsbatch.bench.workload import clip, voices_of, workload
from ttsbatch.cli.app import app
from ttsbatch.engine.decode import DecodeLoop
from ttsbatch.engine.rows import Rows
from ttsbatch.errors import PlanError
from ttsbatch.models import FAMILIES, open_card
from ttsbatch.models.clips import read_clip

PATCH_S = 0.16


def bench(*options: str) -> Result:
    arguments = ["bench", "--model", str(FIXTURE), "--device", "cpu", "--json", "--utterances", "2"]
    return CliRunner().invoke(app, [*arguments, "--references", "2", "--slots", "2", *options])


@pytest.fixture
def _short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload of rows of half a second."""
    monkeypatch.setattr(workloads, "LONGEST_S", workloads.SHORTEST_S)


@pytest.mark.usefixtures("_short_rows")
@pytest.mark.parametrize("variant", [[], ["--variant", "cloning"]])
@pytest.mark.parametrize(
    ("part", "names"),
    [("step", ["step"]), ("prefill", None), ("ar", ["ar"]), ("speaker", ["codec encoder"])],
)
def test_each_part_gives_a_figure(part: str, names: list[str] | None, variant: list[str]) -> None:
    result = bench("--part", part, "--context", "128", *variant)
    assert result.exit_code == 0, result.output
    timings = json.loads(result.stdout)["timings"]
    assert [t["name"] for t in timings] == names or timings[0]["name"].startswith("prefill ")
    assert all(t["audio_seconds"] > 0 < t["audio_seconds_per_second"] for t in timings)


@pytest.mark.usefixtures("_short_rows")
def test_end_to_end_makes_whole_patches() -> None:
    result = bench("--part", "e2e")
    assert result.exit_code == 0, result.output
    (timing,) = json.loads(result.stdout)["timings"]
    assert timing["report"]["utterances"]["made"] == 2
    patches = timing["audio_seconds"] / PATCH_S
    assert patches == pytest.approx(round(patches))
    assert 2 <= patches <= 6


def test_the_codec_is_timed_by_patches_at_the_lengths_that_the_engine_has() -> None:
    timing = bench_codec(model(), frames=2, batch=3)
    assert timing.audio_seconds == pytest.approx(6 * PATCH_S)


def test_the_codec_is_timed_on_short_middling_and_the_longest_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed: list[tuple[int, int]] = []
    monkeypatch.setattr(
        "ttsbatch.bench.parts.bench_codec", lambda _, frames, batch: timed.append((frames, batch))
    )
    bench_codecs(model())
    assert timed == [(9, 5), (18, 2), (45, 1)]


def test_no_row_of_the_step_is_over_while_frames_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    active: list[torch.Tensor] = []
    time_frames = DecodeLoop.time_frames

    def watched(loop: DecodeLoop, *arguments: Any) -> float:
        seconds = time_frames(loop, *arguments)
        rows: Rows = loop._rows
        active.append(rows.finish == 2)  # ended by its cap
        return seconds

    monkeypatch.setattr(DecodeLoop, "time_frames", watched)
    timing = bench_step(model(), 2, 64, {}, tmp_path, frames=40)
    assert timing.audio_seconds == pytest.approx(2 * 40 * PATCH_S)
    assert timing.extra["context"] == pytest.approx(64, abs=1)
    assert not active[0].any()


def test_a_context_beyond_the_positions_of_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="--context is 500; voxcpm2_tiny has 512 positions"):
        bench_step(model(), 2, 500, {}, tmp_path)


def test_a_table_of_operations_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "TABLED_FRAMES", 1)
    kernels = {k.name: k for k in profiles.kernel_table(model(), 1, 64, {}, tmp_path)}
    assert kernels["aten::mm"].calls > 9 * model().config.dit.num_layers


@pytest.mark.parametrize(
    ("variant", "fields"),
    [
        (None, set()),
        ("named", set()),
        ("cloning", {"ref_audio", "ref_text"}),
        ("embedding", {"ref_audio"}),
    ],
)
def test_a_variant_gives_rows_the_voices_that_it_names(
    variant: Any, fields: set[str], tmp_path: Path
) -> None:
    voices = voices_of(model().card, variant, 2, tmp_path)
    assert {name for v in voices for name in v} == fields
    assert len(workload(2, voices=voices)) == 2


def test_the_encoder_alone_is_that_of_the_model(tmp_path: Path) -> None:
    load = FAMILIES["voxcpm2"].load_encoders
    assert load is not None
    encoders = load(model().card, CPU)
    assert encoders.sample_rate_hz == 16_000
    assert list(encoders.parts()) == ["codec encoder"]  # there are no voice vectors
    whole = torch.from_numpy(read_clip(str(FIXTURE / "audio" / "ref.wav"), 16_000))
    clips = [whole, whole[:5000], whole[:5121]]
    found: Any = encoders.parts()["codec encoder"](clips)
    assert [len(x) for x in found] == [-(-len(c) // 640) for c in clips]
    for samples, latents in zip(clips, found, strict=True):
        with torch.inference_mode():
            alone = model()._vae.encode(samples[None])[0]
        torch.testing.assert_close(latents, alone, atol=1e-4, rtol=0)


def test_the_encoder_of_random_weights_needs_no_checkpoint() -> None:
    load = FAMILIES["voxcpm2"].load_encoders
    assert load is not None
    card = replace(open_card("random:voxcpm2"), config=model().config)
    encoders = load(card, CPU)
    found: Any = encoders.parts()["codec encoder"]([torch.from_numpy(clip(0, 0.5, 16_000))])
    (latents,) = found
    assert latents.shape == (13, 64)
    assert latents.isfinite().all()


def test_a_model_that_clones_nothing_says_that_its_speaker_part_is_left_out() -> None:
    from tests.parity.qwen3 import FIXTURE as QWEN3
    from ttsbatch.bench.run import Request

    def request(folder: Path) -> Request:
        return Request(open_card(str(folder)), CPU, torch.float32, None, [1], 1, 64, None, 1)

    assert "clones nothing" in request(QWEN3 / "custom-voice").left_out["speaker"]
    assert request(QWEN3 / "base").left_out == request(FIXTURE).left_out == {}
    assert "speaker" in request(FIXTURE).parts
