"""The text tokenizer of Qwen2: byte-level BPE over NFC text, from vocab.json and merges.txt.

No added token is registered, so corpus text can never become a control token: `<|im_end|>` in a
text is spelled out in ordinary pieces. Control ids come from config.json alone.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Protocol

from ttsbatch.errors import ModelError

PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 cuts text before BPE. Source: tokenizer of the published Qwen2 checkpoints."""


class TextTokenizer(Protocol):
    """Text to ids of the model's text vocabulary, never a control id."""

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""
        ...


class BPETokenizer:
    """The tokenizer of a checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

        vocab, merges = folder / "vocab.json", folder / "merges.txt"
        for path in (vocab, merges):
            if not path.is_file():
                raise ModelError(f"{path}: no such file; the text tokenizer needs it")
        try:
            bpe = models.BPE.from_file(str(vocab), str(merges))
        except Exception as e:  # the library raises plain Exception for a damaged file
            raise ModelError(f"{vocab}: not a BPE vocabulary with its merges.txt: {e}") from e
        self._tokenizer = Tokenizer(bpe)
        self._tokenizer.normalizer = normalizers.NFC()
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


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
