"""The whole way from files to utterances."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ttsbatch.corpus.scan import scan
from ttsbatch.errors import CorpusError, PlanError
from ttsbatch.plan import CorpusPlan, RowDefaults
from ttsbatch.types import Utterance

from .conftest import ENGLISH, VOICES, scanned


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_bad_rows_are_rejected_and_good_ones_made(data: Path) -> None:
    made, failed = scanned(data / "02_bad_rows.jsonl")
    by_line = {u.line: u.id for u in made.values()}
    assert by_line[1] == "good-1"
    assert by_line[11] == "7"
    assert by_line[16] == "good-3"
    assert set(by_line) == {1, 11, 12, 16}
    assert {line: (f.utterance_id, f.reason) for line, f in failed.items()} == {
        2: (None, "invalid_json"),
        3: (None, "not_an_object"),
        4: (None, "not_an_object"),
        5: (None, "not_an_object"),
        6: ("no-text", "missing_text"),
        7: ("null-text", "missing_text"),
        8: ("int-text", "wrong_type"),
        9: ("list-text", "wrong_type"),
        13: (None, "invalid_json"),
        14: (None, "invalid_json"),
        15: (None, "invalid_json"),
    }


def test_a_byte_order_mark_and_carriage_returns_leave_no_trace(data: Path) -> None:
    made, failed = scanned(data / "04_bom_crlf.jsonl")
    assert {u.id: u.line for u in made.values()} == {"bom-1": 1, "bom-2": 2, "bom-3": 4}
    assert not failed


@pytest.mark.parametrize(
    ("model", "defaults", "reasons"),
    [
        (
            ENGLISH,
            RowDefaults(),
            {
                4: "unknown_voice", 5: "unknown_voice", 6: "unsupported_option",
                7: "unsupported_option", 9: "unknown_voice", 10: "wrong_type",
                11: "unsupported_option", 14: "unknown_language",
            },
        ),
        (
            VOICES,
            RowDefaults(voice="Serena"),
            {9: "unknown_voice", 10: "wrong_type", 11: "bad_value", 14: "unknown_language"},
        ),
    ],
)  # fmt: skip
def test_what_a_row_may_say_depends_on_the_model(
    data: Path, model: Any, defaults: RowDefaults, reasons: dict[int, str]
) -> None:
    made, failed = scanned(data / "11_per_row_params.jsonl", model=model, defaults=defaults)
    assert {line: f.reason for line, f in failed.items()} == reasons
    assert len(made) + len(failed) == 15
    assert made["pr-13"].language == "en"
    assert made["pr-8"].file_name == "speaker1/greeting"


def test_the_first_row_holds_its_id_even_if_it_is_rejected(in_tmp: Path) -> None:
    row = {"id": "a", "text": "One."}
    write(in_tmp / "x.jsonl", row, row, {"id": "b", "text": 1}, {"id": "b", "text": "Good."})
    write(in_tmp / "y.jsonl", {"id": "c", "text": "Two."}, {"id": "a", "text": ""})
    rows = list(scan(CorpusPlan(("x.jsonl", "y.jsonl")), RowDefaults(), ENGLISH))
    assert [r.id if isinstance(r, Utterance) else r.reason for r in rows] == [
        "a",
        "duplicate_id",
        "wrong_type",
        "duplicate_id",
        "c",
        "duplicate_id",
    ]


def test_a_number_and_its_decimal_form_are_one_id(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"id": 7, "text": "x"}, {"id": "7", "text": "y"})
    made, failed = scanned(path)
    assert made["7"].text == "x"
    assert failed[2].reason == "duplicate_id"
    assert failed[2].row == {"id": "7", "text": "y"}


def test_rows_without_ids_in_files_of_one_name_do_not_collide(in_tmp: Path) -> None:
    for folder in ("x", "y"):
        (in_tmp / folder).mkdir()
        write(in_tmp / folder / "a.jsonl", {"text": "One."}, {"text": "Two."})
    rows = list(scan(CorpusPlan(("*/a.jsonl",)), RowDefaults(), ENGLISH))
    assert len({r.id for r in rows if isinstance(r, Utterance)}) == 4


def test_the_limit_counts_rejected_rows_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"id": "a", "text": "One."}\nbroken\n{"id": "b", "text": "Two."}\n')
    made, failed = scanned(path, limit=2)
    assert (list(made), list(failed)) == (["a"], [3])


def test_two_passes_give_the_same(data: Path) -> None:
    for path in sorted(data.glob("*.jsonl")):
        assert scanned(path) == scanned(path)


def test_missing_files_and_bad_options_are_found_before_the_first_row(in_tmp: Path) -> None:
    write(in_tmp / "a.jsonl", {"text": "One."})
    with pytest.raises(CorpusError, match="no such file"):
        scan(CorpusPlan(("a.jsonl", "b.jsonl")), RowDefaults(), ENGLISH)
    with pytest.raises(PlanError, match="--voice"):
        scan(CorpusPlan(("a.jsonl",)), RowDefaults(voice="nobody"), ENGLISH)


def test_nothing_here_needs_torch() -> None:
    code = "import sys, ttsbatch.corpus.scan, ttsbatch.text.duration; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
