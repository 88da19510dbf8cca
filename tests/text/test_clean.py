"""The clean-up of text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttsbatch.text.clean import has_speech, spoken


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Plain text.", "Plain text."),
        ("  two   spaces\n and\ta line ", "two spaces and a line"),
        ("no\u00a0break\u3000wide\u2028line", "no break wide line"),
        ("soft\u00adhy\u200bphen\ufeff", "softhyphen"),
        ("Cafe\u0301", "Caf\u00e9"),
        ("e\u200d\u0301", "\u00e9"),
        ("bell\x07 nul\x00 private\ue000", "bell nul private"),
        ("\u202eright to left\u202c", "right to left"),
        ("\x85next\x1cfield", "next field"),
        ("", ""),
    ],
)
def test_text_is_cleaned(text: str, expected: str) -> None:
    assert spoken(text) == expected


@given(st.text(st.characters()))
def test_cleaning_twice_changes_nothing_and_leaves_nothing_invisible(text: str) -> None:
    once = spoken(text)
    assert spoken(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert not {unicodedata.category(c) for c in once} & {"Cc", "Cf", "Cs", "Co"}
    assert "  " not in once
    assert once == once.strip()


@given(st.text())
def test_cleaning_loses_no_letter_or_digit(text: str) -> None:
    def letters(value: str) -> str:
        kept = [c for c in value if unicodedata.category(c)[0] not in "CZ"]
        return unicodedata.normalize("NFD", "".join(kept))

    assert letters(spoken(text)) == letters(text)


@pytest.mark.parametrize("text", ["3", "½", "a", "你", "ا", "\u0301x", "...no", "Ⅳ"])
def test_a_letter_or_digit_of_any_script_is_speech(text: str) -> None:
    assert has_speech(text)


@pytest.mark.parametrize("text", ["", "...", "—", "🙂🎉", "* * *", "\u0301", "\u3164", "。"])
def test_punctuation_emoji_and_blank_letters_are_no_speech(text: str) -> None:
    assert not has_speech(text)
