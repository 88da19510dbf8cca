"""Plain aligned tables on stdout, the same on a terminal and in a pipe, and a run's figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ttsbatch.report import RunReport


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below a head, columns aligned to the left."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"{name.ljust(width)}  {value}")


def print_report(report: RunReport, stream: TextIO) -> None:
    """Print the key figures of a run."""
    from rich.console import Console

    from ttsbatch.report_views import summary_table

    Console(file=stream, highlight=False).print(summary_table(report.values))
