"""`ttsbatch synth` in every format and layout, through the command line."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from tests.cli.test_synth import cli
from tests.families import HIBARI, VOXCPM2, Family
from tests.sinks.fake_run import audio, content, manifest, stored
from ttsbatch.audio.finish import finish
from ttsbatch.audio.formats import FORMATS
from ttsbatch.audio.loudness import integrated_lufs
from ttsbatch.audio.resample import resampled_length
from ttsbatch.sinks.manifest import manifest_line

__all__ = ["cli"]  # the fixture
Rows = Callable[..., Path]
ROWS = [
    {"id": "a", "text": "Good morning."},
    {"id": "b.c", "text": "Good night.", "mood": {"calm": [1, None]}},
    {"id": "d", "text": "And so on.", "file_name": "two/d.wav"},
]
EVERY = [(f, layout, HIBARI) for f in FORMATS for layout in ("dir", "tar", "parquet")]
EVERY += [(f, "parquet", VOXCPM2) for f in FORMATS]  # of 48 kHz


@pytest.mark.parametrize(("format", "layout", "family"), EVERY)
def test_every_format_in_every_layout_is_whole_and_comes_out_the_same_again(
    cli: Any, write_rows: Rows, format: str, layout: str, family: Family
) -> None:
    corpus = write_rows(*ROWS)
    options = ("--format", format, "--layout", layout, "--shard-size", "2", *family.model_option)
    assert cli("synth", corpus, "-o", "out", *options).exit_code == 0
    lines = {m["id"]: m for m in manifest(Path("out"))}
    files = audio(Path("out"))
    for row_id, data in files.items():
        samples, rate_hz = soundfile.read(io.BytesIO(data), dtype="int16")
        line = lines[row_id]
        assert (len(samples), rate_hz) == (line["num_samples"], line["sample_rate"])
        assert rate_hz == family.sample_rate_hz
        assert line["duration"] == line["num_samples"] / rate_hz
        assert np.abs(samples.astype(int)).max() > 3_000
    assert cli("verify", "out").exit_code == 0
    before = content(Path("out"))
    assert cli("synth", corpus, "-o", "out", *options).exit_code == 0
    assert content(Path("out")) == before
    assert cli("synth", corpus, "-o", "again", *options).exit_code == 0
    assert dict(stored(Path("again"))) == dict(stored(Path("out")))


@pytest.mark.parametrize("format", FORMATS)
def test_file_cut_short_by_any_amount_is_made_again_and_no_other(
    cli: Any, write_rows: Rows, format: str
) -> None:
    options = (write_rows(*ROWS), "-o", "out", "--format", format)
    assert cli("synth", *options).exit_code == 0
    before = content(Path("out"))
    torn, *others = (Path("out", m["audio_filepath"]) for m in manifest(Path("out")))
    size = torn.stat().st_size
    assert manifest(Path("out"))[0]["num_bytes"] == size
    for left in (size - 1, size // 2, 60, 0):
        os.truncate(torn, left)
        assert f"gone or cut short: {torn.relative_to('out')}\n" in cli("synth", *options).stderr
        now = content(Path("out"))
        for path in (torn, *others):
            name = path.relative_to("out").as_posix()
            assert now[name][0] == before[name][0]
            assert (now[name][1] == before[name][1]) == (path != torn)
        assert cli("verify", "out").exit_code == 0


@pytest.mark.parametrize("format", FORMATS)
def test_output_of_a_version_that_kept_no_sizes_is_whole_still(
    cli: Any, write_rows: Rows, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_size(*args: Any) -> bytes:
        return re.sub(rb', "num_bytes": \d+', b"", manifest_line(*args))

    options = (write_rows(*ROWS), "-o", "out", "--format", format)
    with monkeypatch.context() as patch:
        patch.setattr("ttsbatch.sinks.shards.manifest_line", without_size)
        assert cli("synth", *options).exit_code == 0
    assert not any("num_bytes" in m for m in manifest(Path("out")))
    before = content(Path("out"))
    assert cli("synth", *options).exit_code == 0
    assert content(Path("out")) == before
    assert cli("verify", "out").exit_code == 0
    os.truncate(Path("out", manifest(Path("out"))[0]["audio_filepath"]), 0)
    assert cli("synth", *options).exit_code == 0
    assert {p: c[0] for p, c in content(Path("out")).items() if p.startswith("audio/")} == {
        p: c[0] for p, c in before.items() if p.startswith("audio/")
    }


def test_paths_of_each_layout(cli: Any, write_rows: Rows) -> None:
    corpus = write_rows(*ROWS)
    paths = {}
    for layout in ("dir", "tar", "parquet"):
        options = ("--format", "opus", "--layout", layout)
        assert cli("synth", corpus, "-o", layout, *options).exit_code == 0
        paths[layout] = [m["audio_filepath"] for m in manifest(Path(layout))]
        assert not (Path(layout) / "ledger/open").exists() or not list(
            (Path(layout) / "ledger/open").iterdir()
        )
    assert paths["dir"][1:] == ["audio/shard-00000/b.c.opus", "audio/shard-00000/two/d.opus"]
    assert [p.split("#")[0] for p in paths["tar"]] == ["audio/shard-00000.tar"] * 3
    names = [p.split("#")[1] for p in paths["tar"]]
    assert names[0] == "a.opus"
    assert names[1].startswith("b_c-")  # a dot would end WebDataset's key
    assert names[1].count(".") == 1
    assert names[2] == "two/d.opus"
    assert [p.split("#") for p in paths["parquet"]] == [
        ["audio/shard-00000.parquet", name] for name in names
    ]


def test_tar_has_the_row_beside_its_audio(cli: Any, write_rows: Rows) -> None:
    assert cli("synth", write_rows(*ROWS), "-o", "out", "--layout", "tar").exit_code == 0
    with tarfile.open("out/audio/shard-00000.tar") as tar:
        members = [(info.name, tar.extractfile(info).read()) for info in tar]
    assert [name.rsplit(".")[1] for name, _ in members] == ["wav", "txt", "json"] * 3
    texts = [data.decode() for name, data in members if name.endswith(".txt")]
    assert texts == [m["text"] for m in manifest(Path("out"))]
    rows = [json.loads(data) for name, data in members if name.endswith(".json")]
    assert rows == manifest(Path("out"))


@pytest.mark.parametrize("family", [HIBARI, VOXCPM2], ids=lambda f: f.name)
def test_parquet_has_the_row_and_the_types_of_datasets(
    cli: Any, write_rows: Rows, family: Family
) -> None:
    options = ("-o", "out", "--layout", "parquet", *family.model_option)
    assert cli("synth", write_rows(*ROWS), *options).exit_code == 0
    table = pq.read_table("out/audio/shard-00000.parquet")
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["audio"] == {"sampling_rate": family.sample_rate_hz, "_type": "Audio"}
    assert list(features) == table.schema.names
    for row, line in zip(table.to_pylist(), manifest(Path("out")), strict=True):
        same = ("id", "text", "spoken_text", "duration", "num_samples", "seed", "file_name", "line")
        assert {n: row[n] for n in same} == {n: line[n] for n in same}
        assert row["verdict"] == line["checks"]["verdict"]
        for name in ("extra", "checks", "segments"):
            assert json.loads(row[name]) == line[name]


@pytest.mark.parametrize(
    ("family", "rate_hz"),
    [*((HIBARI, hz) for hz in (8_000, 22_050, 48_000)), (VOXCPM2, 16_000), (VOXCPM2, 44_100)],
)
@pytest.mark.parametrize("format", ["wav", "mp3"])
def test_resampled_rows_have_the_exact_length_and_are_the_resampled_rows(
    cli: Any, write_rows: Rows, family: Family, rate_hz: int, format: str
) -> None:
    corpus = write_rows(*ROWS)
    assert cli("synth", corpus, "-o", "plain", *family.model_option).exit_code == 0
    options = ("--format", format, "--sample-rate", str(rate_hz), *family.model_option)
    assert cli("synth", corpus, "-o", "out", *options).exit_code == 0
    plain, files = audio(Path("plain")), audio(Path("out"))
    for line in manifest(Path("out")):
        source = soundfile.read(io.BytesIO(plain[line["id"]]), dtype="int16")[0]
        samples, found_hz = soundfile.read(io.BytesIO(files[line["id"]]), dtype="int16")
        assert len(samples) == resampled_length(len(source), family.sample_rate_hz, rate_hz)
        assert (line["num_samples"], line["sample_rate"]) == (len(samples), found_hz)
        assert found_hz == rate_hz
        if format == "wav":
            assert np.array_equal(samples, finish(source, family.sample_rate_hz, rate_hz).samples)
    assert json.loads(Path("out/report.json").read_text())["audio_seconds"] > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "ogg"], ["--format is 'ogg'", "wav, flac, opus, mp3"]),
        (["--format", "opus", "--sample-rate", "44100"], ["8000, 12000, 16000, 24000 or 48000"]),
        (["--format", "mp3", "--sample-rate", "96000"], ["--sample-rate is 96000", "or 48000"]),
        (["--sample-rate", "7999"], ["8000 to 192000 with --format wav"]),
        (["--layout", "zip"], ["dir, tar, parquet"]),
        (["--loudness", "3"], ["-50 to -5 LUFS"]),
        (["--loudness", "nan"], ["-50 to -5 LUFS"]),
    ],
)
def test_what_cannot_be_written_exits_2_and_says_what_can(
    cli: Any, write_rows: Rows, options: list[str], words: list[str]
) -> None:
    result = cli("synth", write_rows(*ROWS), "-o", "out", *options)
    assert result.exit_code == 2
    assert [w for w in words if w not in result.stderr] == []
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "change",
    [
        ["--format", "flac"],
        ["--sample-rate", "16000"],
        ["--loudness", "-20"],
        ["--layout", "tar"],
        ["--layout", "parquet"],
    ],
)
def test_a_changed_format_is_refused_and_changes_no_byte(
    cli: Any, write_rows: Rows, change: list[str]
) -> None:
    corpus = write_rows(*ROWS)
    assert cli("synth", corpus, "-o", "out").exit_code == 0
    assert cli("synth", corpus, "-o", "out", "--sample-rate", "24000").exit_code == 0  # the same
    before = content(Path("out"))
    result = cli("synth", corpus, "-o", "out", *change)
    assert result.exit_code == 2
    assert f"{change[0].removeprefix('--')} was" in result.stderr
    assert content(Path("out")) == before


def test_recipe_has_the_names_of_the_options(cli: Any, write_rows: Rows) -> None:
    write_rows(*ROWS)
    Path("r.toml").write_text(
        'corpus = "rows.jsonl"\nout = "out"\nformat = "flac"\nsample-rate = 16000\n'
        'loudness = -23\nlayout = "tar"\n'
    )
    assert cli("synth", "--recipe", "r.toml").exit_code == 0
    line = manifest(Path("out"))[0]
    assert line["audio_filepath"] == "audio/shard-00000.tar#a.flac"
    assert line["sample_rate"] == 16_000
    assert line["checks"]["loudness"]["lufs"] == -23.0


def test_loudness_of_real_speech_is_the_target(
    write_rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from ttsbatch.cli.app import app

    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": "long", "text": "The ferry to the island leaves at nine, before the storm."},
        {"id": "short", "text": "Yes."},
    ]
    options = ["--loudness", "-23", "--sample-rate", "16000", "--format", "flac"]
    command = ["synth", str(write_rows(*rows)), "-o", "out", "--quiet", *options]
    assert CliRunner().invoke(app, command).exit_code == 0
    for row_id, data in audio(Path("out")).items():
        samples, rate_hz = soundfile.read(io.BytesIO(data), dtype="float32")
        assert integrated_lufs(samples, rate_hz) == pytest.approx(-23, abs=0.1), row_id
        assert np.abs(samples).max() < 0.9
