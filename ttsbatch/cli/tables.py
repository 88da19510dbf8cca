"""Plain aligned tables on stdout, and a run's figures.

A pipe gets a line a row, however long; on a terminal what does not fit goes on an indented line.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ttsbatch.report import RunReport


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below a head, columns aligned to the left.

    On a terminal that is too narrow the last column has lines of its own.
    """
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    room = _columns()
    is_wide = room is not None and sum(widths) + 2 * (len(widths) - 1) > room
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(cells[:-1] if is_wide else cells).rstrip())
        if is_wide:
            print(f"  {line[-1]}")


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    width = max(len(name) for name, _ in pairs)
    room = _columns()
    for name, value in pairs:
        line = f"{name.ljust(width)}  {value}"
        if room is None or len(line) <= room or room < 2 * width:
            print(line)
            continue
        # Paths and options stay whole, so that they can be copied.
        indent = " " * (width + 2)
        wrapped = textwrap.wrap(
            value,
            room - len(indent),
            break_long_words=False,
            break_on_hyphens=False,
        )
        print(f"{name.ljust(width)}  " + f"\n{indent}".join(wrapped))


def _columns() -> int | None:
    """The width of the terminal; None in a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_report(report: RunReport, stream: TextIO) -> None:
    """Print the key figures of a run."""
    from rich.console import Console

    from ttsbatch.report_views import summary_table

    Console(file=stream, highlight=False).print(summary_table(report.values))
