"""Greedy codes of the golden cases, through the real slot engine, and what they are made of."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
import torch

from tests.parity.qwen3 import (
    CHECKPOINTS,
    GENERATIONS,
    INDEX,
    Row,
    all_rows,
    check,
    generate,
    goldens,
    model,
    rows,
)
from ttsbatch.engine.decode import FinishedFrames
from ttsbatch.engine.vocode import Vocoder
from ttsbatch.models.layers import PagedKV
from ttsbatch.types import EngineStats, Waveform

ATOL = 1e-4  # the fixture's own bound for another kernel or thread count


@cache
def alone(case: str, index: int) -> FinishedFrames:
    """A row decoded by itself."""
    row = rows(case)[index]
    return generate([row], num_slots=1)[f"{case}/{index}"]


@pytest.mark.parametrize("case", GENERATIONS)
def test_each_row_alone_gives_the_golden_codes(case: str) -> None:
    for row in rows(case):
        check(row, alone(case, row.index))


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_all_rows_shuffled_through_three_slots_give_the_golden_codes(checkpoint: str) -> None:
    everything = all_rows(checkpoint)
    random.Random(0).shuffle(everything)
    done = generate(everything, num_slots=3)
    assert len(done) == len(everything) >= 6  # every slot is refilled several times
    for row in everything:
        check(row, done[f"{row.case}/{row.index}"])


def test_the_cases_are_19_with_41_rows() -> None:
    assert len(GENERATIONS) == 19
    assert sum(len(all_rows(c)) for c in CHECKPOINTS) == 41


@pytest.mark.parametrize("case", GENERATIONS)
def test_prompts_and_prefill_equal_the_goldens(case: str) -> None:
    for row in rows(case):
        m = model(row.checkpoint)
        layout = row.prompt.payload
        with torch.inference_mode():
            x = m.embed([layout])
            np.testing.assert_allclose(x, row.golden("prefill_embeds"), atol=ATOL)
            c = m.config.talker.stack
            kv = PagedKV.make(c.num_layers, c.num_kv_heads, c.head_dim, 8, x.device, x.dtype)
            pages = torch.arange(1, 8, dtype=torch.int32).expand(len(x), -1)
            hidden = m.talker.prefill(x, torch.arange(len(x)), kv, pages)
            np.testing.assert_allclose(hidden, row.golden("prefill_hidden"), atol=ATOL)
            logits = hidden[-1] @ m.weights.head.T
            np.testing.assert_allclose(logits, row.golden("prefill_logits_last"), atol=ATOL)
            golden = row.golden("trailing_text_hidden")
            assert golden is not None
            ids = np.full(len(golden), m.config.tts_pad_id)
            ids[: len(layout.trailing_ids)] = layout.trailing_ids
            trailing = m.weights.text[torch.from_numpy(ids)]
            np.testing.assert_allclose(trailing, golden, atol=ATOL)


def test_token_ids_equal_the_goldens() -> None:
    for row in [r for c in CHECKPOINTS for r in all_rows(c)]:
        config = model(row.checkpoint).config
        golden = row.golden("input_ids")
        assert golden is not None
        text = golden[3:-5].tolist()
        ids = row.prompt.payload.text_ids.tolist() + row.prompt.payload.trailing_ids.tolist()
        placed = [i for i in ids if i not in (config.tts_pad_id, config.tts_bos_id)]
        assert placed[-len(text) - 1 : -1] == text  # then the end of the text
        instruct = row.golden("instruct_ids")
        if instruct is not None and len(instruct):
            assert ids[: len(instruct)] == instruct.tolist()


@pytest.mark.parametrize("case", [n for n in GENERATIONS if INDEX[n]["checkpoint"] == "base"])
def test_speaker_vectors_and_reference_codes_equal_the_goldens(case: str) -> None:
    for row in rows(case):
        (encoded,) = model("base")._encode([row.prompt.payload.reference])
        np.testing.assert_allclose(encoded.speaker, row.golden("speaker_embedding"), atol=ATOL)
        codes = row.golden("ref_codes")
        if codes is not None:
            np.testing.assert_array_equal(encoded.codes, codes)


@pytest.mark.parametrize("case", GENERATIONS)
def test_waveforms_equal_the_goldens(case: str) -> None:
    for row in rows(case):
        wave = vocode(row, alone(case, row.index))
        assert len(wave.samples) == INDEX[case]["row"][row.index]["wav_samples"]
        golden = row.golden("wav")
        if golden is not None:
            np.testing.assert_allclose(wave.samples / 32767, golden, atol=1e-3)


def vocode(row: Row, finished: FinishedFrames) -> Waveform:
    vocoder = Vocoder(model(row.checkpoint), EngineStats(), keep_codes=True)
    vocoder.add(finished)
    (wave,) = vocoder.drain()
    return wave


def test_predictor_logits_equal_the_goldens() -> None:
    for row in all_rows("custom-voice")[:6]:
        m = model(row.checkpoint)
        hidden = torch.from_numpy(goldens(row.case)[f"row{row.index}.frame_hidden"])
        codes = torch.from_numpy(goldens(row.case)[f"row{row.index}.codes"]).long()
        expected = row.golden("predictor_logits")
        assert expected is not None
        seen: list[torch.Tensor] = []

        def follow(
            logits: torch.Tensor,
            codebook: int,
            *_: object,
            c: torch.Tensor = codes,
            s: list[torch.Tensor] = seen,
            n: int = len(expected),
        ) -> torch.Tensor:
            s.append(logits)
            return c[:n, codebook]

        from ttsbatch.models.qwen3_tts.predictor import PredictorCache

        n = len(expected)
        cache = PredictorCache(m.predictor.config, n, 16, m.weights.head)
        with torch.inference_mode():
            m.predictor.frame(hidden[:n], codes[:n, 0], cache, follow)
        np.testing.assert_allclose(torch.stack(seen, dim=1), expected, atol=ATOL)
