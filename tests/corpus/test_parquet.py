"""The Parquet reader."""

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ttsbatch.corpus.parquet import _BATCH_ROWS
from ttsbatch.corpus.read import read_corpus
from ttsbatch.errors import CorpusError
from ttsbatch.plan import CorpusPlan
from ttsbatch.types import Failure, Record

from .conftest import VOICES, scanned
from .test_open import zst

MAPPING = {"id": "utt_id", "text": "sentence", "language": "lang", "voice": "spk"}


def write(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_mapped_dictionary_and_large_string_columns_equal_the_csv(data: Path) -> None:
    by_csv, _ = scanned(data / "12_column_mapping.csv", model=VOICES, mapping=MAPPING)
    by_parquet, failed = scanned(data / "12_column_mapping.parquet", model=VOICES, mapping=MAPPING)
    assert not failed
    for i, utterance in by_csv.items():
        other = by_parquet[i]
        assert (other.text, other.language, other.voice, other.seed) == (
            utterance.text,
            utterance.language,
            utterance.voice,
            utterance.seed,
        )
    assert [u.line for u in by_csv.values()] == [2, 3, 4, 5, 7]
    assert [u.line for u in by_parquet.values()] == [1, 2, 3, 4, 5]
    assert by_csv["utt_0004"].text == "Line one\nline two"
    assert by_csv["utt_0001"].language == "de"


@pytest.mark.parametrize("name", ["12_column_mapping.csv", "12_column_mapping.parquet"])
def test_without_the_mapping_the_columns_found_are_named(data: Path, name: str) -> None:
    with pytest.raises(CorpusError, match=r"utt_id, sentence, lang, spk; .*--map text=sentence"):
        scanned(data / name)


def test_rows_are_numbered_through_batches_and_row_groups(tmp_path: Path) -> None:
    n = _BATCH_ROWS * 2 + 3
    table = pa.table({"id": list(range(n)), "text": ["a"] * n})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000)
    made, _ = scanned(tmp_path / "a.parquet")
    assert [(u.id, u.line) for u in made.values()] == [(str(i), i + 1) for i in range(n)]


def test_a_compressed_parquet_file_is_unpacked(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.parquet", id=["a"], text=["One."])
    (tmp_path / "b.parquet.zst").write_bytes(zst(plain.read_bytes()))
    assert list(scanned(tmp_path / "b.parquet.zst")[0]) == ["a"]


def test_values_that_json_has_no_word_for_are_carried_as_what_they_say(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.parquet",
        id=[1.0],
        text=["One."],
        day=[dt.date(2026, 2, 3)],
        at=[dt.datetime(2026, 2, 3, 4, 5)],
        price=[decimal.Decimal("1.50")],
        raw=[b"abc"],
        blob=[b"\xff"],
        score=[float("nan")],
        tags=[["a", None]],
        meta=[{"n": float("inf")}],
        none=pa.nulls(1),
    )
    made, _ = scanned(path)
    extra = dict(made["1"].extra)
    json.dumps(extra, allow_nan=False)
    assert extra == {
        "day": "2026-02-03",
        "at": "2026-02-03T04:05:00",
        "price": "1.50",
        "raw": "abc",
        "blob": "/w==",
        "score": None,
        "tags": ["a", None],
        "meta": {"n": None},
        "none": None,
    }


def test_nulls_are_absent_and_types_are_checked(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.parquet",
        id=["a", None, "c", "d"],
        text=["One.", "Two.", None, "Four."],
        seed=pa.array([7, None, None, -1], pa.int64()),
    )
    made, failed = scanned(path)
    assert made["a"].seed == 7
    assert [u.line for u in made.values()] == [1, 2]
    assert {i: f.reason for i, f in failed.items()} == {3: "missing_text", 4: "bad_value"}
    path = write(tmp_path / "b.parquet", text=["One."], seed=["7"])
    assert scanned(path)[1][1].reason == "wrong_type"


def test_a_string_that_is_no_utf8_fails_its_row_alone(tmp_path: Path) -> None:
    raw = pa.array([b"One.", b"caf\xe9", None, b"Four."], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    path = write(tmp_path / "a.parquet", id=list("abcd"), text=text, n=[1, 2, 3, 4])
    rows = list(read_corpus(CorpusPlan((str(path),))))
    assert [type(r) for r in rows] == [Record, Failure, Record, Record]
    failure = rows[1]
    assert isinstance(failure, Failure)
    assert failure.reason == "bad_unicode"
    assert failure.row == {"id": "b", "text": "caf\\xe9", "n": 2}


@pytest.mark.parametrize("content", [b"", b"PAR1 no parquet at all PAR1"])
def test_a_damaged_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(CorpusError, match=r"a\.parquet: cannot be read"):
        scanned(tmp_path / "a.parquet")


def test_a_damaged_page_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", text=[f"text {i}" for i in range(2000)])
    content = bytearray(path.read_bytes())
    content[20:2000] = b"\x55" * 1980
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"a\.parquet: cannot be read"):
        scanned(path)
