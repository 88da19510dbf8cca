"""Words that are compared, and how many differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttsbatch.quality.words import num_errors, tokens


@pytest.mark.parametrize(
    ("one", "other", "language"),
    [
        ("It's 42 degrees.", "its forty-two degrees", "en"),
        ("DON’T – stop!", "don't stop", "en"),
        ("Ich nehme 3 Äpfel", "ich nehme drei äpfel.", "de"),
        ("他一直行，是个有文化的人。", "他一直行 是个有文化的人", "zh"),
        ("안녕 하세요", "안녕하세요.", "ko"),
    ],
)
def test_spelling_is_no_difference(one: str, other: str, language: str) -> None:
    assert tokens(one, language) == tokens(other, language)


def test_scripts_without_spaces_are_compared_by_character() -> None:
    assert tokens("你好 world", "zh") == ["你", "好", "world"]


@pytest.mark.parametrize(
    ("expected", "heard", "errors"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "a x c", 1),
        ("a b c", "b c", 1),
        ("a b", "a x y b", 2),
        ("", "a b", 2),
        ("a b", "", 2),
    ],
)
def test_errors_are_the_fewest_changes(expected: str, heard: str, errors: int) -> None:
    assert num_errors(expected.split(), heard.split()) == errors


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_errors_are_symmetric_and_bounded(a: list[str], b: list[str]) -> None:
    assert num_errors(a, b) == num_errors(b, a) <= max(len(a), len(b))
    assert (num_errors(a, b) == 0) == (a == b)
