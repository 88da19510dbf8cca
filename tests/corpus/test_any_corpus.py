"""Any rows in any format: all of them come back, or a message says that they do not."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ttsbatch.corpus.read import read_corpus
from ttsbatch.errors import CorpusError
from ttsbatch.plan import CorpusPlan
from ttsbatch.types import Failure, Record, Utterance

from . import hostile
from .conftest import ENGLISH, scanned
from .test_open import zst

in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60
)
WRITABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
ROWS = b"".join(
    json.dumps({"id": f"r{i}", "text": f"Row {i} of many, {'and more ' * (i % 9)}"}).encode()
    + b"\n"
    for i in range(300)
)
PACKED = {"gz": gzip.compress(ROWS), "zst": zst(ROWS)}


def read(path: Path, **plan: object) -> list[Record | Failure]:
    return list(read_corpus(CorpusPlan((str(path),), **plan)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", PACKED)
@given(data=st.data())
@in_one_folder
def test_a_packed_file_cut_anywhere_is_an_error_and_never_a_shorter_corpus(
    tmp_path: Path, kind: str, data: st.DataObject
) -> None:
    whole = PACKED[kind]
    path = tmp_path / f"a.jsonl.{kind}"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(CorpusError, match=r"cannot be read to its end|has no bytes at all"):
        read(path)


@pytest.mark.parametrize("kind", PACKED)
def test_packed_files_put_one_after_the_other_are_all_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"a.jsonl.{kind}").write_bytes(PACKED[kind] * 2)
    assert len(read(tmp_path / f"a.jsonl.{kind}")) == 600


@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.booleans())
@in_one_folder
def test_line_ends_and_a_byte_order_mark_change_no_row(
    tmp_path: Path, seed: int, bom: bool, crlf: bool, last: bool
) -> None:
    lines = [x.replace(b"\n", b"").removesuffix(b"\r") for x in hostile.lines(8, seed, 100)]
    lines[0] = b'{"id": "first", "text": "The first row."}'
    (tmp_path / "plain.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    end = b"\r\n" if crlf else b"\n"
    content = (b"\xef\xbb\xbf" if bom else b"") + end.join(lines) + (end if last else b"")
    (tmp_path / "other.jsonl").write_bytes(content)
    plain, other = read(tmp_path / "plain.jsonl"), read(tmp_path / "other.jsonl")
    assert [_content(r) for r in other] == [_content(r) for r in plain]


def _content(row: Record | Failure) -> tuple[object, ...]:
    if isinstance(row, Failure):
        return row.line, row.reason, row.row
    return row.line, repr(dict(row.fields))  # as text: NaN is not equal to itself


@given(st.lists(st.tuples(WRITABLE, WRITABLE), min_size=1, max_size=6), st.booleans())
@in_one_folder
def test_cells_that_a_csv_writer_wrote_come_back(
    tmp_path: Path, rows: list[tuple[str, str]], quote_all: bool
) -> None:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL)
    writer.writerow(("text", "note"))
    writer.writerows(rows)
    (tmp_path / "a.csv").write_text(buffer.getvalue(), "utf8", newline="")
    found = read(tmp_path / "a.csv")
    assert [(r.fields["text"], r.fields["note"]) for r in found if isinstance(r, Record)] == [
        (text or None, note or None) for text, note in rows
    ]


@given(st.lists(st.tuples(WRITABLE, st.none() | WRITABLE, st.none() | WRITABLE), max_size=8))
@in_one_folder
def test_a_parquet_file_gives_the_utterances_of_the_same_jsonl(
    tmp_path: Path, rows: list[tuple[str, str | None, str | None]]
) -> None:
    names = ("id", "text", "language")
    rows = [("first", "The first row.", None), *rows]
    columns = {n: pa.array([r[i] for r in rows], pa.string()) for i, n in enumerate(names)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    text = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(text)
    (made, failed), (others, also) = (scanned(tmp_path / f"a.{k}") for k in ("parquet", "jsonl"))
    assert {i: _said(u) for i, u in made.items()} == {i: _said(u) for i, u in others.items()}
    assert {i: f.reason for i, f in failed.items()} == {i: f.reason for i, f in also.items()}


def _said(u: Utterance) -> tuple[object, ...]:
    assert u.voice == ENGLISH.default_voice
    return u.text, u.spoken_text, u.language, u.seed, u.line
