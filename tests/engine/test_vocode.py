"""Codes to samples: windows, batches, reference frames, int16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engine.fake import NOT_A_NUMBER, SPEC, FakeLM, job, segment
from ttsbatch.engine import vocode
from ttsbatch.engine.decode import FinishedFrames
from ttsbatch.engine.vocode import Pass, Vocoder, codec_passes
from ttsbatch.types import EngineStats, Waveform

LENGTHS = [1, 2, 24, 25, 26, 299, 300, 301, 325, 326, 600, 601, 901]
PER_FRAME = SPEC.samples_per_frame


def finished(
    num_frames: int, seed: int = 0, context_frames: int = 0, codes: torch.Tensor | None = None
) -> FinishedFrames:
    made = job(segment("run", seed=seed, name=str(seed), context_frames=context_frames))
    if codes is None:
        g = torch.Generator().manual_seed(seed)
        codes = torch.randint(0, 900, (num_frames, SPEC.frame_width), generator=g)
    return FinishedFrames(made, codes.to(torch.int16), "stop")


def speak(rows: list[FinishedFrames], model: FakeLM | None = None) -> dict[str, Waveform]:
    vocoder = Vocoder(model or FakeLM(), EngineStats(), keep_codes=True)
    waves = []
    for row in rows:
        vocoder.add(row)
        waves += list(vocoder.ready())
    waves += list(vocoder.drain())
    assert len({w.segment.utterance.id for w in waves}) == len(waves) == len(rows)
    return {w.segment.utterance.id: w for w in waves}


def whole(row: FinishedFrames) -> np.ndarray:
    """The row's samples when all that the codec hears is decoded at once, without windows."""
    model = FakeLM()
    context = model.context_frames(row.job.prompt)
    heard = 0 if context is None else len(context)
    codes = row.frames.long() if context is None else torch.cat([context, row.frames.long()])
    audio = model.decode_audio(codes[None])[0, heard * PER_FRAME :].numpy()
    return np.round(audio * np.float32(32767)).astype(np.int16)


@pytest.mark.parametrize(
    ("num_frames", "passes"),
    [
        (1, [Pass(0, 1, 0)]),
        (299, [Pass(0, 299, 0)]),
        (300, [Pass(0, 300, 0)]),
        (301, [Pass(0, 300, 0), Pass(275, 301, 25)]),
        (325, [Pass(0, 300, 0), Pass(275, 325, 25)]),
        (600, [Pass(0, 300, 0), Pass(275, 600, 25)]),
        (901, [Pass(0, 300, 0), Pass(275, 600, 25), Pass(575, 900, 25), Pass(875, 901, 25)]),
    ],
)
def test_passes_are_the_official_windows(num_frames: int, passes: list[Pass]) -> None:
    assert codec_passes(num_frames, 300, 25) == passes


@pytest.mark.parametrize("context", [0, 1, 25, 400])
@pytest.mark.parametrize("num_frames", LENGTHS)
def test_new_frames_of_the_passes_tile_the_row(num_frames: int, context: int) -> None:
    tiles = [range(p.start + p.context, p.stop) for p in codec_passes(num_frames, 300, context)]
    assert [f for tile in tiles for f in tile] == list(range(num_frames))
    for p in codec_passes(num_frames, 300, context):
        assert 0 <= p.start < p.stop
        assert p.stop - p.start - p.context <= 300


@pytest.mark.parametrize("num_frames", LENGTHS)
def test_a_row_of_any_length_is_put_together_again(num_frames: int) -> None:
    row = finished(num_frames, seed=num_frames)
    wave = speak([row])[str(num_frames)]
    np.testing.assert_array_equal(wave.samples, whole(row))
    assert wave.samples.dtype == np.int16
    assert wave.num_frames == num_frames
    assert wave.sample_rate_hz == SPEC.sample_rate_hz
    assert wave.finish_reason == "stop"


@pytest.mark.parametrize("limit", [1, 400, 5200])
def test_batched_equals_single(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocode, "CPU_FULL_SAMPLES", limit * PER_FRAME)
    monkeypatch.setitem(vocode.WAITING_BATCHES, "cpu", 2)
    rows = [finished(n, seed=i) for i, n in enumerate([*LENGTHS, 3, 70, 71, 40])]
    together = speak(rows)
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(together[str(i)].samples, whole(row))


def test_a_batch_is_no_larger_than_the_limit_and_holds_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vocode, "CPU_FULL_SAMPLES", 100 * PER_FRAME)
    monkeypatch.setitem(vocode.WAITING_BATCHES, "cpu", 2)
    shapes: list[tuple[int, int]] = []

    class Watched(FakeLM):
        def decode_audio(self, codes: torch.Tensor) -> torch.Tensor:
            shapes.append((codes.shape[0], codes.shape[1]))
            return super().decode_audio(codes)

    speak([finished(10 + i % 5, seed=i) for i in range(40)], Watched())
    assert all(batch * frames <= 100 for batch, frames in shapes)
    assert max(batch for batch, _ in shapes) >= 6
    assert sum(batch for batch, _ in shapes) == 40


def test_rows_come_out_before_the_end_once_there_is_a_batch() -> None:
    vocoder = Vocoder(FakeLM(), EngineStats(), keep_codes=False)
    early = 0
    for i in range(100):
        vocoder.add(finished(50, seed=i))
        early += len(list(vocoder.ready()))
    late = len(list(vocoder.drain()))
    assert early + late == 100
    assert early >= 90


def test_one_full_batch_is_enough_once_no_row_begins_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vocode, "CPU_FULL_SAMPLES", 100 * PER_FRAME)
    monkeypatch.setitem(vocode.WAITING_BATCHES, "cpu", 3)
    vocoder = Vocoder(FakeLM(), EngineStats(), keep_codes=False)
    for i in range(5):  # two batches and a half
        vocoder.add(finished(50, seed=i))
    assert not list(vocoder.ready())
    assert len(list(vocoder.ready(ending=True))) == 4
    assert len(list(vocoder.drain())) == 1


@pytest.mark.parametrize("num_frames", [1, 250, 300, 575, 900])
@pytest.mark.parametrize("heard", [1, 25, 299, 300, 301, 640])
def test_reference_frames_are_heard_and_trimmed(num_frames: int, heard: int) -> None:
    row = finished(num_frames, seed=7, context_frames=heard)
    wave = speak([row])["7"]
    np.testing.assert_array_equal(wave.samples, whole(row))
    assert len(wave.samples) == num_frames * PER_FRAME
    assert wave.num_frames == num_frames
    assert wave.codes is not None
    np.testing.assert_array_equal(wave.codes, row.frames.numpy())
    deaf = replace(row, job=job(segment("run", seed=7, name="7")))
    assert (wave.samples[:PER_FRAME] != whole(deaf)[:PER_FRAME]).any()


def test_codes_are_kept_only_on_request() -> None:
    for keep in (False, True):
        vocoder = Vocoder(FakeLM(), EngineStats(), keep_codes=keep)
        vocoder.add(finished(4))
        (wave,) = vocoder.drain()
        assert (wave.codes is not None) == keep


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers_are_counted_and_silent(value: float) -> None:
    class Broken(FakeLM):
        def decode_audio(self, codes: torch.Tensor) -> torch.Tensor:
            audio = super().decode_audio(codes)
            return torch.where(audio.isnan(), value, audio)

    codes = torch.full((6, SPEC.frame_width), 300)
    codes[2] = NOT_A_NUMBER
    rows = [finished(6, seed=1, codes=codes), finished(6, seed=2)]
    waves = speak(rows, Broken())
    assert waves["1"].num_nonfinite == PER_FRAME
    assert not waves["1"].samples[2 * PER_FRAME : 3 * PER_FRAME].any()
    assert waves["1"].samples[: 2 * PER_FRAME].all()
    assert waves["2"].num_nonfinite == 0
    np.testing.assert_array_equal(waves["2"].samples, whole(rows[1]))


def test_what_padding_decodes_to_is_no_fault() -> None:
    class NaNForSilence(FakeLM):
        def decode_audio(self, codes: torch.Tensor) -> torch.Tensor:
            audio = super().decode_audio(codes)
            empty = (codes == 0).all(dim=2).repeat_interleave(PER_FRAME, dim=1)
            return torch.where(empty, torch.nan, audio)

    rows = [finished(n, seed=n, codes=torch.full((n, 3), 5)) for n in (3, 9)]
    assert [w.num_nonfinite for w in speak(rows, NaNForSilence()).values()] == [0, 0]


@pytest.mark.parametrize("frame", [280, 299])
def test_a_bad_frame_that_two_passes_hear_is_counted_once(frame: int) -> None:
    codes = torch.full((310, SPEC.frame_width), 300)
    codes[frame] = NOT_A_NUMBER
    assert speak([finished(310, seed=1, codes=codes)])["1"].num_nonfinite == PER_FRAME


def test_bad_frames_of_the_reference_are_not_the_rows() -> None:
    class BrokenReference(FakeLM):
        def context_frames(self, prompt: object) -> torch.Tensor:
            return torch.full((10, SPEC.frame_width), NOT_A_NUMBER)

    wave = speak([finished(4, seed=1, context_frames=10)], BrokenReference())["1"]
    assert wave.num_nonfinite == 0


def test_int16_is_rounded_and_clipped_to_full_scale() -> None:
    levels = [0.0, 1.0, -1.0, 1.5, -7.0, 0.5, -0.5, 1e-5, 2e-5]

    class Levels(FakeLM):
        def decode_audio(self, codes: torch.Tensor) -> torch.Tensor:
            audio = torch.tensor(levels)[codes[..., 0].long()]
            return audio.repeat_interleave(PER_FRAME, dim=1)

    codes = torch.arange(len(levels))[:, None].expand(-1, SPEC.frame_width)
    wave = speak([finished(len(levels), seed=1, codes=codes)], Levels())["1"]
    expected = [0, 32767, -32767, 32767, -32767, 16384, -16384, 0, 1]
    np.testing.assert_array_equal(wave.samples, np.repeat(expected, PER_FRAME))
    assert wave.num_nonfinite == 0
