"""Sample rate and loudness of what is written."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.signal import lfilter

from ttsbatch.audio.finish import PEAK_LIMIT_DBTP, finish
from ttsbatch.audio.loudness import integrated_lufs, k_weighting, true_peak
from ttsbatch.audio.resample import resample, resampled_length


def tone(hz: float, seconds: float, rate_hz: int, amplitude: float = 1.0) -> np.ndarray:
    return amplitude * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate_hz)) / rate_hz)


def as_int16(wave: np.ndarray) -> np.ndarray:
    return np.rint(wave * 32_767).astype(np.int16)


def syllables(seconds: float, rate_hz: int, seed: int = 0) -> np.ndarray:
    """Noise in bursts with pauses, at about -26 LUFS."""
    rng = np.random.default_rng(seed)
    n = round(seconds * rate_hz)
    envelope = np.clip(np.sin(2 * np.pi * 3 * np.arange(n) / rate_hz), 0, None)
    envelope[n // 3 : n // 2] = 0
    return 0.15 * envelope * np.clip(rng.normal(0, 0.6, n), -2, 2)


def plain_lufs(wave: np.ndarray, rate_hz: int) -> float:
    """BS.1770 as its text has it: recursive filters, blocks of 0.4 s, two gates."""
    for b, a in zip(*k_weighting(rate_hz), strict=True):
        wave = lfilter(b, a, wave)
    size = round(0.4 * rate_hz)
    powers = np.array(
        [np.mean(wave[i : i + size] ** 2) for i in range(0, len(wave) - size + 1, size // 4)]
    )
    lufs = -0.691 + 10 * np.log10(np.maximum(powers, 1e-30))
    gate = -0.691 + 10 * np.log10(powers[lufs > -70].mean()) - 10
    return float(-0.691 + 10 * np.log10(powers[(lufs > -70) & (lufs > gate)].mean()))


def test_filters_at_48_khz_are_those_of_the_standard() -> None:
    b, a = k_weighting(48_000)
    assert b[0] == pytest.approx([1.53512485958697, -2.69169618940638, 1.19839281085285])
    assert a[0] == pytest.approx([1.0, -1.69065929318241, 0.73248077421585])
    assert a[1] == pytest.approx([1.0, -1.99004745483398, 0.99007225036621])


def test_full_scale_tone_has_the_loudness_of_the_standard() -> None:
    wave = tone(997, 3, 48_000).astype(np.float32)
    assert integrated_lufs(wave, 48_000) == pytest.approx(-3.01, abs=0.01)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 44_100])
@pytest.mark.parametrize("seconds", [0.41, 1.3, 7.0])
def test_loudness_is_that_of_recursive_filters(rate_hz: int, seconds: float) -> None:
    wave = syllables(seconds, rate_hz).astype(np.float32)
    expected = plain_lufs(wave.astype(np.float64), rate_hz)
    assert integrated_lufs(wave, rate_hz) == pytest.approx(expected, abs=1e-6)


def test_silence_has_no_loudness_and_gets_no_gain() -> None:
    silence = np.zeros(24_000, np.int16)
    assert integrated_lufs(silence.astype(np.float32), 24_000) == -math.inf
    done = finish(silence, 24_000, None, -23.0)
    assert not done.samples.any()
    assert done.checks["loudness"]["limited_by"] == "silence"


def test_true_peak_is_seen_between_the_samples() -> None:
    wave = np.sin(2 * np.pi * 0.25 * np.arange(4_000) + np.pi / 4).astype(np.float32)
    assert np.abs(wave).max() == pytest.approx(0.7071, abs=1e-3)
    assert true_peak(wave[100:-100] * np.hanning(3_800).astype(np.float32), 24_000) > 0.98


@pytest.mark.parametrize("to_hz", [8_000, 16_000, 22_050, 44_100, 48_000, 23_999])
def test_resampled_length_is_exact(to_hz: int) -> None:
    for num_samples in (1, 2, 3, 10, 100, 101, 12_345, 24_001):
        done = finish(np.ones(num_samples, np.int16), 24_000, to_hz)
        assert len(done.samples) == resampled_length(num_samples, 24_000, to_hz)
        assert abs(len(done.samples) - num_samples * to_hz / 24_000) <= 0.5 or num_samples == 1
    assert resampled_length(0, 24_000, to_hz) == 0


def test_resampling_keeps_a_tone_and_removes_what_the_rate_cannot_hold() -> None:
    low = resample(tone(1_000, 1, 24_000, 0.5).astype(np.float32), 24_000, 16_000)
    expected = tone(1_000, 1, 16_000, 0.5)
    assert np.abs(low - expected)[500:-500].max() < 1e-4
    high = resample(tone(10_000, 1, 24_000, 0.5).astype(np.float32), 24_000, 16_000)
    assert np.abs(high)[500:-500].max() < 1e-4


@pytest.mark.parametrize("target", [-40.0, -30.0, -23.0])
@pytest.mark.parametrize("rate_hz", [16_000, 24_000, 48_000])
def test_written_loudness_is_the_target(target: float, rate_hz: int) -> None:
    done = finish(as_int16(syllables(4, 24_000)), 24_000, rate_hz, target)
    written = done.samples.astype(np.float32) / 32_768
    assert integrated_lufs(written, rate_hz) == pytest.approx(target, abs=0.05)
    assert done.checks["loudness"]["limited_by"] is None
    assert done.checks["loudness"]["lufs"] == target


def test_gain_stops_at_the_peak_limit_and_says_so() -> None:
    done = finish(as_int16(syllables(4, 24_000)), 24_000, None, -6.0)
    written = done.samples.astype(np.float32) / 32_768
    note = done.checks["loudness"]
    assert note["limited_by"] == "peak"
    assert 20 * math.log10(true_peak(written, 24_000)) == pytest.approx(PEAK_LIMIT_DBTP, abs=0.02)
    assert integrated_lufs(written, 24_000) == pytest.approx(note["lufs"], abs=0.05)
    assert note["lufs"] < -6


def test_clip_below_one_block_is_measured_as_one() -> None:
    done = finish(as_int16(tone(997, 0.2, 24_000, 0.05)), 24_000, None, -23.0)
    note = done.checks["loudness"]
    assert note["one_block"] is True
    assert np.abs(done.samples).max() / 32_768 == pytest.approx(0.1, abs=0.01)  # -3 - 20 dB


def test_overshoot_of_resampling_is_scaled_and_never_clipped() -> None:
    square = np.where(np.sin(np.arange(9_600) / 40) > 0, 32_767, -32_768).astype(np.int16)
    done = finish(square, 24_000, 48_000)
    assert np.abs(done.samples.astype(int)).max() == 32_767
    assert done.checks["overshoot_gain_db"] < -0.5
    assert np.count_nonzero(np.abs(done.samples.astype(int)) == 32_767) < 20


def test_nothing_asked_for_changes_nothing() -> None:
    samples = as_int16(syllables(1, 24_000))
    for rate_hz in (None, 24_000):
        done = finish(samples, 24_000, rate_hz)
        assert done.samples is samples
        assert (done.sample_rate_hz, done.checks) == (24_000, {})
    assert len(finish(samples[:0], 24_000, 8_000, -23.0).samples) == 0
