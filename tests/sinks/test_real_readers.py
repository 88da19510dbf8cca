"""Shards in the libraries that they are made for: `datasets` and `webdataset`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.sinks.fake_run import manifest, run, utterance

ROWS = [utterance(f"r{i}", extra={"a": [i]}) for i in range(4)]


def length(data: bytes) -> int:
    return len(soundfile.read(io.BytesIO(data))[0])


def test_parquet_shards_are_audio_to_datasets(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    run(tmp_path / "out", ROWS, codes=True, layout="parquet", format="flac", sample_rate=16_000)
    files = sorted(map(str, (tmp_path / "out/audio").glob("*.parquet")))
    loaded = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
    )
    assert isinstance(loaded.features["audio"], datasets.Audio)
    assert loaded.features["audio"].sampling_rate == 16_000
    raw = loaded.cast_column("audio", datasets.Audio(decode=False))
    for row, line in zip(raw, manifest(tmp_path / "out"), strict=True):
        assert row["id"] == line["id"]
        assert row["audio"]["path"] == f"{line['id']}.flac"
        assert length(row["audio"]["bytes"]) == row["num_samples"] == line["num_samples"]
        assert np.array(row["codes"]).shape == (line["num_frames"], 2)


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # it leaves its files to the garbage collector
def test_tar_shards_are_samples_to_webdataset(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    run(tmp_path / "out", ROWS, codes=True, layout="tar", format="opus", sample_rate=16_000)
    files = sorted(map(str, (tmp_path / "out/audio").glob("*.tar")))
    samples = list(webdataset.WebDataset(files, shardshuffle=False))
    lines = manifest(tmp_path / "out")
    assert [s["__key__"] for s in samples] == [m["id"] for m in lines]
    for sample, line in zip(samples, lines, strict=True):
        assert json.loads(sample["json"]) == line
        assert length(sample["opus"]) == line["num_samples"]
        assert np.load(io.BytesIO(sample["codes.npy"])).shape == (line["num_frames"], 2)
