"""CSV, TSV and TXT."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ttsbatch.corpus.read import read_corpus
from ttsbatch.corpus.table import split_quoted
from ttsbatch.errors import CorpusError, PlanError
from ttsbatch.plan import CorpusPlan
from ttsbatch.types import Failure, Record

from .conftest import VOICES, scanned


def read(path: Path, content: str | bytes, **plan: Any) -> list[Record | Failure]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_corpus(CorpusPlan((str(path),), **plan)))


def found(rows: list[Record | Failure]) -> list[tuple[int, Any]]:
    return [(r.line, r.fields if isinstance(r, Record) else r.reason) for r in rows]


def test_quoted_cells_hold_delimiters_quotes_and_line_ends(tmp_path: Path) -> None:
    content = '\ufefftext,note\r\n"a, ""b""",x\r\n\r\n"one\r\ntwo",y\r\nlast,"z"'
    assert found(read(tmp_path / "a.csv", content)) == [
        (2, {"text": 'a, "b"', "note": "x"}),
        (4, {"text": "one\ntwo", "note": "y"}),
        (6, {"text": "last", "note": "z"}),
    ]


def test_a_carriage_return_or_line_separator_inside_a_line_ends_no_row(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.csv", "text\none\rtwo\nthree\u2028four\n")
    assert found(rows) == [(2, {"text": "one\rtwo"}), (3, {"text": "three\u2028four"})]


@pytest.mark.parametrize("trailing", [3, 3000])
def test_a_quote_that_is_never_closed_spoils_one_row(tmp_path: Path, trailing: int) -> None:
    content = 'id,text\na,"open\n' + "".join(f"b{i},fine {i}\n" for i in range(trailing))
    rows = read(tmp_path / "a.csv", content)
    assert len(rows) == 1 + trailing
    assert found(rows)[0] == (2, "bad_value")
    assert found(rows)[-1] == (
        2 + trailing,
        {"id": f"b{trailing - 1}", "text": f"fine {trailing - 1}"},
    )


def test_too_many_cells_fail_and_missing_ones_are_empty(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.csv", "id,text,note\na,Hello, you, there\nb,Hello\n")
    assert found(rows) == [(2, "bad_value"), (3, {"id": "b", "text": "Hello"})]
    assert isinstance(rows[0], Failure)
    assert rows[0].message == "4 cells; expected 3: id, text, note"


def test_bytes_that_are_no_utf8_fail_their_row_alone(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.csv", b'text\n"caf\xe9\nau lait"\nfine\n')
    assert found(rows) == [(2, "bad_unicode"), (4, {"text": "fine"})]
    assert isinstance(rows[0], Failure)
    assert rows[0].row == '"caf\\xe9\nau lait"'
    rows = read(tmp_path / "a.txt", b"caf\xe9\nfine\n")
    assert found(rows) == [(1, "bad_unicode"), (2, {"text": "fine"})]


def test_numbers_and_bools_are_converted_and_empty_cells_are_absent(tmp_path: Path) -> None:
    content = (
        "id,text,seed,temperature,split,voice,note,language\n"
        "007,a,7,0.5,false,,,\n"
        "b,b,7.0,1,YES,ryan,n,en\n"
        "c,c,seven,,,Ryan,,\n"
        "d,d,1_0,,,Ryan,,\n"
        'e,e,,"0,5",,Ryan,,\n'
        "f,f,,,maybe,Ryan,,\n"
        "g,g,,nan,,Ryan,,\n"
        "h,h,,1e999,,Ryan,,\n"
    )
    (tmp_path / "a.csv").write_text(content)
    made, failed = scanned(tmp_path / "a.csv", model=VOICES)
    assert {i: f.reason for i, f in failed.items()} == {
        2: "unknown_voice",
        **dict.fromkeys((4, 5, 6, 7, 8), "wrong_type"),
        9: "bad_value",
    }
    (b,) = made.values()
    assert (b.seed, b.sampling.temperature, b.split, b.voice) == (7, 1.0, True, "Ryan")
    assert b.extra == {"note": "n"}


def test_ids_of_digits_stay_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n007,a\n7,b\n")
    assert list(scanned(tmp_path / "a.csv")[0]) == ["007", "7"]


def test_between_bars_nothing_is_quoted(data: Path) -> None:
    made, failed = scanned(
        data / "18_ljspeech_metadata.csv",
        delimiter="|",
        header=False,
        mapping={"id": "0", "text": "2"},
    )
    assert not failed
    assert {u.line: (u.id, u.text) for u in made.values()} == {
        1: ("LJX01-0001", "The mill closed in nineteen thirty-one."),
        2: ("LJX01-0002", 'He said, "not today," twice.'),
        3: ("LJX01-0003", "Doctor Lind paid five pounds."),
    }
    assert made["LJX01-0003"].extra == {"1": "Dr. Lind paid £5."}


def test_a_bar_separated_text_file_is_a_table_too(tmp_path: Path) -> None:
    rows = read(
        tmp_path / "list.txt",
        'a.wav|"Open\nb.wav|Two\n',
        delimiter="|",
        header=False,
        mapping={"text": "1"},
    )
    assert found(rows) == [(1, {"0": "a.wav", "text": '"Open'}), (2, {"0": "b.wav", "text": "Two"})]


def test_between_tabs_only_well_formed_quotes_are_quotes(tmp_path: Path) -> None:
    content = 'text\tnote\n"Yes," he said.\tx\n"a\tb"\ty\n"He said ""no""."\tz\n"Open\tw\n\tempty\n'
    assert found(read(tmp_path / "a.tsv", content)) == [
        (2, {"text": '"Yes," he said.', "note": "x"}),
        (3, {"text": "a\tb", "note": "y"}),
        (4, {"text": 'He said "no".', "note": "z"}),
        (5, {"text": '"Open', "note": "w"}),
        (6, {"text": None, "note": "empty"}),
    ]


def test_another_delimiter_splits_the_cells(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.csv", 'id;text\na;"x; y, z"\n', delimiter=";")
    assert found(rows) == [(2, {"id": "a", "text": "x; y, z"})]


@pytest.mark.parametrize(
    ("content", "plan", "message"),
    [
        ("", {}, "is empty; expected a header"),
        ("utt,sentence\na,b\n", {}, r"columns found: utt, sentence; .*--map text=sentence"),
        ("a,b\nx,y\n", {"header": False}, r"columns found: 0, 1; .*--map text="),
        ("a,b\nx,y\n", {"mapping": {"text": "c"}}, r"--map text=c: no column 'c'; .*: a, b"),
        ("text\nx\n", {"mapping": {"id": "utt"}}, "no column 'utt'"),
        ("text,text\nx,y\n", {}, "names a column twice: text"),
        ('text,"note\nx,y\n', {}, "the header cannot be read"),
    ],
)
def test_a_table_without_a_text_column_is_an_error(
    tmp_path: Path, content: str, plan: dict[str, Any], message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / "a.csv", content, **plan)


@pytest.mark.parametrize("plan", [{"delimiter": ";"}, {"header": False}])
def test_table_options_without_a_table_are_a_plan_error(tmp_path: Path, plan: Any) -> None:
    with pytest.raises(PlanError, match=r"there is none"):
        read(tmp_path / "a.jsonl", "", **plan)


def test_each_line_of_a_text_file_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"One, two.\r\n\r\n  \n Three.\n...\n"))
    made, failed = scanned(tmp_path / "a.txt.gz")
    assert [(u.line, u.text, u.spoken_text) for u in made.values()] == [
        (1, "One, two.", "One, two."),
        (4, " Three.", "Three."),
    ]
    assert {i: f.reason for i, f in failed.items()} == {5: "empty_text"}


CELL = st.text(st.sampled_from('ab ,"\n'), max_size=6)


@given(st.lists(CELL, min_size=1, max_size=4))
def test_what_is_quoted_comes_back(cells: list[str]) -> None:
    quoted = ",".join('"' + c.replace('"', '""') + '"' for c in cells)
    assert split_quoted(quoted, ",") == cells


@given(st.text(st.sampled_from('ab,"\n\r\t'), max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_letter_of_a_table_is_lost(tmp_path: Path, body: str) -> None:
    rows = read(tmp_path / "a.csv", "text\n" + body)
    kept = ""
    for row in rows:
        kept += "".join(str(v) for v in row.fields.values()) if isinstance(row, Record) else row.row
    assert [c for c in kept if c in "ab"] == [c for c in body if c in "ab"]
