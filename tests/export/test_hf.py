"""`export --to hf`, opened with `datasets`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard

from tests.export.conftest import GOOD_IDS, ROWS, as_format, decoded, export, manifest, samples


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def load(path: Path, tmp_path: Path, *arguments: str, **more: Any) -> datasets.Dataset:
    """The train split, its audio as bytes or a file."""
    found = datasets.load_dataset(
        *(arguments or (str(path),)), split="train", cache_dir=str(tmp_path / "cache"), **more
    )
    assert isinstance(found.features["audio"], datasets.Audio)
    return found.cast_column("audio", datasets.Audio(decode=False))


def check(found: datasets.Dataset, out: Path) -> None:
    """Each row once, and its samples and numbers those of OUT."""
    expected = samples(out)
    assert found["id"] == list(expected) == GOOD_IDS
    texts = {r["id"]: r["text"] for r in ROWS}
    for row in found:
        audio = row["audio"]
        got, rate_hz = decoded(audio["bytes"] or Path(audio["path"]).read_bytes())
        assert np.array_equal(got, expected[row["id"]])
        assert row["num_samples"] == len(got)
        assert row["sample_rate"] == rate_hz
        assert row["duration"] == pytest.approx(len(got) / rate_hz)
        assert row["text"] == texts[row["id"]]
        assert row["verdict"] == "pass"
    assert json.loads(found[5 - 1]["extra"]) == {"kind": {"deep": [1, None]}}


def test_parquet_opens_in_datasets_with_every_sample(out: Path, tmp_path: Path) -> None:
    path = export(out, "hf", "--shard-size", "3")
    names = [p.name for p in sorted((path / "data").iterdir())]
    assert names == [f"train-{i:05d}-of-00003.parquet" for i in range(3)]
    found = load(path, tmp_path)
    check(found, out)
    assert found.features["num_samples"].dtype == "int64"
    assert found.features["id"].dtype == "string"


def test_parquet_alone_says_what_its_columns_are(out: Path, tmp_path: Path) -> None:
    path = export(out, "hf")
    data = str(path / "data/train-00000-of-00001.parquet")
    check(load(path, tmp_path, "parquet", data_files=data), out)
    assert pq.ParquetFile(data).schema_arrow.field("audio").type.num_fields == 2


def test_audiofolder_opens_in_datasets_with_every_sample(out: Path, tmp_path: Path) -> None:
    rows = [r for r in manifest(out) if r["id"] != "bad"]
    path = export(out, "hf", "--audiofolder")
    found = load(path, tmp_path, "audiofolder", data_dir=str(path))
    assert sorted(found["id"]) == sorted(r["id"] for r in rows)
    order = {id: i for i, id in enumerate(found["id"])}
    check(found.select([order[r["id"]] for r in rows]), out)


def test_card_says_what_is_in_it(out: Path) -> None:
    path = export(out, "hf", "--include-flagged")
    text = (path / "README.md").read_text("utf8")
    header = DatasetCard(text).data.to_dict()
    assert header["language"] == ["en"]
    assert header["size_categories"] == ["n<1K"]
    assert header["dataset_info"]["splits"][0]["num_examples"] == len(ROWS)
    assert "flagged by the quality checks: 1" in text


def test_flagged_rows_are_marked_in_the_columns(out: Path, tmp_path: Path) -> None:
    found = load(export(out, "hf", "--include-flagged"), tmp_path)
    marks = {r["id"]: (r["verdict"], r["reasons"]) for r in found}
    assert [id for id, (verdict, _) in marks.items() if verdict == "flag"] == ["bad"]
    assert "silent" in marks["bad"][1].split(",")


def test_flac_goes_into_the_cells_as_it_is(out: Path, tmp_path: Path) -> None:
    expected = samples(out)
    as_format(out, "flac")
    for row in load(export(out, "hf"), tmp_path):
        assert row["audio"]["bytes"][:4] == b"fLaC"
        assert row["audio"]["path"].endswith(".flac")
        assert np.array_equal(decoded(row["audio"]["bytes"])[0], expected[row["id"]])
