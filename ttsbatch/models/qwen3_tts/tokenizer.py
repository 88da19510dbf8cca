"""The text tokenizer of Qwen2: byte-level BPE over NFC text, from vocab.json and merges.txt.

No added token is registered, so corpus text can never become a control token: `<|im_end|>` in a
text is spelled out in ordinary pieces. Control ids come from config.json alone.
"""

from __future__ import annotations

from pathlib import Path

from ttsbatch.errors import ModelError

PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 cuts text before BPE. Source: tokenizer of the published Qwen2 checkpoints."""


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
