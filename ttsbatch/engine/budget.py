"""How long a segment may get: its length cap, from the text or from the row."""

from __future__ import annotations

import math

from ttsbatch.engine.slots import Job
from ttsbatch.models.protocol import EngineSpec, PreparedPrompt

CAP_FACTOR = 2.5  # of the expected frames: a slow reader passes, a run-on is cut
CAP_SLACK_S = 2.0  # very short texts need room for a breath and a pause


def make_job(prompt: PreparedPrompt, spec: EngineSpec) -> Job:
    """The prompt with its expected frames and its cap.

    A row's `max_seconds` replaces the cap from the text: floor(frame rate x seconds) frames of
    the segment's share.
    """
    segment = prompt.segment
    expected = max(1, math.ceil(segment.expected_s * spec.frame_rate_hz))
    own = segment.utterance.max_seconds
    if own is None:
        cap = math.ceil(expected * CAP_FACTOR + CAP_SLACK_S * spec.frame_rate_hz)
    else:
        # 1e-9: 3.12 s at 12.5 frames per second is 39 frames, whatever the product rounds to.
        # Bounded first: the floor of a huge float is an integer of any length, or none at all.
        frames = own * segment.max_share * spec.frame_rate_hz
        cap = math.floor(min(frames, spec.max_frames) + 1e-9)
        expected = min(expected, max(1, cap))
    cap = max(1, min(cap, spec.max_frames))
    return Job(prompt, expected if spec.ends_itself else cap, cap)
