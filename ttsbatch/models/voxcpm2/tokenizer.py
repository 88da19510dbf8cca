"""The text tokenizer: tokenizer.json's BPE, Chinese words taken apart into characters.

Added tokens of the file are not registered, so corpus text can never become one: `<s>` in a text
is spelled out in ordinary pieces. Control ids come from `config.py` alone.
Source: `mask_multichar_chinese_tokens` of package `voxcpm` 2.0.3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ttsbatch.errors import ModelError
from ttsbatch.models.section import read_json
from ttsbatch.models.voxcpm2.config import CONTROL_IDS

SPACE = "▁"  # how the vocabulary writes a space


class CharTokenizer:
    """The tokenizer of a checkpoint folder."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        """Read tokenizer.json.

        Raises:
            ModelError: the file is missing or damaged, or has more ids than the model.
        """
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        raw = read_json(path)
        try:
            # Templates name added tokens; both are of no use without beginning and end ids.
            self._tokenizer = Tokenizer.from_str(
                json.dumps({**raw, "added_tokens": [], "post_processor": None})
            )
        except Exception as e:  # the library raises plain Exception for a damaged file
            raise ModelError(f"{path}: not a tokenizer: {e}") from e
        vocab: dict[str, int] = self._tokenizer.get_vocab()
        largest = max(vocab.values(), default=-1)
        if largest >= vocab_size:
            raise ModelError(f"{path}: holds id {largest}; config.json has {vocab_size} ids")
        self._ids = _ids_by_token(vocab, raw)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, no control id among them."""
        tokens = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [i for token in tokens for i in self._ids.get(token, (token,))]


def _ids_by_token(vocab: dict[str, int], raw: dict[str, Any]) -> dict[int, tuple[int, ...]]:
    """What stands for a token, where that is not itself.

    A word of Chinese characters becomes its characters; a control id, which no text makes in an
    official vocabulary, becomes the unknown id.
    """
    unknown = vocab.get(raw.get("model", {}).get("unk_token") or "", 0)
    ids: dict[int, tuple[int, ...]] = {}
    for token, number in vocab.items():
        word = token.replace(SPACE, "")
        if len(word) > 1 and word in vocab and all("\u4e00" <= x <= "\u9fff" for x in word):
            ids[number] = tuple(vocab.get(x, unknown) for x in word)
    return ids | {number: (unknown,) for number in CONTROL_IDS}
