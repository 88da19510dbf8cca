"""Typographic variants of letters and signs, made plain.

Full-width, mathematical and ligature letters become the letters they stand for, curly quotes become
straight ones, pictures go. Chinese, Japanese and Korean keep their own punctuation.
"""

from __future__ import annotations

import re
import unicodedata

OWN_PUNCTUATION = frozenset(("zh", "ja", "ko"))
"""Languages whose full-width punctuation and quotes stay."""

_QUOTES = {**dict.fromkeys("‘’‚‛ʼ", "'"), **dict.fromkeys("“”„‟", '"')}
_COMPATIBLE = ("<font>", "<wide>", "<narrow>")
_BULLET = "•▪▫◦‣⁃●○■□➤➢►▶"
_ANY_BULLET = re.compile(f"[{_BULLET}]")
# No pattern may begin anywhere in a run of white space and look for its end: a row of 50,000 line
# breaks would take minutes.
_LEADING_BULLETS = re.compile(rf"\A[\s{_BULLET}]*[{_BULLET}]\s*|(?<=\n)[^\S\n]*[{_BULLET}]\s*")
_INNER_BULLETS = re.compile(rf"[\s,;]+([{_BULLET}][\s{_BULLET}]*)?|([{_BULLET}][\s{_BULLET}]*)")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # what colours a terminal
_HALF_WIDTH_KANA = re.compile("[\uff66-\uff9f]+")


class _Plain(dict[int, str | None]):
    """Code point -> what replaces it, worked out when first met."""

    def __init__(self, keeps_punctuation: bool) -> None:
        self._keeps_punctuation = keeps_punctuation

    def __missing__(self, code: int) -> str | None:
        found = self[code] = self._plain(chr(code))
        return found

    def _plain(self, char: str) -> str | None:
        if char.isascii():
            return char
        if char in _QUOTES:
            return char if self._keeps_punctuation else _QUOTES[char]
        if "\ufb00" <= char <= "\ufb06" or char == "℃" or char == "℉":
            return unicodedata.normalize("NFKC", char)
        if "\ufe00" <= char <= "\ufe0f" or char == "\u20e3":  # emoji or text style, keycap
            return None
        if unicodedata.decomposition(char).startswith(_COMPATIBLE) and (
            char.isalnum() or not self._keeps_punctuation or char in "％＄￡￥＋－／："
        ):
            return unicodedata.normalize("NFKC", char)
        if _is_picture(char):
            return " "
        return char


def _is_picture(char: str) -> bool:
    return "\U0001f000" <= char <= "\U0001faff" or (
        "\u2600" <= char <= "\u27bf" and char not in _BULLET
    )


_PLAIN = {keeps: _Plain(keeps) for keeps in (False, True)}


def plain_letters(text: str, language: str) -> str:
    """`text` with variants of letters, digits, quotes and bullets made plain."""
    text = _ESCAPE.sub("", text)
    if text.isascii():
        return text
    # A half-width kana and its voicing mark compose, so they are taken together.
    text = _HALF_WIDTH_KANA.sub(lambda m: unicodedata.normalize("NFKC", m[0]), text)
    text = text.translate(_PLAIN[language in OWN_PUNCTUATION])
    if not _ANY_BULLET.search(text):
        return text
    text = _LEADING_BULLETS.sub("", text)
    return _INNER_BULLETS.sub(lambda m: ", " if m.lastindex else m[0], text)
