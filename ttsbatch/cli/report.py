"""`ttsbatch report OUT`: the report of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ttsbatch.cli.options import AsJson


def report(
    out: Annotated[Path, typer.Argument(help="The output folder of a run.")],
    as_json: AsJson = False,
) -> None:
    """Show the report of a run."""
    from ttsbatch.cli.tables import print_report
    from ttsbatch.report import load_report

    found = load_report(out)
    if as_json:
        print(found.to_json(), end="")
    else:
        print_report(found, sys.stdout)
