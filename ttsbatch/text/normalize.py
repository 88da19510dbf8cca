"""The text front-end: what a model is sent for a text as given."""

from __future__ import annotations

import re

from ttsbatch.text.clean import has_speech, spoken
from ttsbatch.text.markup import without_markup, words_alone
from ttsbatch.text.numbers import NUMBER_LANGUAGES, read_numbers
from ttsbatch.text.typography import plain_letters

# Letters, spaces and the punctuation that nothing here changes: most rows of most corpora.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z ,.;:!?'\"-]*")
_MOST_ROUNDS = 8


def normalized(text: str, language: str) -> str:
    """What is spoken of `text`: cleaned, letters plain, without markup, numbers in words.

    Idempotent; holds a letter or digit if `text` does.

    Args:
        text: as given.
        language: ISO 639 code; numbers are read in the ten of `NUMBER_LANGUAGES` and stay as
            digits in others, "auto" among them.
    """
    if _is_plain(text):
        return " ".join(text.split())
    for _ in range(_MOST_ROUNDS):
        before, text = text, _once(text, language)
        if text == before or _is_plain(text):
            break
    return text


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and "www." not in text.lower()


def _once(text: str, language: str) -> str:
    given = text
    text = plain_letters(text, language)
    if not text.isascii():  # once more after clean-up would find what an invisible one hid
        text = "".join([c for c in text if c == "\n" or c.isspace() or c.isprintable()])
    text = without_markup(text, language)
    text = spoken(text)
    if language in NUMBER_LANGUAGES:
        text = spoken(read_numbers(text, language))
    if not has_speech(text):
        text = spoken(words_alone(given))
    return text
