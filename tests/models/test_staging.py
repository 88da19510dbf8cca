"""Prompts that wait for prefill: graphs hold their buffers, which must stay where they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.families import CODEC_LMS, Family
from ttsbatch.models import packing
from ttsbatch.models.decoder import PagedDecoder
from ttsbatch.models.protocol import CodecLM, PreparedPrompt, Seat
from ttsbatch.types import Segment

PAGES_PER_SLOT = 8


def new_state(model: CodecLM) -> Any:
    return model.new_state(2, 2 * PAGES_PER_SLOT + 1, 16 * PAGES_PER_SLOT)


def seat(family: Family, slot: int) -> Seat:
    utterance = family.utterance("short")
    prompt = family.load().prepare(Segment(utterance, 0, utterance.spoken_text))
    assert isinstance(prompt, PreparedPrompt)
    first = 1 + slot * PAGES_PER_SLOT
    return Seat(slot, prompt, tuple(range(first, first + PAGES_PER_SLOT)))


@pytest.mark.parametrize("family", CODEC_LMS, ids=lambda f: f.name)
def test_padding_holds_nothing_of_the_prompts_before(family: Family) -> None:
    model, one = family.load(), seat(family, 0)
    with torch.inference_mode():
        state = new_state(model)
        many = model.stage(state, [one, seat(family, 1)])
        state.staged.first(many)["x"].fill_(torch.nan)
        few = model.stage(state, [one])
        padded = state.staged.first(many)
        assert 0 < few < many
        assert bool(padded["x"][:few].isfinite().all())
        spare = len(state.block_table) - 1
        for name, x in padded.items():
            padding = x[few:]
            assert torch.equal(padding, torch.full_like(padding, spare if name == "slot" else 0))


@pytest.mark.parametrize("family", CODEC_LMS, ids=lambda f: f.name)
def test_more_tokens_than_any_graph_takes_leave_the_graphs_buffers_in_place(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, one, other = family.load(), seat(family, 0), seat(family, 1)
    read: list[int] = []
    prefill = PagedDecoder.prefill

    def watched(self: PagedDecoder, x: Tensor, *rest: Any) -> Tensor:
        read.append(x.data_ptr())
        return prefill(self, x, *rest)

    def run(state: Any, *seats: Seat) -> int:
        """Prefill these; where the first stack read its input from."""
        read.clear()
        model.prefill(state, model.stage(state, list(seats)))
        return read[0]

    with torch.inference_mode():
        fresh = new_state(model)
        num_tokens = model.stage(fresh, [one])
        model.prefill(fresh, num_tokens)
        monkeypatch.setattr(packing, "STAGED_TOKENS", num_tokens)
        monkeypatch.setattr(PagedDecoder, "prefill", watched)
        state = new_state(model)
        before = run(state, one)
        assert run(state, one, other) != before
        for pool in (state.kv.k, state.kv.v):
            pool.zero_()
        assert run(state, one) == before
    torch.testing.assert_close(state.kv.k[:, 1:], fresh.kv.k[:, 1:])
    torch.testing.assert_close(state.kv.v[:, 1:], fresh.kv.v[:, 1:])
