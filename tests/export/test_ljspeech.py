"""`export --to ljspeech`: metadata.csv of three fields, and 16-bit WAV files."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.export.conftest import ROWS, as_format, call, export, manifest, samples
from ttsbatch.export.ljspeech import one_field


def read(path: Path) -> list[list[str]]:
    with (path / "metadata.csv").open(encoding="utf8", newline="") as file:
        return list(csv.reader(file, delimiter="|", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("form", ["wav", "flac", "float"])
def test_metadata_and_files_hold_every_row(out: Path, form: str) -> None:
    expected = samples(out)
    if form == "flac":
        as_format(out, "flac")
    if form == "float":
        as_format(out, "wav", subtype="FLOAT")
    path = export(out, "ljspeech")
    rows = read(path)
    assert [len(r) for r in rows] == [3] * len(expected)
    texts = {r["id"]: r["text"] for r in ROWS}
    for (key, text, spoken), (id, wave) in zip(rows, expected.items(), strict=True):
        file = path / "wavs" / f"{key}.wav"
        info = soundfile.info(file)
        assert (info.format, info.subtype, info.channels) == ("WAV", "PCM_16", 1)
        assert np.array_equal(soundfile.read(file, dtype="int16")[0], wave)
        assert text == one_field(texts[id])
        assert spoken
    assert len(list((path / "wavs").iterdir())) == len(rows)
    assert len({r[0].casefold() for r in rows}) == len(rows)
    assert not (path / "flagged.txt").exists()


def test_opus_is_decoded_to_the_length_of_the_row(out: Path) -> None:
    expected = samples(out)
    as_format(out, "opus", format="OGG", subtype="OPUS")
    path = export(out, "ljspeech")
    for (key, *_), wave in zip(read(path), expected.values(), strict=True):
        got, rate_hz = soundfile.read(path / "wavs" / f"{key}.wav", dtype="int16")
        assert len(got) / rate_hz == pytest.approx(len(wave) / 24_000, abs=0.03)
        assert abs(int(np.abs(got).max()) - int(np.abs(wave).max())) < 9_000


def test_damaged_flac_is_named_and_leaves_no_export(out: Path) -> None:
    as_format(out, "flac")
    line = manifest(out)[2]
    path = out / line["audio_filepath"]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    target = out.parent / "damaged"
    result = call("export", out, "--to", "ljspeech", "-o", target)
    assert result.exit_code == 6
    assert f"{line['audio_filepath']}: is damaged" in result.stderr
    assert "Traceback" not in result.stderr
    assert not target.exists()


def test_flagged_rows_are_listed_beside_the_metadata(out: Path) -> None:
    path = export(out, "ljspeech", "--include-flagged")
    assert len(read(path)) == len(ROWS)
    assert (path / "flagged.txt").read_text("utf8") == "bad\n"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a|b", "a b"),
        ("a | b", "a b"),
        ("a\r\nb\n", "a b"),
        ("a\u2028b\x85c\tb", "a b c b"),
        ('"a" b', '"a" b'),
        ("a  b", "a  b"),
    ],
)
def test_a_field_holds_no_pipe_and_no_line_break(text: str, field: str) -> None:
    assert one_field(text) == field
    assert len(field.splitlines()) == 1
