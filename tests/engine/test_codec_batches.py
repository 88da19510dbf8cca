"""The shapes of codec passes, and that a batch decodes as its pieces do."""

from __future__ import annotations

from bisect import bisect_left

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.fake import SPEC, FakeLM
from ttsbatch.engine.codec_batches import (
    FULL_FRAMES,
    CodecBatches,
    Piece,
    Shape,
    choose,
    lengths_for,
)

BUCKETS = lengths_for(325)


def test_the_longest_pass_is_a_bucket_and_none_is_longer() -> None:
    for longest in (1, 16, 20, 288, 325, 1000):
        buckets = lengths_for(longest)
        assert buckets == sorted(set(buckets))
        assert buckets[-1] == longest
    assert CodecBatches(FakeLM()).buckets[-1] == 325  # window and context


@given(
    lengths=st.lists(st.integers(1, 325), min_size=1, max_size=80).map(sorted),
    full_frames=st.sampled_from([1, 100, 400, FULL_FRAMES]),
)
def test_a_choice_is_a_run_that_fits_its_shape(lengths: list[int], full_frames: int) -> None:
    choice = choose(lengths, BUCKETS, full_frames)
    run = lengths[choice.first : choice.first + choice.count]
    assert 1 <= len(run) == choice.count <= choice.shape.batch
    assert choice.shape.frames == BUCKETS[bisect_left(BUCKETS, run[-1])]
    most = max(1, full_frames // choice.shape.frames)
    assert choice.shape.batch in (most, max(1, most // 4))


@given(lengths=st.lists(st.integers(1, 325), min_size=1, max_size=60).map(sorted))
def test_choosing_again_and_again_takes_every_piece_once(lengths: list[int]) -> None:
    left, taken = list(lengths), []
    while left:
        choice = choose(left, BUCKETS, FULL_FRAMES)
        taken += left[choice.first : choice.first + choice.count]
        del left[choice.first : choice.first + choice.count]
    assert sorted(taken) == lengths


def test_of_two_full_batches_the_one_with_less_padding_is_chosen() -> None:
    spread = [33] * 8 + [64] * 8  # 16 rows of 64 frames are half padding, 8 are none
    choice = choose(spread, BUCKETS, 8 * 64)
    assert (choice.first, choice.count, choice.shape) == (8, 8, Shape(8, 64))


def test_a_few_pieces_take_the_small_shape() -> None:
    choice = choose([60, 61], BUCKETS, FULL_FRAMES)
    assert choice.shape == Shape(FULL_FRAMES // 64 // 4, 64)


@pytest.mark.parametrize("lengths", [[1], [3, 3, 3], [1, 40, 64], [300, 325]])
def test_a_batch_decodes_as_its_pieces_do(lengths: list[int]) -> None:
    batches = CodecBatches(FakeLM())
    g = torch.Generator().manual_seed(0)
    pieces = [Piece(torch.randint(0, 900, (n, SPEC.frame_width), generator=g)) for n in lengths]
    shape = choose(sorted(lengths), batches.buckets, FULL_FRAMES).shape
    samples, bad = batches.run(pieces, shape)
    assert bad.tolist() == [0] * len(pieces)
    for i, piece in enumerate(pieces):
        alone, _ = batches.run([piece], Shape(1, len(piece.frames)))
        own = len(piece.frames) * SPEC.samples_per_frame
        assert torch.equal(samples[i, :own], alone[0, :own])
    assert (batches.hits, batches.misses) == (0, 1 + len(pieces))
