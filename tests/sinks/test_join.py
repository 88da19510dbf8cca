"""Segments become one clip."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.sinks.fake_run import utterance
from ttsbatch.audio.join import FADE_S, MAX_GAIN_DB, join_segments
from ttsbatch.quality.clipping import clipped_share
from ttsbatch.types import Segment, Waveform

RATE_HZ = 8000


def wave(index: int, samples: npt.ArrayLike, rate: int = RATE_HZ) -> Waveform:
    segment = Segment(utterance("a"), index, "x")
    return Waveform(segment, np.asarray(samples, np.int16), rate, "stop", 0)


def tone(peak: float, seconds: float = 0.5) -> npt.NDArray[np.int16]:
    t = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    return np.rint(peak * np.cos(2 * np.pi * 200 * t)).astype(np.int16)


def quiet(seconds: float) -> npt.NDArray[np.int16]:
    return np.zeros(round(seconds * RATE_HZ), np.int16)


def rms_db(samples: npt.NDArray[np.int16]) -> float:
    return 10 * float(np.log10(np.mean(np.square(samples, dtype=np.float64))))


def test_one_segment_is_unchanged() -> None:
    one = wave(0, [1, 2, 3])
    assert join_segments([one]) is one.samples


def test_segments_are_joined_in_order_with_a_pause_between() -> None:
    high, low = tone(8000), tone(7000, 0.3)
    joined = join_segments([wave(1, low), wave(0, high)], [0.2])
    assert joined.dtype == np.int16
    assert len(joined) == len(high) + round(0.2 * RATE_HZ) + len(low)
    gap = joined[len(high) : len(high) + round(0.2 * RATE_HZ)]
    assert not gap.any()
    assert abs(int(joined[0])) > 7000


def test_quiet_that_the_segments_bring_along_counts_towards_the_pause() -> None:
    first = np.concatenate([tone(8000), quiet(0.1)])
    second = np.concatenate([quiet(0.06), tone(8000)])
    joined = join_segments([wave(0, first), wave(1, second)], [0.2])
    assert len(joined) == len(first) + len(second) + round(0.04 * RATE_HZ)
    joined = join_segments([wave(0, first), wave(1, second)], [0.1])
    assert len(joined) == len(first) + len(second)  # longer already: nothing is cut off


def test_both_sides_of_a_joint_are_faded_and_the_outer_edges_are_not() -> None:
    first, second = tone(8000), tone(8000)
    joined = join_segments([wave(0, first), wave(1, second)], [0.0])
    fade = round(FADE_S * RATE_HZ)
    at = len(first)
    assert np.abs(joined[at - 1 : at + 1]).max() < 50
    assert np.array_equal(joined[: at - fade], first[: at - fade])
    assert np.array_equal(joined[at + fade :], second[fade:])


def test_levels_meet_within_bounds() -> None:
    a, b, c = tone(8000), tone(6500), tone(1000)
    joined = join_segments([wave(0, a), wave(1, b), wave(2, c)], [0.0, 0.0])
    inside = slice(400, 3600)
    one, two, three = (rms_db(joined[i * 4000 : (i + 1) * 4000][inside]) for i in range(3))
    assert one == pytest.approx(two, abs=0.05)
    assert three - rms_db(c[inside]) == pytest.approx(MAX_GAIN_DB, abs=0.1)


def test_no_gain_clips_and_none_hides_clipping() -> None:
    peaky = tone(3000)
    peaky[2000] = 32_000
    loud = tone(12_000)
    joined = join_segments([wave(0, peaky), wave(1, loud), wave(2, loud)], [0.0, 0.0])
    assert np.abs(joined.astype(np.int32)).max() < 32_767
    clipped = np.clip(tone(30_000).astype(np.int32) * 3, -32_768, 32_767).astype(np.int16)
    joined = join_segments([wave(0, clipped), wave(1, tone(4000)), wave(2, tone(4000))], [0.0, 0.0])
    assert clipped_share(joined[:4000]) > 0.3


@pytest.mark.parametrize("samples", [[], [0], [5], [0] * 5000])
def test_a_silent_or_empty_segment_joins_too(samples: list[int]) -> None:
    joined = join_segments([wave(0, samples), wave(1, tone(8000))], [0.05])
    assert 4000 + len(samples) <= len(joined) <= 4400 + len(samples)


def test_two_sample_rates_are_refused() -> None:
    with pytest.raises(ValueError, match="one sample rate"):
        join_segments([wave(0, [1]), wave(1, [1], rate=16_000)], [0.1])


def test_a_pause_is_needed_for_each_joint() -> None:
    with pytest.raises(ValueError, match="one a joint"):
        join_segments([wave(0, [1]), wave(1, [1])])
