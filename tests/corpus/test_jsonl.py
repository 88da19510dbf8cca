"""The JSON Lines reader."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ttsbatch.corpus.lines import physical_lines
from ttsbatch.corpus.read import read_corpus
from ttsbatch.errors import CorpusError, PlanError
from ttsbatch.plan import CorpusPlan
from ttsbatch.types import Failure, Record

from .conftest import scanned


def read(path: Path, content: bytes, **plan: object) -> list[Record | Failure]:
    path.write_bytes(content)
    return list(read_corpus(CorpusPlan((str(path),), **plan)))  # type: ignore[arg-type]


def one(path: Path, line: bytes) -> Record | Failure:
    (row,) = read(path, line + b"\n")
    return row


def test_lines_are_split_at_newlines_only(tmp_path: Path) -> None:
    content = '{"id": "a", "text": "x\u2028y\u0085z"}\r\n\n \t\r\n{"id": "b", "text": "t"}'
    rows = read(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + content.encode())
    assert [(r.line, r.fields["id"]) for r in rows if isinstance(r, Record)] == [(1, "a"), (4, "b")]
    assert len(rows) == 2


def test_a_line_longer_than_a_chunk_stays_whole(tmp_path: Path) -> None:
    text = "word " * 300_000
    rows = read(tmp_path / "a.jsonl", json.dumps({"text": text}).encode() + b'\n{"text": "b"}\n')
    assert [r.fields["text"] for r in rows if isinstance(r, Record)] == [text, "b"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "invalid_json"),
        (b"{'text': 'a'}", "invalid_json"),
        (b'{"text": "a"} // why', "invalid_json"),
        (b'{"text": "a", "x": NaN}', "invalid_json"),
        (b'{"text": "a", "x": -Infinity}', "invalid_json"),
        (b'{"text": "a\x00b"}', "invalid_json"),
        (b'{"text": "a", "x": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b'{"text": "a", "x": ' + b"[" * 100 + b"]" * 100 + b"}", "invalid_json"),
        (b'{"text": "a", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "invalid_json"),
        (b"[" * 200_000, "invalid_json"),
        (b'["a"]', "not_an_object"),
        (b"null", "not_an_object"),
        (b"1.5", "not_an_object"),
        (b'{"text": "caf\xe9"}', "bad_unicode"),
        (b'{"text": "\xed\xa0\x80"}', "bad_unicode"),
        (b"\xff\x00\xff", "bad_unicode"),
    ],
)
def test_a_line_that_is_no_row_fails_alone(tmp_path: Path, line: bytes, reason: str) -> None:
    good = b'{"text": "good"}'
    rows = read(tmp_path / "a.jsonl", b"\n".join((good, line, good)))
    assert [r.line for r in rows] == [1, 2, 3]
    failure = rows[1]
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.reason, failure.utterance_id) == ("read", reason, None)
    assert failure.message
    assert isinstance(failure.row, str)
    failure.row.encode("utf8")


def test_of_a_key_given_twice_the_last_counts(tmp_path: Path) -> None:
    row = one(tmp_path / "a.jsonl", b'{"text": "a", "text": "b"}')
    assert isinstance(row, Record)
    assert row.fields == {"text": "b"}


def test_numbers_that_json_cannot_hold_become_null_in_extra(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id": "a", "text": "t", "x": [1e999, {"y": -1e999}]}')
    made, _ = scanned(tmp_path / "a.jsonl")
    assert made["a"].extra == {"x": [None, {"y": None}]}


def test_utf_16_is_an_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"is UTF-16; expected UTF-8"):
        read(tmp_path / "a.jsonl", '{"text": "a"}'.encode("utf-16"))


def test_rows_that_all_call_the_text_something_else_are_an_error(tmp_path: Path) -> None:
    content = b'{"id": "a", "sentence": "One."}\n' * 3
    with pytest.raises(CorpusError, match=r"found: id, sentence; .*--map text=sentence"):
        read(tmp_path / "a.jsonl", content)
    with pytest.raises(CorpusError, match=r"--map text=sentence"):
        read(tmp_path / "a.jsonl", content * 2000)
    rows = read(tmp_path / "a.jsonl", content, mapping={"text": "sentence"})
    assert [r.fields for r in rows if isinstance(r, Record)] == [{"id": "a", "text": "One."}] * 3


def test_one_row_with_text_makes_the_others_single_failures(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"sentence": "One."}\n{"id": "b", "text": "Two."}\n')
    made, failed = scanned(tmp_path / "a.jsonl")
    assert list(made) == ["b"]
    assert failed[1].reason == "missing_text"


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert read(tmp_path / "a.jsonl", b"") == []
    assert read(tmp_path / "a.jsonl", b"\n\r\n") == []


def test_mapping_a_column_keeps_the_column_that_had_the_name(tmp_path: Path) -> None:
    content = b'{"id": "a", "text": "raw", "norm": "spoken"}'
    rows = read(tmp_path / "a.jsonl", content, mapping={"text": "norm"})
    assert [r.fields for r in rows if isinstance(r, Record)] == [
        {"id": "a", "text_column": "raw", "text": "spoken"}
    ]


def test_mapping_something_that_is_no_field_is_a_plan_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="'txet'"):
        read(tmp_path / "a.jsonl", b"", mapping={"txet": "x"})


class Chunks:
    """A stream that gives a few bytes at a time."""

    def __init__(self, content: bytes, size: int) -> None:
        self.content, self.size = content, size

    def read(self, _: int) -> bytes:
        chunk, self.content = self.content[: self.size], self.content[self.size :]
        return chunk


@given(st.binary(max_size=60), st.integers(min_value=3, max_value=9))
def test_lines_do_not_depend_on_chunks(content: bytes, size: int) -> None:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return
    lines = list(physical_lines(Chunks(content, size), "x"))
    plain = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not plain[-1]:
        plain.pop()
    assert lines == [(i, x.removesuffix(b"\r")) for i, x in enumerate(plain, 1)]


FIELD = st.sampled_from(["id", "text", "seed", "voice", "top_k", "split", "language", "note"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
LINE = st.binary(max_size=40) | st.dictionaries(FIELD, JSON, max_size=4).map(
    lambda row: json.dumps(row).encode()
)


@given(st.lists(LINE, max_size=8))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None
)
def test_any_lines_at_all_are_made_or_rejected_and_none_is_lost(
    tmp_path: Path, lines: list[bytes]
) -> None:
    content = b'{"id": "the-first", "text": "A good row."}\n' + b"\n".join(lines)
    (tmp_path / "a.jsonl").write_bytes(content)
    made, failed = scanned(tmp_path / "a.jsonl")
    expected = [i for i, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    assert sorted([*failed, *(u.line for u in made.values())]) == expected
    for failure in failed.values():
        json.dumps([failure.row, failure.message, failure.utterance_id], allow_nan=False)
    for utterance in made.values():
        utterance.spoken_text.encode("utf8")
        json.dumps(utterance.extra, allow_nan=False)


def test_a_mapped_column_that_no_row_has_is_named_with_those_that_there_are(
    tmp_path: Path,
) -> None:
    line = b'{"id": "a", "text": "One.", "book": "lamp"}\n'
    said = r"--map text=foo: no column 'foo'; columns found: id, text, book$"
    with pytest.raises(CorpusError, match=said):
        read(tmp_path / "a.jsonl", line, mapping={"text": "foo"})


def test_a_row_without_its_text_is_told_of_the_names_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "a", "foo": "Yes."}\n{"text": "No."}\n{"foo": null}\n{"foo": ""}\n')
    _, failed = scanned(path, mapping={"text": "foo"})
    assert {n: f.reason for n, f in failed.items()} == {
        2: "missing_text",
        3: "missing_text",
        4: "empty_text",
    }
    assert failed[2].message == 'no "foo" (--map text=foo); fields found: text'
    assert failed[3].message.startswith('"foo" (--map text=foo) is null')


def test_a_null_text_is_called_null_and_not_absent(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "a", "text": null}\n{"id": "b"}\n')
    _, failed = scanned(path)
    assert failed[1].message.startswith('"text" is null')
    assert failed[2].message == 'no "text"; fields found: id (see --map)'


@pytest.mark.parametrize("line", [b'{"id": "a', b'{"a" 1}', b'{"a": "\x01"}', b"{", b"nonsense"])
def test_a_line_that_is_no_json_says_once_where(tmp_path: Path, line: bytes) -> None:
    found = one(tmp_path / "a.jsonl", line)
    assert isinstance(found, Failure)
    assert found.message.count(" at ") == 1
    assert re.search(r" at character \d+$", found.message)
