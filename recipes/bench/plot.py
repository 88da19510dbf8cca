"""Draw results/throughput.svg: our end-to-end runs, and what others published or were measured at.

    python -m recipes.bench.plot

Our bars are those of results/*.json that `LABELS` names. Each file is one run of `synth`, an object
of `corpus` and `command` (the command lines that made the rows and spoke them), `commit`,
`versions` and `device` (what ran them, in words) and `report` (the run's report.json). Prints the
figures; the chart follows light and dark mode by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
LABELS = {
    "synth_1.7b_customvoice_20000": "Qwen3-TTS 1.7B, 20,000 rows",
    "synth_1.7b_customvoice": "Qwen3-TTS 1.7B, named voice",
    "synth_0.6b_customvoice": "Qwen3-TTS 0.6B, named voice",
    "synth_1.7b_base_64_references": "Qwen3-TTS 1.7B, cloning in context",
    "synth_voxcpm2": "VoxCPM2",
}
"""What a result shows, by the stem of its file."""


@dataclass(frozen=True)
class Bar:
    """One figure."""

    label: str
    note: str
    value: float  # audio seconds per second
    ours: bool = False


OTHERS = [
    # Measured on our kind of device from the time of a frame step, so the codec comes on top.
    Bar("faster-qwen3-tts-batch 0.2.0, 1.7B", "H200, 128 rows, codec not counted", 128.0),
    Bar("qwen-tts 0.1.1, Qwen3-TTS 1.7B", "H200, 64 rows, codec not counted", 24.7),
    # https://github.com/vllm-project/vllm-omni/pull/7781, comment of 2026-09-18
    Bar("vLLM-Omni, Qwen3-TTS 1.7B, cloning", "published: H100, serving 64 requests", 111.9),
    Bar("vLLM-Omni, VoxCPM2", "published: H20, serving 64 requests", 33.0),
]

WIDTH, ROW, BAR_AT, BAR_LENGTH, TOP = 760, 46, 300, 380, 76
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.title { font-size: 16px; font-weight: 600; }
.note { font-size: 11.5px; fill: #59636e; }
.value { font-weight: 600; }
.ours { fill: #1a7f9c; }
.other { fill: #9aa4af; }
.axis { stroke: #9aa4af; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .note { fill: #9198a1; }
  .ours { fill: #3fb2d4; }
  .other { fill: #6e7781; }
}
"""


def main() -> None:
    bars = all_bars()
    for bar in bars:
        print(f"{bar.value:9,.1f}  {bar.label} ({bar.note})")
    (RESULTS / "throughput.svg").write_text(draw(bars), "utf8")


def all_bars() -> list[Bar]:
    """Ours before the others, each from the fastest down."""
    return sorted([*our_bars(), *OTHERS], key=lambda b: (not b.ours, -b.value))


def our_bars() -> Iterator[Bar]:
    for file in sorted(RESULTS.glob("*.json")):
        label = LABELS.get(file.stem)
        if label is None:
            continue
        report = json.loads(file.read_text("utf8"))["report"]
        slots = report["slots"]["count"]
        device = " + ".join(report["devices"]).removeprefix("NVIDIA ")
        value = float(report["audio_seconds_per_second"])
        yield Bar(label, f"{device}, {slots} slots, to WAV on disk", value, True)


def draw(bars: list[Bar]) -> str:
    longest = max(bar.value for bar in bars)
    height = TOP + ROW * len(bars) + 58
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title">',
        '<title id="title">Seconds of audio made per second on one GPU</title>',
        f"<style>{STYLE}</style>",
        text(16, 30, "Seconds of audio made per second on one GPU", "title"),
        text(
            16,
            52,
            "Longer is better. Coloured: ttsbatch, which ends with audio files on the disk.",
            "note",
        ),
    ]
    for n, bar in enumerate(bars):
        y = TOP + ROW * n
        length = max(BAR_LENGTH * bar.value / longest, 1.5)
        kind = "ours" if bar.ours else "other"
        parts += [
            text(16, y + 15, bar.label),
            text(16, y + 31, bar.note, "note"),
            f'<rect class="{kind}" x="{BAR_AT}" y="{y + 4}" width="{length:.1f}" height="26" '
            'rx="2"/>',
            text(BAR_AT + length + 8, y + 22, f"{bar.value:,.0f}", "value"),
        ]
    bottom = TOP + ROW * len(bars)
    parts += [
        f'<line class="axis" x1="{BAR_AT}" y1="{TOP - 4}" x2="{BAR_AT}" y2="{bottom - 6}"/>',
        text(
            16,
            bottom + 18,
            "Ours: random weights of the official size, bf16, rows of 5 s on average.",
            "note",
        ),
        text(
            16,
            bottom + 36,
            "Not one test: an H100 or H20 is slower than an H200, a server answers while requests "
            "come in.",
            "note",
        ),
        "</svg>\n",
    ]
    return "\n".join(parts)


def text(x: float, y: float, words: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


if __name__ == "__main__":
    main()
