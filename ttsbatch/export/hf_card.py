"""README.md of a data set for Hugging Face: a YAML header and a few lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from ttsbatch.export.clips import Clip

_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


@dataclass(slots=True)
class Card:
    """What a card says; adds up as rows go by."""

    name: str
    rows: int = 0
    flagged: int = 0
    audio_s: float = 0.0
    languages: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)

    def add(self, clip: Clip) -> None:
        """Count a row."""
        self.rows += 1
        self.flagged += clip.is_flagged
        self.audio_s += clip.record["duration"]
        self.models.add(str(clip.record["model"]))
        if clip.language is not None:
            self.languages.add(clip.language)


def card(about: Card, data_files: str | None, types: Sequence[tuple[str, str]]) -> str:
    """The text of README.md.

    Args:
        about: the counts.
        data_files: glob of the train split; None: left to the loader.
        types: columns and their types; none: left to the loader.
    """
    size = next((name for limit, name in _SIZES if about.rows < limit), "10M<n<100M")
    lines = ["---", f"pretty_name: {json.dumps(about.name)}"]
    lines += ["language:", *(f"- {code}" for code in sorted(about.languages))]
    if not about.languages:
        lines.pop()
    lines += ["task_categories:", "- text-to-speech"]
    lines += ["tags:", "- audio", "- synthetic", "size_categories:", f"- {size}"]
    if data_files is not None:
        lines += ["configs:", "- config_name: default", "  data_files:", "  - split: train"]
        lines += [f"    path: {data_files}"]
    if types:
        lines += ["dataset_info:", "  features:"]
        for name, kind in types:
            lines += [f"  - name: {name}", f"    dtype: {kind}"]
        lines += ["  splits:", "  - name: train", f"    num_examples: {about.rows}"]
    lines += ["---", "", f"# {about.name}", "", "Synthetic speech, made by ttsbatch.", ""]
    lines += [
        f"- rows: {about.rows:,}, {about.audio_s / 3600:.2f} h of audio",
        f"- models: {', '.join(sorted(about.models))}",
        f"- flagged by the quality checks: {about.flagged:,} (`verdict` is `flag`, `reasons` says "
        "why)",
        "",
    ]
    return "\n".join(lines)
