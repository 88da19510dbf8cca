"""`export --to nemo`: the fields that NeMo reads, and the files that they name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.export.conftest import ROWS, as_layout, export, samples


@pytest.mark.parametrize("layout", ["dir", "tar", "parquet"])
def test_every_line_has_the_fields_and_the_samples(out: Path, layout: str) -> None:
    expected = samples(out)
    if layout != "dir":
        as_layout(out, layout)
    path = export(out, "nemo")
    lines = [json.loads(s) for s in (path / "manifest.jsonl").read_text("utf8").split("\n") if s]
    texts = {r["id"]: r["text"] for r in ROWS}
    assert [m["id"] for m in lines] == list(expected)
    for m in lines:
        got, rate_hz = soundfile.read(path / m["audio_filepath"], dtype="int16")
        assert np.array_equal(got, expected[m["id"]])
        assert m["duration"] == pytest.approx(len(got) / rate_hz)
        assert m["sampling_rate"] == rate_hz
        assert m["text"] == texts[m["id"]]
        assert isinstance(m["normalized_text"], str)
        assert m.get("lang") == ("en" if m["id"] == "Ünïcode" else None)
        assert "offset" not in m
    assert len(list((path / "audio").rglob("*.wav"))) == len(lines)


def test_links_are_the_files_of_out(out: Path) -> None:
    path = export(out, "nemo", "--link")
    for m in map(json.loads, (path / "manifest.jsonl").read_text("utf8").splitlines()):
        assert (path / m["audio_filepath"]).samefile(out / m["audio_filepath"])
