"""The length cap of a row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.fake import SPEC, FakeLM, segment
from ttsbatch.engine.budget import CAP_FACTOR, CAP_SLACK_S, make_job
from ttsbatch.engine.slots import Job
from ttsbatch.models.protocol import PreparedPrompt
from ttsbatch.types import Segment


def job_of(said: Segment, **spec: object) -> Job:
    prompt = FakeLM().prepare(said)
    assert isinstance(prompt, PreparedPrompt)
    return make_job(prompt, replace(SPEC, **spec))  # type: ignore[arg-type]


def seconds(said: Segment, value: float) -> Segment:
    return replace(said, utterance=replace(said.utterance, max_seconds=value))


def test_the_cap_follows_from_the_text() -> None:
    job = job_of(segment("run", expected_frames=40))
    assert job.expected_frames == 40
    assert job.cap_frames == 40 * CAP_FACTOR + CAP_SLACK_S * SPEC.frame_rate_hz


def test_a_text_of_no_length_still_has_room() -> None:
    job = job_of(segment("run", expected_frames=0))
    assert job.expected_frames == 1
    assert job.cap_frames >= CAP_SLACK_S * SPEC.frame_rate_hz


@pytest.mark.parametrize("frames", [1, 3, 39, 156, 1999])
@pytest.mark.parametrize("rate_hz", [12.5, 25.0, 43.0, 50.0, 7.8125])
def test_max_seconds_of_whole_frames_is_that_many_frames(frames: int, rate_hz: float) -> None:
    said = seconds(segment("run"), frames / rate_hz)
    assert job_of(said, frame_rate_hz=rate_hz).cap_frames == frames


def test_max_seconds_between_two_frames_is_never_passed() -> None:
    assert job_of(seconds(segment("run"), 1.0)).cap_frames == 12  # 0.96 s
    assert job_of(seconds(segment("run"), 3.12)).cap_frames == 39


def test_max_seconds_replaces_the_cap_of_the_text_both_ways() -> None:
    assert job_of(segment("run", cap=5, expected_frames=100)).cap_frames == 5
    assert job_of(segment("run", cap=1500, expected_frames=2)).cap_frames == 1500


def test_a_piece_of_a_row_has_its_share_of_max_seconds() -> None:
    piece = replace(seconds(segment("run"), 10.0), max_share=0.25)
    assert job_of(piece).cap_frames == 31  # 2.5 s


def test_less_than_a_frame_is_one_frame() -> None:
    assert job_of(seconds(segment("run"), 0.001)).cap_frames == 1


def test_no_cap_passes_the_models_own() -> None:
    assert job_of(segment("run", cap=5000)).cap_frames == SPEC.max_frames
    assert job_of(segment("run", expected_frames=4000)).cap_frames == SPEC.max_frames
    assert job_of(segment("run"), max_frames=7).cap_frames == 7


@pytest.mark.parametrize("huge", [1e19, 1e300, 1e308])
def test_any_number_of_seconds_is_bounded_by_the_model(huge: float) -> None:
    job = job_of(seconds(segment("run", expected_frames=40), huge))
    assert (job.expected_frames, job.cap_frames) == (40, SPEC.max_frames)


def test_a_row_is_not_expected_to_pass_its_cap() -> None:
    assert job_of(segment("run", cap=5, expected_frames=100)).expected_frames == 5


def test_a_model_that_does_not_end_is_expected_to_reach_the_cap() -> None:
    job = job_of(segment("run", cap=120, expected_frames=3), ends_itself=False)
    assert job.expected_frames == job.cap_frames == 120
