"""The estimate of how long a text takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttsbatch.text.duration import _CLASSES, _EDGES_S, _RATES_S, expected_seconds


@pytest.mark.parametrize(
    ("text", "language", "least", "most"),
    [
        ("He can be a nightmare to work with.", "en", 2.0, 3.0),
        ("The quick brown fox jumps over the lazy dog near the river bank.", "en", 3.0, 5.0),
        ("他一直行，是个有文化的人。", "zh", 2.5, 4.5),
        ("こんにちは、ありがとうございます。", "ja", 2.0, 4.0),
        ("안녕하세요, 만나서 반갑습니다.", "ko", 2.5, 4.5),
        ("مرحبا، كيف الحال اليوم؟", "ar", 1.5, 4.0),
        ("Dial 555-0142.", "en", 2.5, 4.0),
        ("", "auto", 0.5, 0.5),
    ],
)
def test_seconds_are_those_of_plain_speech(
    text: str, language: str, least: float, most: float
) -> None:
    assert least <= expected_seconds(text, language) <= most


def test_digits_take_longer_than_letters() -> None:
    assert expected_seconds("1234567", "en") > 2 * expected_seconds("abcdefg", "en")


def test_an_ideograph_takes_longer_in_japanese() -> None:
    assert expected_seconds("東京都", "ja") > expected_seconds("東京都", "zh")


def test_combining_marks_cost_nothing() -> None:
    assert expected_seconds("e\u0301a", "fr") == expected_seconds("ea", "fr")


@given(st.text(), st.text())
def test_more_text_never_takes_less_time(a: str, b: str) -> None:
    assert 0.5 <= expected_seconds(a, "auto") <= expected_seconds(a + b, "auto")


@given(st.text(st.characters(max_codepoint=127)))
def test_a_text_of_ascii_takes_what_its_characters_take_in_any_text(text: str) -> None:
    classes = text.translate(_CLASSES)
    plain = _EDGES_S + sum(classes.count(c) * rate for c, rate in _RATES_S.items())
    assert expected_seconds(text, "en") == plain
