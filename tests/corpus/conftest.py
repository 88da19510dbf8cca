"""Model cards and helpers for the corpus tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from ttsbatch.corpus.scan import scan
from ttsbatch.plan import CorpusPlan, RowDefaults
from ttsbatch.types import Failure, ModelCard, Record, Utterance

SAMPLING = frozenset({"temperature", "top_k", "top_p", "repetition_penalty", "max_seconds"})
TEN = ("zh", "en", "de", "fr", "es", "it", "ja", "ko", "pt", "ru")


def card(name: str, **values: Any) -> ModelCard:
    """A card of a small made-up model."""
    usual: dict[str, Any] = {
        "family": "fake",
        "path": None,
        "sample_rate_hz": 24_000,
        "frame_rate_hz": 12.5,
        "num_codebooks": 16,
        "max_frames": 4096,
        "languages": TEN,
        "speaks_auto": True,
        "voices": (),
        "default_voice": None,
        "options": SAMPLING,
        "needs_reference": False,
        "licence": "Apache-2.0",
        "num_parameters": 1,
        "content_hash": "0",
    }
    return ModelCard(name=name, **{**usual, **values})


ENGLISH = card(
    "english",
    languages=("en",),
    voices=("heart",),
    default_voice="heart",
    options=frozenset(),
)
VOICES = card("voices", voices=("Ryan", "Vivian", "Serena"), options=SAMPLING | {"instruct"})
CLONES = card("clones", options=SAMPLING | {"ref_audio", "ref_text"}, needs_reference=True)
DESIGN = card("design", options=SAMPLING | {"instruct"})
BOTH = card("both", voices=("Ryan",), options=SAMPLING | {"ref_audio", "ref_text"})
ALL_CARDS = (ENGLISH, VOICES, CLONES, DESIGN, BOTH)


@pytest.fixture
def data() -> Path:
    return Path(__file__).parent / "data"


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(base: str = ".", line: int = 1, **fields: Any) -> Record:
    return Record("c.jsonl", line, fields, base)


def scanned(
    *sources: Path | str,
    model: ModelCard = ENGLISH,
    defaults: RowDefaults | None = None,
    warn: Callable[[str], None] | None = None,
    **plan: Any,
) -> tuple[dict[str, Utterance], dict[int, Failure]]:
    """Utterances by id and failures by line."""
    corpus = CorpusPlan(tuple(map(str, sources)), **plan)
    rows = list(scan(corpus, defaults or RowDefaults(), model, warn=warn))
    made = [r for r in rows if isinstance(r, Utterance)]
    failed = [r for r in rows if isinstance(r, Failure)]
    assert len({u.id for u in made}) == len(made)
    return {u.id: u for u in made}, {f.line: f for f in failed}


def tone(
    path: Path, seconds: float, *, peak: float = 0.5, rate_hz: int = 8000, channels: int = 1
) -> Path:
    """Write a WAV file of a plain tone."""
    t = np.arange(int(seconds * rate_hz)) / rate_hz
    samples = np.repeat((peak * np.sin(2 * np.pi * 220 * t))[:, None], channels, axis=1)
    soundfile.write(path, samples.clip(-1, 1), rate_hz)
    return path
