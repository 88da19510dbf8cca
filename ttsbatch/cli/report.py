"""`ttsbatch report OUT`: the report of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ttsbatch.cli.options import AsJson


def report(
    out: Annotated[str, typer.Argument(help="The output folder of a run, or its URI.")],
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write the report to this HTML file.", dir_okay=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the report of a run."""
    from ttsbatch.cli.tables import print_report
    from ttsbatch.errors import SinkError
    from ttsbatch.report import load_report
    from ttsbatch.sinks.remote import name_of

    found = load_report(out)
    if html is not None:
        from ttsbatch.report_html import html as page

        try:
            html.write_text(page(found.values, Path(name_of(out)).resolve().name), "utf8")
        except OSError as e:
            raise SinkError(f"{html}: cannot be written: {e.strerror or e}") from e
        print(f"wrote {html}", file=sys.stderr)
    if as_json:
        print(found.to_json(), end="")
    else:
        print_report(found, sys.stdout)
