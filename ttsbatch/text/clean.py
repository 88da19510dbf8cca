"""The clean-up that every text gets before it reaches a model.

Only what no reader could disagree with: canonical composition, characters that cannot be seen,
white space. Reading out numbers and markup is a step of its own, between here and the model.
"""

from __future__ import annotations

import unicodedata

_DROPPED = frozenset(("Cc", "Cf", "Cs", "Co"))
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")  # Hangul fillers: letters, but blank ones


def spoken(text: str) -> str:
    """What is spoken of `text`.

    NFC; control, format, surrogate and private-use characters removed (joiners and soft hyphens
    among them); each run of white space made one space; ends stripped. Idempotent; every letter
    and digit of the text is kept.
    """
    if not text.isprintable():  # also false for spaces other than U+0020
        text = "".join([c for c in text if c.isspace() or unicodedata.category(c) not in _DROPPED])
    if not text.isascii():
        # After the removal: a joiner between a letter and its accent keeps them from composing.
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


def has_speech(text: str) -> bool:
    """Whether `text` holds anything to say: a letter or a digit of any script."""
    for char in text:  # noqa: SIM110 (a generator costs more than the one step of most texts)
        if char.isalnum() and char not in _BLANK_LETTERS:
            return True
    return False
