"""The checks with a model of their own: what they measure, when they are refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

from tests.quality.tiny_onnx import constant, node, write_model
from tests.sinks.fake_run import utterance
from ttsbatch.errors import PlanError
from ttsbatch.plan import ChecksPlan, make_plan
from ttsbatch.quality import asr, extras
from ttsbatch.quality.asr import AsrCheck
from ttsbatch.quality.dnsmos import HOP_SAMPLES, WINDOW_SAMPLES, windows
from ttsbatch.quality.extras import Measured, Measuring, at_16_khz, check_extras, load_extras
from ttsbatch.quality.fbank import fbank
from ttsbatch.types import ShardRecord

RATE_HZ = 24_000


def take(samples: npt.NDArray[np.int16] | None = None, **row: Any) -> ShardRecord:
    if samples is None:
        samples = tone(200)
    checks = {"verdict": "pass", "reasons": [], "duration_s": 2.0, "expected_s": 2.0}
    u = replace(utterance("a"), **row)
    return ShardRecord(u, "0" * 32, samples, RATE_HZ, "stop", 0, 1, (), checks)


def tone(hz: float, seconds: float = 2.0, level: int = 8_000) -> npt.NDArray[np.int16]:
    time_s = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    return np.rint(level * np.sin(2 * np.pi * hz * time_s)).astype(np.int16)


def hears(text: str | None) -> AsrCheck:
    return AsrCheck(lambda wave, language: text, max_wer=0.3)


# -- speech recognition


def test_wrong_words_are_counted_and_many_are_a_flag() -> None:
    said = take(spoken_text="The ferry leaves the pier at noon, Sir.")
    assert hears("the ferry leaves the pier at noon sir").measure(said) == Measured(
        {"wer": 0.0, "transcript": "the ferry leaves the pier at noon sir"}
    )
    close = hears("The fairy leaves a pier at noon, sir!").measure(said)
    assert (close.values["wer"], close.reasons) == (0.25, ())
    other = hears("The ferry leaves.").measure(said)
    assert (other.values["wer"], other.reasons) == (0.625, ("wrong_words",))


def test_one_wrong_word_is_never_a_flag() -> None:
    assert hears("Know.").measure(take(spoken_text="No.")).reasons == ()
    assert hears("Oh no no.").measure(take(spoken_text="No.")).reasons == ("wrong_words",)


def test_a_language_that_the_model_does_not_know_is_not_judged() -> None:
    found = hears(None).measure(take(language="mi"))
    assert (found.values, found.reasons) == ({"wer": None, "transcript": None}, ())


def test_the_model_hears_16_khz_and_the_language_of_the_row() -> None:
    heard: list[tuple[int, np.dtype[Any], str]] = []

    def transcribe(wave: npt.NDArray[np.float32], language: str) -> str:
        heard.append((len(wave), wave.dtype, language))
        return ""

    AsrCheck(transcribe, 0.3).measure(take(language="de"))
    assert heard == [(32_000, np.dtype(np.float32), "de")]
    assert np.abs(at_16_khz(tone(200), RATE_HZ)).max() == pytest.approx(8_000 / 32_768, rel=0.02)


# -- DNSMOS


def mos_model(path: Path, *raw: float) -> Path:
    """Scores a window by `raw`, plus its mean."""
    nodes = [
        node("ReduceMean", ["input_1"], "mean", axes=[1], keepdims=1),
        node("Add", ["mean", "raw"], "scores"),
    ]
    shapes = ("input_1", ["batch", WINDOW_SAMPLES]), ("scores", ["batch", 3])
    return write_model(path, nodes, *shapes, [constant("raw", [1, 3], raw)])


def test_scores_are_mapped_by_the_published_polynomials(tmp_path: Path) -> None:
    mos_model(tmp_path / "sig_bak_ovr.onnx", 3.0, 3.5, 2.5)
    (check,) = load_extras(ChecksPlan(dnsmos=str(tmp_path), min_mos=2.5))
    found = check.measure(take(tone(200)))
    assert found.values["mos_sig"] == pytest.approx(
        -0.08397278 * 9 + 1.22083953 * 3 + 0.0052, abs=2e-3
    )
    assert found.values["mos_bak"] == pytest.approx(
        -0.13166888 * 12.25 + 1.60915514 * 3.5 - 0.39604546, abs=2e-3
    )
    assert found.values["mos_ovr"] == pytest.approx(
        -0.06766283 * 6.25 + 1.11546468 * 2.5 + 0.04602535, abs=2e-3
    )
    assert found.reasons == ("low_mos",)
    (mild,) = load_extras(ChecksPlan(dnsmos=str(tmp_path / "sig_bak_ovr.onnx"), min_mos=2.0))
    assert mild.measure(take(tone(200))).reasons == ()


@pytest.mark.parametrize(("seconds", "count"), [(0.5, 7), (5, 1), (9.01, 1), (11.5, 2), (20, 11)])
def test_windows_are_a_second_apart_and_short_clips_double(seconds: float, count: int) -> None:
    wave = np.arange(round(seconds * 16_000), dtype=np.float32)
    found = windows(wave)
    assert [len(w) for w in found] == [WINDOW_SAMPLES] * count
    starts = [i * HOP_SAMPLES % len(wave) for i in range(count)]
    assert [int(w[0]) for w in found] == starts
    if len(wave) < WINDOW_SAMPLES:
        assert np.array_equal(found[0], np.resize(wave, WINDOW_SAMPLES))


# -- speaker


def wave_model(path: Path) -> Path:
    """Embeds samples as (mean square, mean): loudness and offset of a clip."""
    nodes = [
        node("Mul", ["wave", "wave"], "square"),
        node("ReduceMean", ["square"], "power", axes=[1], keepdims=1),
        node("ReduceMean", ["wave"], "mean", axes=[1], keepdims=1),
        node("Concat", ["power", "mean"], "embedding", axis=1),
    ]
    return write_model(path, nodes, ("wave", ["batch", "samples"]), ("embedding", ["batch", 2]))


def bands_model(path: Path) -> Path:
    """Embeds filter banks as how much each band moves."""
    nodes = [
        node("Abs", ["feats"], "moves"),
        node("ReduceMean", ["moves"], "embs", axes=[1], keepdims=0),
    ]
    return write_model(path, nodes, ("feats", ["batch", "frames", 80]), ("embs", ["batch", 80]))


def test_a_take_is_compared_with_its_reference(tmp_path: Path) -> None:
    reference = tmp_path / "ref.wav"
    soundfile.write(reference, np.stack([tone(200)] * 2, axis=1), RATE_HZ, subtype="PCM_16")
    (check,) = load_extras(ChecksPlan(speaker=str(wave_model(tmp_path / "s.onnx"))))
    same = check.measure(take(ref_audio=str(reference)))
    assert (same.values, same.reasons) == ({"speaker_similarity": pytest.approx(1, abs=1e-3)}, ())
    offset = np.full(RATE_HZ, -4_000, np.int16)
    other = check.measure(take(offset, ref_audio=str(reference)))
    assert other.values["speaker_similarity"] < 0.2
    assert other.reasons == ("other_voice",)
    assert check.measure(take()) == Measured({})
    short = check.measure(take(tone(200, 0.1), ref_audio=str(reference)))
    assert (short.values, short.reasons) == ({"speaker_similarity": None}, ())


def test_an_encoder_may_take_filter_banks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    high = np.diff(rng.normal(0, 3_000, 2 * RATE_HZ)).astype(np.int16)
    swell = (np.sin(np.arange(len(high)) / 3_000) ** 2 * high).astype(np.int16)
    reference = tmp_path / "ref.wav"
    soundfile.write(reference, swell, RATE_HZ)
    (check,) = load_extras(ChecksPlan(speaker=str(bands_model(tmp_path / "s.onnx"))))
    assert check.measure(take(swell, ref_audio=str(reference))).values == {
        "speaker_similarity": pytest.approx(1, abs=1e-3)
    }


KALDI = (  # kaldi-native-fbank 1.23: 80 bands, hamming, no dither; every eighth band
    [12.744, 17.149, 13.916, 12.629, 11.674, 11.181, 10.6, 10.197, 9.98, 9.921],
    [13.401, 14.105, 17.919, 14.879, 13.482, 12.802, 12.188, 11.786, 11.559, 11.486],
)


def test_filter_banks_are_those_of_kaldi() -> None:
    time_s = np.arange(1_600) / 16_000
    wave = (0.3 * np.sin(2 * np.pi * (300 + 2_000 * time_s) * time_s)).astype(np.float32)
    found = fbank(wave)
    assert found.shape == (8, 80)
    assert fbank(wave[:399]).shape == (0, 80)
    assert found[0, ::8] == pytest.approx(KALDI[0], abs=1e-3)
    assert found[7, ::8] == pytest.approx(KALDI[1], abs=1e-3)


# -- refusals


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (ChecksPlan(speaker="none.onnx"), "--check-speaker: no file none.onnx"),
        (ChecksPlan(dnsmos="nowhere"), "--check-dnsmos: no file nowhere"),
    ],
)
def test_a_missing_model_is_named_before_anything_loads(plan: ChecksPlan, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_extras(plan)


def test_a_missing_package_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PlanError, match=r"faster-whisper.*pip install 'ttsbatch\[asr\]'"):
        check_extras(ChecksPlan(asr=str(tmp_path)))
    with pytest.raises(PlanError, match=r"onnxruntime.*pip install 'ttsbatch\[onnx\]'"):
        check_extras(ChecksPlan(dnsmos=str(tmp_path)))


def test_a_folder_without_a_whisper_model_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(asr, "require", lambda *names: None)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PlanError, match=r"no model\.bin in it"):
        check_extras(ChecksPlan(asr=str(tmp_path)))


def test_damaged_and_other_onnx_models_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    with pytest.raises(PlanError, match="cannot be opened"):
        load_extras(ChecksPlan(speaker=str(broken)))
    mos = mos_model(tmp_path / "sig_bak_ovr.onnx", 1, 1, 1)
    with pytest.raises(PlanError, match=r"takes input_1 .*expected one input, samples"):
        load_extras(ChecksPlan(speaker=str(mos)))
    speaker = bands_model(tmp_path / "s.onnx")
    with pytest.raises(PlanError, match=r"takes feats .*expected one input \[1, 144160\]"):
        load_extras(ChecksPlan(dnsmos=str(speaker)))


def test_a_limit_without_its_check_is_refused() -> None:
    with pytest.raises(PlanError, match="--max-wer is given; expected --check-asr with it"):
        make_plan({"corpus": "a.jsonl", "max_wer": 0.2})
    with pytest.raises(PlanError, match="--min-mos is 9"):
        make_plan({"corpus": "a.jsonl", "check_dnsmos": "m", "min_mos": 9})


def test_settings_name_the_checks_in_use_alone() -> None:
    assert "max_wer" not in make_plan({"corpus": "a.jsonl"}).settings()
    plan = make_plan({"corpus": "a.jsonl", "check_asr": "/models/base", "max_wer": 0.2})
    assert plan.settings().items() >= {"check_asr": "base", "max_wer": 0.2}.items()
    assert "min_mos" not in plan.settings()


# -- the threads


class Slow:
    """Measures after `wait(take)`."""

    name = "slow"

    def __init__(self, wait: Callable[[ShardRecord], None]) -> None:
        self.wait = wait

    def measure(self, one: ShardRecord) -> Measured:
        self.wait(one)
        return Measured({"slow": one.utterance.id}, ("slow",) if one.utterance.seed else ())


def test_each_take_comes_back_once_with_all_that_was_measured() -> None:
    with Measuring([Slow(lambda one: time.sleep(0.001)), hears("What")], 3) as measuring:
        back: list[ShardRecord] = []
        for i in range(50):
            measuring.submit(replace(take(), utterance=replace(utterance(f"r{i}"), seed=i % 2)))
            back += measuring.done()
        back += measuring.done(wait=True)
        assert measuring.done(wait=True) == []
    assert [r.utterance.id for r in back] == [f"r{i}" for i in range(50)]
    for one in back:
        assert one.checks["slow"] == one.utterance.id
        assert one.checks["wer"] is not None
        assert ("slow" in one.checks["reasons"]) == bool(one.utterance.seed)
        assert list(one.checks)[:4] == ["verdict", "reasons", "duration_s", "expected_s"]


def test_the_caller_waits_while_too_many_are_in_work() -> None:
    gate = threading.Event()
    with Measuring([Slow(lambda one: gate.wait(5) and None)], 1, max_pending=2) as measuring:
        for _ in range(3):
            measuring.submit(take())
        started = time.perf_counter()
        threading.Timer(0.1, gate.set).start()
        assert len(measuring.done()) >= 1
        assert time.perf_counter() - started > 0.05
        measuring.done(wait=True)


def test_a_check_that_fails_flags_the_row_and_says_why() -> None:
    def fail(one: ShardRecord) -> None:
        raise ValueError("odd clip")

    with Measuring([Slow(fail)], 1) as measuring:
        measuring.submit(take())
        (back,) = measuring.done(wait=True)
    assert (back.checks["verdict"], back.checks["reasons"]) == ("flag", ["slow_failed"])
    assert back.checks["slow_failed"] == "ValueError: odd clip"
