"""A report for people: report.md, and the table that the command line prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

Values = dict[str, Any]


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _rtf(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"


def _key_figures(v: Values) -> Iterator[tuple[str, str]]:
    counts = v["utterances"]
    left = counts["in"] - counts["made"] - counts["rejected"] - counts["failed"]
    yield (
        "utterances",
        f"{counts['in']:,} in = {counts['made']:,} made + {counts['rejected']:,} rejected "
        f"+ {counts['failed']:,} failed" + (f" + {left:,} left" if left else ""),
    )
    yield "flagged", f"{counts['flagged']:,}"
    yield "audio", f"{_number(v['audio_seconds'])} s"
    yield "wall (speaking)", f"{_number(v['wall_seconds'], 2)} s"
    yield "load, warm-up", f"{v['load_seconds']:.2f} s, {v['warmup_seconds']:.2f} s (not in RTF)"
    yield "RTF (wall / audio)", _rtf(v["rtf"])
    yield "audio seconds per second", _number(v["audio_seconds_per_second"])
    yield "characters per second", _number(v["chars_per_second"])
    if v["slots"]["count"]:
        slots = v["slots"]
        share = f"{slots['busy_share']:.1%}"
        yield "slots", f"{slots['count']}, {slots['mean_busy']:.1f} busy on average ({share})"
        graphs = v["codec_graphs"]
        yield "codec graphs", f"{graphs['hits']:,} hits, {graphs['misses']:,} misses"
    ends = v["finish_reasons"]
    yield "ended by", f"stop {ends['stop']:,}, length {ends['length']:,}"
    yield "devices", ", ".join(f"{d['count']} x {name}" for name, d in v["devices"].items()) or "-"
    memory = v["peak_memory"]
    yield "peak memory", f"host {_gib(memory['host_bytes'])}, device {_gib(memory['device_bytes'])}"
    yield "sessions", str(len(v["sessions"]))


def summary_table(values: Values) -> Table:
    """The key figures as a table for a terminal."""
    from rich.table import Table

    table = Table(show_header=False, title="Run")
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in _key_figures(values):
        table.add_row(name, value)
    return table


def markdown(values: Values) -> str:
    """The text of report.md."""
    parts = ["# Run report\n", _table(["", ""], [[n, x] for n, x in _key_figures(values)])]
    rows = [
        [
            name,
            _number(s["busy_seconds"], 2),
            _rtf(s["rtf"]),
            _number(s["audio_seconds_per_second"]),
        ]
        for name, s in values["stages"].items()
    ]
    parts += [
        "## Stages\n\nBusy seconds; stages overlap and may add up to more than the wall.\n",
        _table(["stage", "busy s", "RTF", "audio-s/s"], rows),
    ]
    rows = [
        [
            name,
            f"{b['utterances']:,}",
            _number(b["audio_seconds"]),
            _number(b["wall_seconds"], 2),
            _rtf(b["rtf"]),
            _number(b["audio_seconds_per_second"]),
        ]
        for name, b in values["length_buckets"].items()
    ]
    parts += [
        "## By length\n\nThe wall time is shared out equally to the rows in hand at each moment.\n",
        _table(["audio", "utterances", "audio s", "wall s", "RTF", "audio-s/s"], rows),
    ]
    rows = [
        [
            str(s["number"]),
            s["first_commit"],
            s["ended"],
            f"{s['made']:,}",
            _number(s["audio_seconds"]),
            _number(s["wall_seconds"], 2),
        ]
        for s in values["sessions"]
    ]
    heads = ["session", "first commit", "ended", "made", "audio s", "wall s"]
    parts += ["## Sessions\n", _table(heads, rows)]
    return "\n".join(parts)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(c.replace("|", "\\|") for c in r) + " |\n" for r in lines)
