"""`ttsbatch verify` on every format and layout: planted faults are found and named."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.test_verify import look_inside as look
from tests.cli.test_verify import named
from tests.sinks.fake_run import manifest, run, utterance
from ttsbatch.audio.formats import FORMATS
from ttsbatch.sinks import tar as tar_files

ROWS = [utterance(f"r{i}") for i in range(5)]  # two shards of three rows
EVERY = [(format, layout) for format in FORMATS for layout in ("dir", "tar", "parquet")]


def make(tmp_path: Path, format: str, layout: str, codes: bool = False) -> Path:
    out = tmp_path / "out"
    run(out, ROWS, codes=codes, format=format, layout=layout)
    return out


@pytest.mark.parametrize(("format", "layout"), EVERY)
def test_clean_run_passes(tmp_path: Path, format: str, layout: str) -> None:
    found = look(make(tmp_path, format, layout, codes=True), 0)
    assert found["utterances"]["made"] == 5
    assert found["findings"] == {}


@pytest.mark.parametrize("format", ["flac", "opus", "mp3"])
def test_torn_and_wrong_files_are_named(tmp_path: Path, format: str) -> None:
    out = make(tmp_path, format, "dir")
    files = [out / m["audio_filepath"] for m in manifest(out)]
    os.truncate(files[0], files[0].stat().st_size - 5)
    shutil.copy(files[2], files[1])  # as many bytes as it should be, of another row
    files[3].unlink()
    with files[4].open("ab") as file:
        file.write(b"tag")
    found = look(out, 6)
    assert named(found, "torn_file") == ["r0", "r4"]
    assert named(found, "wrong_samples") == ["r1"]
    assert named(found, "file_missing") == ["r3"]


@pytest.mark.parametrize("layout", ["dir", "tar"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_flipped_bit_in_a_flac_is_found(tmp_path: Path, layout: str, share: float) -> None:
    out = make(tmp_path, "flac", layout)
    line = manifest(out)[1]
    path = out / line["audio_filepath"].partition("#")[0]
    data = bytearray(path.read_bytes())
    start = 0 if layout == "dir" else data.index(b"fLaC", data.index(b"r1.flac"))
    head = data.index(b"\xff\xf8", start) - start  # of the first frame
    data[start + head + int(share * (line["num_bytes"] - head))] ^= 4
    path.write_bytes(data)
    found = look(out, 6)
    assert named(found, "torn_file") == ["r1"]
    assert list(found["findings"]) == ["torn_file"]


def test_flac_whose_samples_are_others_than_its_checksum_is_found(tmp_path: Path) -> None:
    out = make(tmp_path, "flac", "dir")
    path = out / manifest(out)[1]["audio_filepath"]
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    assert "not those of its checksum" in str(look(out, 6)["findings"]["torn_file"])


def damage_tar(out: Path, name: str, change) -> None:
    """Write the rows of a shard anew, members changed: (name, data) -> list of the same."""
    path = out / name
    with tarfile.open(path) as tar:
        members = [(info.name, tar.extractfile(info).read()) for info in tar]
    data = b"".join(tar_files.member(*m) for member in members for m in change(*member))
    path.write_bytes(data + tar_files.END)


def test_rows_of_a_tar_that_are_wrong_are_named(tmp_path: Path) -> None:
    out = make(tmp_path, "wav", "tar", codes=True)

    def change(name: str, data: bytes) -> list[tuple[str, bytes]]:
        if name == "r0.wav":
            return [(name, data[:-2])]
        if name.startswith("r1."):
            return []
        if name == "r2.codes.npy":
            return [(name, data[:-2])]
        return [(name, data)]

    damage_tar(out, "audio/shard-00000.tar", change)
    found = look(out, 6)
    assert named(found, "torn_file") == ["r0", "r2"]
    assert named(found, "file_missing") == ["r1"]
    message = found["findings"]["torn_file"]["examples"][0]["message"]
    assert "audio/shard-00000.tar#r0.wav: cut short" in message


def test_extra_and_doubled_rows_of_a_tar_are_found(tmp_path: Path) -> None:
    out = make(tmp_path, "wav", "tar")

    def change(name: str, data: bytes) -> list[tuple[str, bytes]]:
        twice = [(name, data)] * (2 if name == "r3.wav" else 1)
        return [*twice, ("stray.wav", data)] if name == "r4.json" else twice

    damage_tar(out, "audio/shard-00001.tar", change)
    found = look(out, 6)
    assert "shard-00001.tar#r3: is there twice" in str(found["findings"]["doubled"])
    assert "shard-00001.tar#stray.wav: no line names it" in str(found["findings"]["orphan_file"])


@pytest.mark.parametrize("size", [-1, -700, -4000, 300, 0])
def test_torn_tar_is_named_and_so_are_the_rows_that_it_lost(tmp_path: Path, size: int) -> None:
    out = make(tmp_path, "wav", "tar")
    path = out / "audio/shard-00000.tar"
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    found = look(out, 6)
    ids = named(found, "torn_file")
    assert None in ids  # the file as a whole
    assert ("r2" in ids) == (size not in (-1, -700))
    assert list(found["findings"]) == ["torn_file"]


def test_missing_and_stray_shards_are_found(tmp_path: Path) -> None:
    out = make(tmp_path, "wav", "tar")
    shutil.copy(out / "audio/shard-00000.tar", out / "audio/shard-00007.tar")
    (out / "audio/shard-00001.tar").unlink()
    found = look(out, 6)
    assert named(found, "file_missing") == ["r3", "r4"]
    assert found["findings"]["orphan_file"]["count"] == 3


def test_rows_of_a_parquet_that_are_wrong_are_named(tmp_path: Path) -> None:
    out = make(tmp_path, "flac", "parquet", codes=True)
    path = out / "audio/shard-00000.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0]["audio"]["bytes"] = rows[0]["audio"]["bytes"][:-4]
    rows[1]["codes"] = rows[1]["codes"][:-1]
    rows[2]["audio"]["path"] = "stray.flac"
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    found = look(out, 6)
    assert named(found, "torn_file") == ["r0"]
    assert named(found, "wrong_codes") == ["r1"]
    assert named(found, "file_missing") == ["r2"]
    assert found["findings"]["orphan_file"]["count"] == 1


def test_flipped_byte_in_the_audio_of_a_parquet_is_found(tmp_path: Path) -> None:
    out = make(tmp_path, "wav", "parquet")
    path = out / "audio/shard-00000.parquet"
    data = bytearray(path.read_bytes())
    data[data.index(b"RIFF") + 90] ^= 4  # a sample: only the page's checksum can tell
    path.write_bytes(data)
    found = look(out, 6)
    assert set(named(found, "torn_file")) == {"r0", "r1", "r2", None}


@pytest.mark.parametrize("size", [0, 10, -1, -300])
def test_torn_parquet_is_named(tmp_path: Path, size: int) -> None:
    out = make(tmp_path, "wav", "parquet")
    path = out / "audio/shard-00001.parquet"
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    assert set(named(look(out, 6), "torn_file")) == {"r3", "r4", None}


def test_codes_of_a_tar_are_those_of_the_row(tmp_path: Path) -> None:
    out = make(tmp_path, "opus", "tar", codes=True)
    line = manifest(out)[4]
    assert line["codes_filepath"] == "audio/shard-00001.tar#r4.codes.npy"
    with tarfile.open(out / "audio/shard-00001.tar") as tar:
        codes = np.load(io.BytesIO(tar.extractfile("r4.codes.npy").read()))
    assert (codes.dtype, codes.shape) == (np.int16, (3, 2))
