"""Segments become one clip."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sinks.fake_run import utterance
from ttsbatch.audio.join import join_segments
from ttsbatch.types import Segment, Waveform


def wave(index: int, values: list[int], rate: int = 1000) -> Waveform:
    segment = Segment(utterance("a"), index, "x")
    return Waveform(segment, np.array(values, np.int16), rate, "stop", 0)


def test_one_segment_is_unchanged() -> None:
    one = wave(0, [1, 2, 3])
    assert join_segments([one]) is one.samples


def test_segments_are_joined_in_order_with_a_pause_between() -> None:
    joined = join_segments([wave(1, [3]), wave(0, [1, 2]), wave(2, [4])], pause_s=0.002)
    assert joined.tolist() == [1, 2, 0, 0, 3, 0, 0, 4]
    assert joined.dtype == np.int16


def test_two_sample_rates_are_refused() -> None:
    with pytest.raises(ValueError, match="one sample rate"):
        join_segments([wave(0, [1]), wave(1, [1], rate=8000)])
