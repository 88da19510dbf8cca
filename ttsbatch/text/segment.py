"""Long texts become pieces that are spoken one by one. Pure functions.

Sentence ends come from the package sentencex (about 300 languages, lists of abbreviations, leaves
sentences together where it is in doubt). What is still too long is cut at clauses, then at words,
then, in scripts without spaces, between characters; a single endless word is cut inside.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Sequence

from ttsbatch.text.clean import has_speech
from ttsbatch.text.duration import expected_seconds
from ttsbatch.types import AUTO

SEGMENT_S = 20.0
"""Seconds that a piece may be expected to take: about 330 English letters or 85 ideographs.

Long enough that the melody runs over several sentences. Short enough that a codec LM stays within
the lengths of common training clips, where it neither drifts nor loops, and that a piece which
runs on reaches its cap after 52 s of frames.
"""

TINY_S = 1.5  # a word or two: said on its own it sounds cut out, and is the classic run-on

_WINDOW_CHARS = 4_000  # looked at together for sentence ends: the package takes time by the square

PARAGRAPH_PAUSE_S = 0.7
SENTENCE_PAUSE_S = 0.35
CLAUSE_PAUSE_S = 0.2
WORD_PAUSE_S = 0.05

_OPENING = "([{\u201c\u2018\u00ab\uff08\u300c\u300e\u300a\u3010\u00bf\u00a1"
_CLOSING = ")\\]}\"'\u201d\u2019\u00bb\uff09\u300d\u300f\u300b\u3011"
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_NOT_FIRST = "\u3041\u3043\u3045\u3047\u3049\u3063\u3083\u3085\u3087\u308e\u30a1\u30a3\u30a5\u30a7"
_NOT_FIRST += "\u30a9\u30c3\u30e3\u30e5\u30e7\u30fc\u3005\u309d\u30fb"

# Where a unit ends, the finer the further down. Never next to a digit where a number may go on.
_ENDS = (
    re.compile(
        rf"[,;:][{_CLOSING}]*(?=\s)\s*"
        rf"|[\u3001\uff0c\uff1b\uff1a\u060c\u061b\u2026][{_CLOSING}]*(?!\d)\s*"
        r"|\s[-\u2013\u2014]+\s+|\u2014+(?!\d)\s*"
    ),
    re.compile(r"(?<!\d)\s+|\s+(?!\d)"),
    re.compile(r"\s+"),
    re.compile(r"(?<=[\u3041-\u309f])(?=[\u4e00-\u9fff])"),  # a Japanese phrase mostly ends so
    re.compile(rf"(?<![\s\d{re.escape(_OPENING)}])(?=[{_UNSPACED}])(?![{_NOT_FIRST}])"),
    re.compile(rf"(?<=[^\w\s{re.escape(_OPENING)}])(?<!\d[.,:])(?=\w)"),
    re.compile(r"(?<=.)(?=.)", re.DOTALL),
)
_SENTENCE_END = re.compile(
    rf"[.!?\u2026\u3002\uff01\uff1f\uff0e\u0964\u0965\u061f\u06d4][{_CLOSING}]*$"
)
_CLAUSE_END = re.compile(rf"[-\u2013\u2014,;:\u3001\uff0c\uff1b\uff1a\u060c\u061b][{_CLOSING}]*$")


def split_text(text: str, language: str, budget_s: float = SEGMENT_S) -> list[str]:
    """The pieces that a text is spoken in, each of about the same length.

    Args:
        text: what is spoken; not empty.
        language: ISO 639 code or "auto".
        budget_s: expected seconds of a piece. A text within it is one piece, unchanged. A piece
            exceeds it only by marks that are not said and by a neighbour of less than `TINY_S`.

    Returns:
        One piece or more, each with a letter or digit if the text has one. Joined they are the
        text, white space at the cuts left out.
    """
    whole_s = expected_seconds(text, language)
    if whole_s <= budget_s:
        return [text]
    edges_s = expected_seconds("", language)
    pieces = _Cutter(language, edges_s, budget_s - edges_s).fit(text)
    pieces = _without_tiny(pieces, language)
    return [p.strip() for p in pieces]


def pauses_s(text: str, pieces: Sequence[str]) -> list[float]:
    """Seconds of quiet that belong between the pieces of `split_text(text, ...)`, one per joint."""
    pauses = []
    end = text.index(pieces[0]) + len(pieces[0])
    for before, after in itertools.pairwise(pieces):
        start = text.index(after, end)
        pauses.append(_pause_s(before, text[end:start]))
        end = start + len(after)
    return pauses


def _pause_s(before: str, gap: str) -> float:
    if "\n" in gap:
        return PARAGRAPH_PAUSE_S
    if _SENTENCE_END.search(before):
        return SENTENCE_PAUSE_S
    return CLAUSE_PAUSE_S if _CLAUSE_END.search(before) else WORD_PAUSE_S


class _Cutter:
    """Cuts into pieces of at most `room_s`, the quiet at their edges not counted."""

    def __init__(self, language: str, edges_s: float, room_s: float) -> None:
        self._language, self._edges_s, self._room_s = language, edges_s, room_s

    def fit(self, text: str, level: int = -1) -> list[str]:
        """Pieces of a text that is too long; `level` -1: sentences, then an index of `_ENDS`."""
        units: list[str] = []
        parts = _sentences(text, self._language) if level < 0 else _cut(text, _ENDS[level])
        for unit in parts:
            if self._seconds(unit) > self._room_s and level + 1 < len(_ENDS):
                units += self.fit(unit, level + 1)
            else:
                units.append(unit)
        return self._pack(units)

    def _pack(self, units: list[str]) -> list[str]:
        """Neighbours put together, evenly: no full pieces with a crumb after them."""
        seconds = [self._seconds(u) for u in units]
        left_s = sum(seconds)
        pieces: list[str] = []
        begin, piece_s, target_s = 0, 0.0, self._target_s(left_s)
        for i, unit_s in enumerate(seconds):
            is_full = piece_s + unit_s > self._room_s or piece_s + unit_s / 2 > target_s + 1e-6
            if i > begin and is_full:
                pieces.append("".join(units[begin:i]))
                left_s -= piece_s
                begin, piece_s, target_s = i, 0.0, self._target_s(left_s)
            piece_s += unit_s
        return [*pieces, "".join(units[begin:])]

    def _target_s(self, left_s: float) -> float:
        return left_s / max(1, math.ceil(left_s / self._room_s - 1e-9))

    def _seconds(self, unit: str) -> float:
        return expected_seconds(unit, self._language) - self._edges_s


def _sentences(text: str, language: str) -> list[str]:
    """Sentences with the white space after them; joined they are the text."""
    from sentencex import segment

    found: list[str] = []
    start, size = 0, _WINDOW_CHARS
    while start < len(text):
        window = text[start : start + size]
        units = list(segment("en" if language == AUTO else language, window))
        if "".join(units) != window:  # its promise; a lost word would be worse than a long piece
            units = [window]
        if start + size < len(text):
            if len(units) == 1:
                size *= 2
                continue
            units.pop()  # it may go on after the window
        found += units
        start, size = start + sum(map(len, units)), _WINDOW_CHARS
    return _attached(found, lambda unit: not unit.strip())


def _cut(text: str, ends: re.Pattern[str]) -> list[str]:
    places = [m.end() for m in ends.finditer(text) if 0 < m.end() < len(text)]
    places = [p for p in places if unicodedata.category(text[p])[0] != "M"]
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def _attached(units: Sequence[str], is_rest: Callable[[str], bool]) -> list[str]:
    """Every unit that is only a rest goes to the one before it."""
    runs: list[list[str]] = []
    for unit in units:
        if runs and is_rest(unit):
            runs[-1].append(unit)
        else:
            runs.append([unit])
    return ["".join(run) for run in runs]


def _without_tiny(pieces: list[str], language: str) -> list[str]:
    """Pieces without speech, or with a word or two, go to the shorter neighbour."""
    pieces = _attached(pieces, lambda piece: not has_speech(piece))
    if len(pieces) > 1 and not has_speech(pieces[0]):
        pieces[:2] = [pieces[0] + pieces[1]]
    seconds = [expected_seconds(p, language) for p in pieces]
    i = 0
    while i < len(pieces):
        if len(pieces) == 1 or seconds[i] >= TINY_S:
            i += 1
            continue
        is_last = i + 1 == len(pieces)
        first = i - 1 if is_last or (i and seconds[i - 1] <= seconds[i + 1]) else i
        pieces[first : first + 2] = [pieces[first] + pieces[first + 1]]
        seconds[first : first + 2] = [expected_seconds(pieces[first], language)]
        i = first
    return pieces
