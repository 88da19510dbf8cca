"""NeMo: manifest.jsonl and the audio files beside it.

Source: the NeMo toolkit's documentation, "Preparing a manifest file" (`audio_filepath`, relative
to the manifest; `duration`, seconds; `text`), and the names that its data sets read beyond them
(`lang`, `normalized_text`, `sampling_rate`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ttsbatch.export.clips import Clip
from ttsbatch.export.lines import JsonLines
from ttsbatch.export.target import Setting


def write_nemo(clips: Iterable[Clip], folder: Path, setting: Setting) -> None:
    """Write audio/SHARD/NAME.wav and manifest.jsonl."""
    with JsonLines(folder / "manifest.jsonl") as manifest:
        for clip in clips:
            path = f"audio/{clip.path}"
            clip.put(folder / path)
            manifest.add(_line(clip, path))


def _line(clip: Clip, path: str) -> dict[str, Any]:
    about = clip.about()
    line = {
        "audio_filepath": path,
        "duration": about.pop("duration"),
        "text": about.pop("text"),
        "normalized_text": about.pop("spoken_text"),
        "sampling_rate": about.pop("sample_rate"),
    }
    about.pop("language")
    if clip.language is not None:
        line["lang"] = clip.language
    return line | about
