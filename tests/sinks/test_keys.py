"""The resume key changes with what is heard, and with nothing else."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.fake_run import utterance
from ttsbatch.sinks.keys import content_key, settings_fingerprint
from ttsbatch.types import Sampling

BASE = utterance("a")


@pytest.mark.parametrize(
    "change",
    [
        {"text": "x"},
        {"spoken_text": "x"},
        {"voice": "two"},
        {"language": "de"},
        {"seed": 8},
        {"instruct": "sad"},
        {"ref_text": "x"},
        {"sampling": Sampling(temperature=0.1)},
        {"sampling": Sampling(top_k=1)},
        {"max_seconds": 2.0},
        {"split": False},
    ],
)
def test_key_changes_with(change: dict[str, Any]) -> None:
    assert content_key(replace(BASE, **change), "f") != content_key(BASE, "f")


@pytest.mark.parametrize(
    "change", [{"line": 9}, {"source": "x"}, {"extra": {"a": 1}}, {"file_name": "x"}]
)
def test_key_stays_with(change: dict[str, Any]) -> None:
    assert content_key(replace(BASE, **change), "f") == content_key(BASE, "f")


def test_key_changes_with_the_settings() -> None:
    one, two = settings_fingerprint({"a": 1, "b": 2}), settings_fingerprint({"a": 1, "b": 3})
    assert one == settings_fingerprint({"b": 2, "a": 1})
    assert content_key(BASE, one) != content_key(BASE, two)


def test_reference_counts_by_its_content(tmp_path: Path) -> None:
    a, b = tmp_path / "a.wav", tmp_path / "b.wav"
    a.write_bytes(b"one")
    b.write_bytes(b"one")
    key = content_key(replace(BASE, ref_audio=str(a)), "f")
    assert key == content_key(replace(BASE, ref_audio=str(b)), "f")
    a.write_bytes(b"two")
    os.utime(a, ns=(1, 1))
    assert key != content_key(replace(BASE, ref_audio=str(a)), "f")
    assert key != content_key(BASE, "f")
