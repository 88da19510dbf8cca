"""Names of files: safe everywhere, apart from each other, and the same in any order."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sinks.fake_run import utterance
from ttsbatch.sinks.names import NameBook, fold, safe_path


def assert_safe(path: str) -> None:
    for part in f"{path}.wav".split("/"):
        stem = part.split(".")[0].rstrip(" ").upper()
        assert part not in ("", ".", "..")
        assert part[0] not in "-. "
        assert part[-1] not in " ."
        assert len(part.encode("utf8")) <= 255
        assert not re.search(r'[<>:"|?*\\\x00-\x1f]', part)
        assert not re.fullmatch(r"CON|PRN|AUX|NUL|COM[0-9]|LPT[0-9]", stem)


@pytest.mark.parametrize(
    ("id", "file_name", "expected"),
    [
        ("LJX01-0001", None, "LJX01-0001"),
        ("a.b", None, "a.b"),
        ("日本 語", None, "日本 語"),
        ("x", "speaker1/greeting", "speaker1/greeting"),
        ("x", "speaker1/greeting.WAV", "speaker1/greeting"),
        ("x", "", "x"),
    ],
)
def test_safe_wish_is_kept(id: str, file_name: str | None, expected: str) -> None:
    assert safe_path(id, file_name) == expected


@pytest.mark.parametrize(
    "wish",
    [
        *("a/b", "..", ".", "-rf", ".hidden", "a ", "a.", "CON", "nul.txt", "COM1", 'a"b', "a:b"),
        *("a\\b", "a\nb", "a\x00b", "x" * 300, "é" * 200, "\ud800", " "),
    ],
)
def test_unsafe_id_is_mapped_with_a_hash(wish: str) -> None:
    path = safe_path(wish, None)
    assert_safe(path)
    assert "/" not in path
    assert re.search(r"-[0-9a-f]{10}$", path)


@pytest.mark.parametrize(
    "wish",
    ["/etc/passwd", "../../x", "a//b", "a/", "/", "a/../b", "a.wav/b", "C:\\x", "d/" * 500 + "e"],
)
def test_unsafe_file_name_stays_below_the_shard(wish: str) -> None:
    path = safe_path("id", wish)
    assert_safe(path)
    assert not path.startswith("/")
    assert path.endswith(safe_path("..", None)[-11]) or re.search(r"-[0-9a-f]{10}$", path)


def test_names_that_meet_without_case_are_told_apart_in_any_order() -> None:
    ids = ["A", "a", "b", "é", "e\u0301", "ﬀ", "ff", "a/b", "a_b", "straße", "STRASSE"]
    rows = [utterance(i) for i in ids] + [utterance("z1", file_name="b"), utterance("z2")]
    seen = set()
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        book = NameBook()
        for u in rows:
            book.note(u)
        names = {u.id: book.path(u) for u in rows}
        assert len({fold(n) for n in names.values()}) == len(rows)
        assert names["z2"] == "z2"
        seen.add(tuple(sorted(names.items())))
    assert len(seen) == 1


@given(st.lists(st.text(min_size=1), unique=True, max_size=6), st.data())
def test_any_ids_get_safe_names_of_their_own(ids: list[str], data: st.DataObject) -> None:
    rows = [
        utterance(i, file_name=data.draw(st.none() | st.text("aA/.\\ wv-é:", max_size=9)))
        for i in ids
    ]
    book = NameBook()
    for u in rows:
        book.note(u)
    names = [book.path(u) for u in rows]
    for name in names:
        assert_safe(name)
    assert len({fold(n) for n in names}) == len(names)
    for a, b in itertools.permutations(names, 2):  # no file is another one's folder
        assert not fold(b).startswith(fold(a + ".wav") + "/")
