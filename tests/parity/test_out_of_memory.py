"""Out of memory in the middle of a run of a tiny checkpoint: the same frames, half the slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.families import CODEC_LMS, Family
from ttsbatch.engine.speak import CodecLMSpeaker
from ttsbatch.types import Segment, Waveform

NUM_SLOTS = 4


def spoken(speaker: CodecLMSpeaker, segments: list[Segment]) -> dict[str, Waveform]:
    made = [x for x in speaker.speak(segments) if isinstance(x, Waveform)]
    assert len(made) == len(segments)
    return {w.segment.utterance.id: w for w in made}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("family", CODEC_LMS, ids=lambda f: f.name)
def test_rows_in_flight_are_decoded_again_to_the_same_frames(
    family: Family, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    utterances = [family.utterance(r["id"]) for r in family.rows]
    segments = [Segment(u, 0, u.spoken_text, expected_s=1.0) for u in utterances]
    model = family.load(device)
    speaker = CodecLMSpeaker(model, NUM_SLOTS, keep_codes=family.has_codes)
    expected = spoken(speaker, segments)
    stage, planted = model.stage, [False]

    def failing(state: Any, seats: list[Any]) -> int:
        if not planted[0] and any(s.prompt.segment.utterance.id == "same" for s in seats):
            planted[0] = True
            raise torch.OutOfMemoryError("CUDA out of memory")
        return stage(state, seats)

    monkeypatch.setattr(model, "stage", failing)
    again = spoken(speaker, segments)
    assert planted[0]
    assert speaker.stats.num_slots == NUM_SLOTS // 2
    for name, wave in expected.items():
        assert again[name].num_frames == wave.num_frames
        if wave.codes is not None:
            np.testing.assert_array_equal(again[name].codes, wave.codes)
        off = again[name].samples.astype(int) - wave.samples
        assert np.abs(off).max() <= family.tolerance_lsb
