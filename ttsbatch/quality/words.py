"""How many words of a text were heard: word error rate. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ttsbatch.text.normalize import normalized

# One character of a script without spaces (and of Hangul, whose spacing varies), or a word.
_UNSPACED = (
    r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_TOKEN = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[^\W_])+")
_INSIDE_WORDS = re.compile(r"(?<=\w)['’ʼ\u00ad](?=\w)")


def tokens(text: str, language: str) -> list[str]:
    """What is compared: words, or characters of a script without spaces; no case, no marks.

    Numbers are put in words first, so that "42" and "forty-two" agree.
    """
    text = unicodedata.normalize("NFKC", normalized(text, language)).casefold()
    return _TOKEN.findall(_INSIDE_WORDS.sub("", text))


def num_errors(expected: Sequence[str], heard: Sequence[str]) -> int:
    """The fewest words to change, leave out and put in that make one of the other."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(expected, 1):
        left_above, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            best = min(row[j] + 1, row[j - 1] + 1, left_above + (word != other))
            left_above, row[j] = row[j], best
    return row[-1]
