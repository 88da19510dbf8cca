"""The shapes of codec passes, and that a batch decodes as its pieces do."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.fake import SPEC, FakeLM
from ttsbatch.bench.workload import lengths_s
from ttsbatch.engine.codec_batches import (
    FULL_SAMPLES,
    LENGTHS,
    CodecBatches,
    Piece,
    Shape,
    choose,
    frames_in,
    lengths_for,
)
from ttsbatch.engine.vocode import WAITING_BATCHES, codec_passes

BUCKETS = lengths_for(325)
FULL_FRAMES = 4096


def test_the_longest_pass_is_a_bucket_and_none_is_longer() -> None:
    for longest in (1, 16, 20, 288, 325, 1000):
        buckets = lengths_for(longest)
        assert buckets == sorted(set(buckets))
        assert buckets[-1] == longest
    assert CodecBatches(FakeLM()).buckets[-1] == 325  # window and context


def test_passes_of_frames_of_80_ms_have_the_measured_lengths() -> None:
    assert lengths_for(325) == [*LENGTHS, 325]
    assert frames_in(FULL_SAMPLES, replace(SPEC, samples_per_frame=1920)) == FULL_FRAMES


def test_a_full_batch_is_as_many_samples_whatever_a_frame_holds() -> None:
    patches = replace(SPEC, samples_per_frame=7680, codec_window_frames=40, codec_context_frames=5)
    batches = CodecBatches(FakeLM(spec=patches))
    assert batches.full_frames == FULL_FRAMES // 4
    assert {40, 45} <= set(batches.buckets)  # windows of a long row are not padded
    for shape in batches.shapes():
        assert shape.batch * shape.frames * 7680 <= FULL_SAMPLES
    assert CodecBatches(FakeLM(spec=patches), 1).full_frames == 1


@pytest.mark.parametrize(
    ("rate_hz", "window", "context", "full", "least"),
    [(12.5, 300, 25, 4096, 0.75), (6.25, 40, 5, 1024, 0.85)],
)
def test_most_of_what_is_decoded_of_a_workload_is_no_padding(
    rate_hz: float, window: int, context: int, full: int, least: float
) -> None:
    buckets, waiting, real, decoded = lengths_for(window + context), [], 0, 0
    for seconds in lengths_s(2048):
        passes = codec_passes(max(1, int(seconds * rate_hz)), window, context)
        waiting += [p.stop - p.start for p in passes]
        while sum(waiting) >= WAITING_BATCHES["cuda"] * full:
            waiting.sort()
            choice = choose(waiting, buckets, full)
            last = choice.first + choice.count
            real += sum(waiting[choice.first : last])
            decoded += choice.shape.batch * choice.shape.frames
            del waiting[choice.first : last]
    assert real > least * decoded > 0


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
