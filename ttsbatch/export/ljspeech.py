"""LJSpeech: metadata.csv of `id|text|normalised text`, and wavs/ID.wav, 16-bit.

Source: the LJ Speech data set's README (pipe-delimited, UTF-8, no header, no quoting).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ttsbatch.export.clips import Clip
from ttsbatch.export.target import Setting

# Whatever ends a field or, for some reader, a line.
_BREAK = re.compile(r"\s*[|\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


def write_ljspeech(clips: Iterable[Clip], folder: Path, setting: Setting) -> None:
    """Write the folder; flagged rows, which the three columns cannot mark, are in flagged.txt."""
    flagged = folder / "flagged.txt"
    with (folder / "metadata.csv").open("w", encoding="utf8", newline="\n") as metadata:
        for clip in clips:
            target = folder / "wavs" / f"{clip.key}.wav"
            if clip.is_pcm16:
                clip.put(target)
            else:
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(clip.wav())
            text, spoken = clip.record["text"], clip.record["spoken_text"]
            metadata.write(f"{clip.key}|{one_field(text)}|{one_field(spoken)}\n")
            if clip.is_flagged:
                with flagged.open("a", encoding="utf8", newline="\n") as file:
                    file.write(f"{clip.key}\n")


def one_field(text: str) -> str:
    """The text with a space in place of each pipe, tab or line break."""
    return _BREAK.sub(" ", text).strip()
