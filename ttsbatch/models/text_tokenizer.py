"""What a text tokenizer is to a family, and a stand-in for models of random weights."""

from __future__ import annotations

import re
import zlib
from typing import Protocol


class TextTokenizer(Protocol):
    """Text to ids of the model's text vocabulary, never a control id."""

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""
        ...


class StandInTokenizer:
    """For random weights, which have no vocabulary: about as many ids as a real one would give.

    A word of up to eight letters is one id, as is a CJK character or a mark; ids are stable.
    """

    _pieces = re.compile(r"[^\W\d_]{1,8}|\d|[^\w\s]|\s*\n")
    _wide = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

    def __init__(self, num_ids: int) -> None:
        self.num_ids = num_ids

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, each in [0, num_ids)."""
        parts: list[str] = []
        for piece in self._pieces.findall(text):
            parts.extend(piece if self._wide.search(piece) else [piece])
        return [zlib.crc32(p.encode("utf8")) % self.num_ids for p in parts]
