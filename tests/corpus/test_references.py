"""Reference clips."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from ttsbatch.corpus import references
from ttsbatch.corpus.references import ReferenceProblem, References

from .conftest import tone


def reason(path: Path | str, base: str = ".") -> str | None:
    found = References().find(str(path), base)
    return found.reason if isinstance(found, ReferenceProblem) else None


@pytest.mark.parametrize(
    ("tone_of", "expected"),
    [
        ({"seconds": 1}, None),
        ({"seconds": 1, "peak": 4.0}, None),
        ({"seconds": 1, "channels": 2, "rate_hz": 44_100}, None),
        ({"seconds": 0.1}, None),
        ({"seconds": 0.09}, "ref_too_short"),
        ({"seconds": 0}, "ref_too_short"),
        ({"seconds": 30}, None),
        ({"seconds": 30.01}, "ref_too_long"),
        ({"seconds": 1, "peak": 0.0}, "ref_silent"),
        ({"seconds": 1, "peak": 0.0009}, "ref_silent"),
        ({"seconds": 1, "peak": 0.0011}, None),
    ],
)
def test_a_clip_is_long_and_loud_enough(
    tmp_path: Path, tone_of: dict[str, Any], expected: str | None
) -> None:
    assert reason(tone(tmp_path / "a.wav", **tone_of)) == expected


def test_what_is_no_audio_is_unreadable(tmp_path: Path) -> None:
    for name in ("a.wav", "a.raw", "a.mp3"):
        (tmp_path / name).write_bytes(b"no audio in here")
        assert reason(tmp_path / name) == "ref_unreadable"
    (tmp_path / "empty.wav").write_bytes(b"")
    assert reason(tmp_path / "empty.wav") == "ref_unreadable"
    assert reason(tmp_path) == "ref_unreadable"
    soundfile.write(tmp_path / "nan.wav", np.full(8000, np.nan, np.float32), 8000, subtype="FLOAT")
    assert reason(tmp_path / "nan.wav") == "ref_unreadable"
    assert reason("a.wav", "s3://bucket/folder") == "ref_unreadable"


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (7.9, None),
        (8.1, "ref_unreadable"),
        (32_767.0, "ref_unreadable"),
        (2.0**23, "ref_unreadable"),
        (1e25, "ref_unreadable"),
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_integers_kept_as_floats_are_no_audio(
    tmp_path: Path, peak: float, expected: str | None, channels: int
) -> None:
    samples = np.zeros((8000, channels), np.float32)
    samples[:, -1] = peak * np.sin(np.arange(8000) / 5)
    soundfile.write(tmp_path / "a.wav", samples, 8000, subtype="FLOAT")
    found = References().find("a.wav", str(tmp_path))
    assert (found.reason if isinstance(found, ReferenceProblem) else None) == expected
    if isinstance(found, ReferenceProblem):
        assert f"peaks at {np.abs(samples).max():g}; expected floats of -1 to 1" in found.message


@pytest.mark.parametrize("name", ["none.wav", "", "a\0b.wav", "x" * 5000, "no/such/folder/a.wav"])
def test_what_is_not_there_is_missing(tmp_path: Path, name: str) -> None:
    assert reason(name, str(tmp_path)) == "ref_missing"


def test_names_are_taken_as_written_before_backslashes_are_slashes(tmp_path: Path) -> None:
    (tmp_path / "refs").mkdir()
    inside = tone(tmp_path / "refs" / "naïve räum.wav", 1)
    find = References().find
    assert find("refs\\naïve räum.wav", str(tmp_path)) == str(inside)
    odd = tone(tmp_path / "refs\\naïve räum.wav", 1)
    assert References().find("refs\\naïve räum.wav", str(tmp_path)) == str(odd)


def test_a_clip_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tone(tmp_path / "a.wav", 1)
    calls = []
    real = references.check_clip
    monkeypatch.setattr(references, "check_clip", lambda *a: calls.append(a) or real(*a))
    known = References()
    assert [known.find("a.wav", str(tmp_path)) for _ in range(5)] == [str(path)] * 5
    assert len(calls) == 1
