"""A model of the slot engine is opened on its device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton.runtime.errors import OutOfResources

from ttsbatch.errors import EngineError, ModelError
from ttsbatch.loading import open_here
from ttsbatch.models import FAMILIES, open_card
from ttsbatch.models.protocol import CodecLM
from ttsbatch.plan import EnginePlan
from ttsbatch.types import Demand, ModelCard

TINY = Path(__file__).parent / "data/qwen3_tts_tiny/custom-voice"


@pytest.mark.parametrize(
    ("device", "calls"),
    [("cuda:1", ["current cuda:1", "load cuda:1"]), ("cpu", ["load cpu"])],
)
def test_the_device_is_the_threads_current_one_before_anything_is_put_on_it(
    monkeypatch: pytest.MonkeyPatch, device: str, calls: list[str]
) -> None:
    seen: list[str] = []

    def load(card: ModelCard, device: torch.device, dtype: torch.dtype, demand: Demand) -> CodecLM:
        seen.append(f"load {device}")
        raise ModelError("no weights")

    family = replace(FAMILIES["qwen3_tts"], load_codec_lm=load)
    monkeypatch.setitem(FAMILIES, "qwen3_tts", family)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda d: seen.append(f"current {d}"))
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    with pytest.raises(ModelError, match="no weights"):
        open_here(open_card(str(TINY)), EnginePlan(device=device))
    assert seen == calls


@pytest.mark.parametrize(
    ("error", "expected", "told"),
    [
        (torch.AcceleratorError("all devices are busy\nmore"), EngineError, "cpu: all devices are"),
        (torch.OutOfMemoryError("CUDA out of memory"), EngineError, "cpu: CUDA out of memory$"),
        (RuntimeError("Triton Error [CUDA]: no image"), EngineError, "cpu: Triton Error"),
        (MemoryError(), EngineError, "cpu: MemoryError$"),
        (
            OutOfResources(147_480, 101_376, "shared memory"),
            EngineError,
            "cpu: out of resource: sh",
        ),
        (ModelError("CUDA is a tensor's name"), ModelError, "^CUDA is"),
        (KeyError("weight"), KeyError, "weight"),
    ],
)
def test_what_goes_wrong_on_a_device_is_an_error_of_the_engine_and_a_bug_is_not(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type[Exception], told: str
) -> None:
    def load(card: ModelCard, device: torch.device, dtype: torch.dtype, demand: Demand) -> CodecLM:
        raise error

    family = replace(FAMILIES["qwen3_tts"], load_codec_lm=load)
    monkeypatch.setitem(FAMILIES, "qwen3_tts", family)
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    with pytest.raises(expected, match=told):
        open_here(open_card(str(TINY)), EnginePlan(device="cpu"))
