"""Corpus text -> text that the phonemizer reads whole, without its own markup. Pure functions.

The phonemizer of hibari-tts has four traps: `[word](/phonemes/)` is markup, letters outside its
alphabets are dropped, unknown words are cut at 24 letters, and a long run without a space costs
time by its square. Each is met here without a change to what is said.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

MAX_WORD_LETTERS = 24  # the length at which the package's network for unknown words cuts
MAX_RUN_CHARS = 100
MAX_PHONEMES = 400  # of one pass; the package's own bound, which it keeps at clauses only

_LETTERS = re.compile(rf"[^\W\d_]{{{MAX_WORD_LETTERS + 1},}}")
_REPEATED_MARK = re.compile(r"([^\w\s])\1{3,}")
_LONG_RUN = re.compile(rf"(\S{{{MAX_RUN_CHARS}}})(?=\S)")


def speakable(text: str, alphabet: frozenset[str]) -> str:
    """The text with markup broken up, accents folded where needed and over-long runs spaced.

    Args:
        text: any text.
        alphabet: the letters that the phonemizer knows.
    """
    text = unicodedata.normalize("NFC", text)
    text = "".join(_fold(c, alphabet) for c in text)
    text = text.replace("](", "] (")  # the markup needs the two to touch
    text = _REPEATED_MARK.sub(r"\1\1\1", text)
    text = _LETTERS.sub(_in_pieces, text)
    return _LONG_RUN.sub(r"\1 ", text)


@dataclass(frozen=True, slots=True)
class CannotRead:
    """Says why a text cannot be spoken by who knows these letters; for a `ModelCard`."""

    alphabet: frozenset[str]

    def __call__(self, text: str) -> str | None:
        """The message for a text with other letters; None where all are known."""
        if text.isascii():
            return None
        lost = unreadable_letters(text, self.alphabet)
        return f"the embedded model reads English; it cannot read {lost[:20]!r}" if lost else None


def unreadable_letters(text: str, alphabet: frozenset[str]) -> str:
    """The distinct letters and numerals of `text` that would be left out in silence, in order."""
    letters = (c for c in unicodedata.normalize("NFC", text) if c.isalnum())
    return "".join(dict.fromkeys(c for c in letters if not _is_known(_fold(c, alphabet), alphabet)))


def cut_phonemes(phonemes: str) -> list[str]:
    """Pieces of at most `MAX_PHONEMES`, cut between words where there is such a place."""
    pieces = []
    while len(phonemes) > MAX_PHONEMES:
        cut = phonemes.rfind(" ", 1, MAX_PHONEMES + 1)
        cut = cut if cut > 0 else MAX_PHONEMES
        pieces.append(phonemes[:cut].strip())
        phonemes = phonemes[cut:].strip()
    return [p for p in (*pieces, phonemes) if p]


def _is_known(letter: str, alphabet: frozenset[str]) -> bool:
    letters = [c for c in unicodedata.normalize("NFKC", letter) if c.isalnum()]
    return all(c in alphabet or c.isdigit() for c in letters)


def _fold(char: str, alphabet: frozenset[str]) -> str:
    """An accented letter that is unknown becomes its base letter, where that is known."""
    if not char.isalpha() or _is_known(char, alphabet):
        return char
    base = unicodedata.normalize("NFKD", char)[0]
    return base if base in alphabet else char


def _in_pieces(word: re.Match[str]) -> str:
    letters = word.group()
    num_pieces = -(-len(letters) // MAX_WORD_LETTERS)
    size = -(-len(letters) // num_pieces)
    return " ".join(letters[i : i + size] for i in range(0, len(letters), size))
