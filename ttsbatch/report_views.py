"""A report for people: report.md, and the table that the command line prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ttsbatch.counts import counted

if TYPE_CHECKING:
    from rich.table import Table

Values = dict[str, Any]


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _rtf(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"


def key_figures(v: Values) -> Iterator[tuple[str, str]]:
    """Name and value of the figures that come first, as text."""
    counts = v["utterances"]
    left = counts["in"] - counts["made"] - counts["rejected"] - counts["failed"]
    yield (
        "utterances",
        f"{counts['in']:,} in = {counts['made']:,} made + {counts['rejected']:,} rejected "
        f"+ {counts['failed']:,} failed" + (f" + {left:,} left" if left else ""),
    )
    flags = ", ".join(f"{name} {n:,}" for name, n in v.get("flags", {}).items())
    outside = v.get("outside_corpus", {"made": 0, "flagged": 0})  # not in an older report
    if outside["made"]:
        said = f"{outside['made']:,} made rows are not of this corpus; the figures below count them"
        yield "other rows", said
    num_flagged = counts["flagged"] + outside["flagged"]
    yield "flagged", f"{num_flagged:,}" + (f" ({flags})" if flags else "")
    replaced_s = v.get("replaced_audio_seconds", 0.0)
    more = f" (and {_number(replaced_s)} s replaced since, in RTF too)" if replaced_s else ""
    yield "audio", f"{_number(v['audio_seconds'])} s{more}"
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
        num_misses = graphs["misses"]
        misses = "1 miss" if num_misses == 1 else f"{num_misses:,} misses"
        yield "codec graphs", f"{counted(graphs['hits'], 'hit')}, {misses}"
    if fallbacks := v.get("kernel_fallbacks"):  # none in a good run, nor in an old report
        said = ", ".join(f"{name} {n:,}" for name, n in fallbacks.items())
        yield "without kernels", said
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
    for name, value in key_figures(values):
        table.add_row(name, value)
    return table


@dataclass(frozen=True, slots=True)
class Part:
    """One table of a report."""

    title: str
    note: str  # a sentence below the title; may be empty
    heads: list[str]
    rows: list[list[str]]
    bars: list[float]  # a share of the longest for each row, 0..1; may be empty


def parts(values: Values) -> list[Part]:
    """The tables behind the key figures."""
    stages = values["stages"]
    buckets = values["length_buckets"]
    return [
        *_quality_parts(values),
        Part(
            "Stages",
            "Busy seconds; stages overlap and may add up to more than the wall.",
            ["stage", "busy s", "RTF", "audio-s/s"],
            [
                [
                    name,
                    _number(s["busy_seconds"], 2),
                    _rtf(s["rtf"]),
                    _number(s["audio_seconds_per_second"]),
                ]
                for name, s in stages.items()
            ],
            _shares([s["busy_seconds"] for s in stages.values()]),
        ),
        Part(
            "By length",
            "The wall time is shared out equally to the rows in hand at each moment. Replaced "
            "takes are not in this table.",
            ["audio", "utterances", "audio s", "wall s", "RTF", "audio-s/s"],
            [
                [
                    name,
                    f"{b['utterances']:,}",
                    _number(b["audio_seconds"]),
                    _number(b["wall_seconds"], 2),
                    _rtf(b["rtf"]),
                    _number(b["audio_seconds_per_second"]),
                ]
                for name, b in buckets.items()
            ],
            _shares([b["audio_seconds"] for b in buckets.values()]),
        ),
        Part(
            "Sessions",
            "",
            ["session", "first commit", "ended", "made", "audio s", "wall s"],
            [
                [
                    str(s["number"]),
                    s["first_commit"],
                    s["ended"],
                    f"{s['made']:,}",
                    _number(s["audio_seconds"]),
                    _number(s["wall_seconds"], 2),
                ]
                for s in values["sessions"]
            ],
            [],
        ),
    ]


def _quality_parts(values: Values) -> list[Part]:
    """What the checks found, where they found anything; older reports don't say."""
    found: list[Part] = []
    if flags := values.get("flags"):
        rows = [[name, f"{count:,}"] for name, count in flags.items()]
        note = "Rows whose best take still has the fault; one row may have several."
        found.append(Part("Flags", note, ["check", "rows"], rows, _shares(list(flags.values()))))
    if paces := values.get("paces"):
        rows = [
            [
                p["language"],
                p["voice"],
                f"{p['rows']:,}",
                f"{p['pace']:.2f}",
                f"{p['spread']:.1%}",
                f"{p['outliers']:,}",
                ", ".join(f"{x['id']} ({x['times_the_pace']:.2f})" for x in p["examples"][:3]),
            ]
            for p in paces
        ]
        heads = ["language", "voice", "rows", "pace", "spread", "outliers", "farthest"]
        note = (
            "Seconds over expected seconds, rows of 1.5 s and more. Outliers are far from the "
            "pace of their own voice in this run; worth a listen, not flagged."
        )
        found.append(Part("Pace by voice", note, heads, rows, []))
    return found


def _shares(numbers: list[float | None]) -> list[float]:
    most = max((n or 0.0 for n in numbers), default=0.0)
    return [(n or 0.0) / most if most else 0.0 for n in numbers]


def markdown(values: Values) -> str:
    """The text of report.md."""
    texts = ["# Run report\n", _table(["", ""], [[n, x] for n, x in key_figures(values)])]
    for part in parts(values):
        note = f"\n{part.note}\n" if part.note else ""
        texts += [f"## {part.title}\n{note}", _table(part.heads, part.rows)]
    return "\n".join(texts)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(c.replace("|", "\\|") for c in r) + " |\n" for r in lines)
