"""How much of itself a text repeats, in seconds of speech. Pure functions."""

from __future__ import annotations

import re
from itertools import pairwise

from ttsbatch.text.duration import expected_seconds

MAX_PHRASE_WORDS = 12
MAX_ECHO_CHARS = 200
_EDGES_S = expected_seconds("", "auto")
# A word, or one character of a script that is written without spaces.
_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]|"
    r"(?:(?![\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])"
    r"[^\W_])+"
)


def longest_run_of_words_s(text: str, language: str) -> float:
    """Seconds of the longest phrase that follows itself, all its further times counted.

    "No, no, no" has two further times of "no"; "ten or ten or so" one of "ten or".
    """
    tokens = _TOKEN.findall(text.casefold())
    longest = 0.0
    for size in range(1, min(MAX_PHRASE_WORDS, len(tokens) // 2) + 1):
        run = 0
        for i in range(size, len(tokens) + 1):
            if i < len(tokens) and tokens[i] == tokens[i - size]:
                run += 1
                continue
            if run >= size:
                longest = max(longest, _seconds(" ".join(tokens[i - run : i]), language))
            run = 0
    return longest


def longest_echo_s(text: str, language: str) -> float:
    """Seconds of the longest run of characters that the text has twice."""
    plain = " ".join(_TOKEN.findall(text.casefold()))
    places = sorted(range(len(plain)), key=lambda i: plain[i : i + MAX_ECHO_CHARS])
    longest = ""
    for a, b in pairwise(places):
        one, other = plain[a : a + MAX_ECHO_CHARS], plain[b : b + MAX_ECHO_CHARS]
        size = len(longest)
        while size < min(len(one), len(other)) and one[: size + 1] == other[: size + 1]:
            size += 1
        if size > len(longest):
            longest = one[:size]
    return _seconds(longest, language)


def _seconds(text: str, language: str) -> float:
    return expected_seconds(text, language) - _EDGES_S if text else 0.0
