"""Out of memory in the middle of a run of a tiny checkpoint: the same codes, half the slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.parity.qwen3 import FIXTURE
from ttsbatch.engine.speak import CodecLMSpeaker
from ttsbatch.models import FAMILIES, open_card
from ttsbatch.types import Demand, Segment, Utterance, Waveform

NUM_ROWS = 8


def segments(num_rows: int) -> list[Segment]:
    made = []
    for i in range(num_rows):
        text = f"Row {'very ' * (i % 4)}small."
        u = Utterance(str(i), text, text, "x", i, "ryan", "en", seed=i, max_seconds=0.4 + i % 3 / 5)
        made.append(Segment(u, 0, text, expected_s=1.0))
    return made


def codes_of(speaker: CodecLMSpeaker) -> dict[str, Any]:
    made = [x for x in speaker.speak(segments(NUM_ROWS)) if isinstance(x, Waveform)]
    assert len(made) == NUM_ROWS
    return {w.segment.utterance.id: w.codes for w in made}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_rows_in_flight_are_decoded_again_to_the_same_codes(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cuda":
        torch.backends.fp32_precision = "ieee"
    card = open_card(str(FIXTURE / "custom-voice"))
    load = FAMILIES[card.family].load_codec_lm
    assert load is not None
    model = load(card, torch.device(device), torch.float32, Demand())
    speaker = CodecLMSpeaker(model, 4, keep_codes=True)
    expected = codes_of(speaker)
    stage, planted = model.stage, [False]

    def failing(state: Any, seats: list[Any]) -> int:
        if not planted[0] and any(s.prompt.segment.utterance.id == "5" for s in seats):
            planted[0] = True
            raise torch.OutOfMemoryError("CUDA out of memory")
        return stage(state, seats)

    monkeypatch.setattr(model, "stage", failing)
    again = codes_of(speaker)
    assert planted[0]
    assert speaker.stats.num_slots == 2
    for row_id, codes in expected.items():
        np.testing.assert_array_equal(again[row_id], codes)
