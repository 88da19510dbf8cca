"""`export --to webdataset`, opened with webdataset."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import webdataset

from tests.export.conftest import GOOD_IDS, ROWS, as_format, as_layout, decoded, export, samples

# Its readers leave files to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]


def read(path: Path) -> list[dict[str, object]]:
    urls = [str(p) for p in sorted(path.glob("*.tar"))]
    return list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False))


@pytest.mark.parametrize("layout", ["dir", "tar", "parquet"])
def test_samples_open_in_webdataset_with_every_sample(out: Path, layout: str) -> None:
    expected = samples(out)
    if layout != "dir":
        as_layout(out, layout)
    path = export(out, "webdataset", "--shard-size", "3")
    assert [p.name for p in sorted(path.iterdir())] == [f"shard-{i:06d}.tar" for i in range(3)]
    found = read(path)
    texts = {r["id"]: r["text"] for r in ROWS}
    assert [json.loads(f["json"])["id"] for f in found] == GOOD_IDS
    for row in found:
        about = json.loads(row["json"])
        got, rate_hz = decoded(row["wav"])
        assert np.array_equal(got, expected[about["id"]])
        assert (about["num_samples"], about["sample_rate"]) == (len(got), rate_hz)
        assert about["duration"] == pytest.approx(len(got) / rate_hz)
        assert row["txt"].decode() == texts[about["id"]]
    assert len({f["__key__"] for f in found}) == len(GOOD_IDS)


def test_flac_is_a_field_of_its_name(out: Path) -> None:
    as_format(out, "flac")
    assert all(f["flac"][:4] == b"fLaC" for f in read(export(out, "webdataset")))


def test_the_same_rows_give_the_same_bytes(out: Path) -> None:
    first = export(out, "webdataset")
    second = export(out, "webdataset", "--shard-size", "1000")
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()
