"""`ttsbatch verify OUT`: is the output whole, and is all of the input in it?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ttsbatch.cli.options import AsJson
from ttsbatch.counts import counted
from ttsbatch.errors import EXIT_OK, EXIT_ROWS_FAILED, SinkError

if TYPE_CHECKING:
    from ttsbatch.verify import Verification

NUM_SHOWN = 10  # of a kind of finding; --json has more


def verify(
    out: Annotated[str, typer.Argument(help="The output folder of a run, or its URI.")],
    as_json: AsJson = False,
) -> None:
    """Check files, manifest, ledger and failures against each other and the input.

    Reads only. Exits 6 if the output is damaged, 7 if only rows are missing, or may be.
    """
    from ttsbatch.verify import verify_run

    found = verify_run(out)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        _print(found)
    if found.num_damaged:
        raise SinkError(f"{found.out}: damaged: {counted(found.num_damaged, 'finding')}")
    raise typer.Exit(EXIT_ROWS_FAILED if found.num_unfinished else EXIT_OK)


def _print(found: Verification) -> None:
    from ttsbatch.cli.tables import print_pairs
    from ttsbatch.sinks.findings import DAMAGE, UNFINISHED

    if found.num_damaged:
        verdict = "damaged"
    elif set(found.findings.by_kind) == {"not_compared"}:
        verdict = "whole, but not compared with the input"
    elif found.num_unfinished:
        verdict = "whole, but not all of the input"
    else:
        verdict = "all good"
    print_pairs(
        [
            ("output", found.out),
            ("rows in", "not known" if found.num_in is None else f"{found.num_in:,}"),
            ("made", f"{found.num_made:,}"),
            ("rejected", f"{found.num_rejected:,}"),
            ("failed", f"{found.num_failed:,}"),
            ("missing", f"{found.findings.count(['missing']):,}"),
            ("damaged", f"{found.num_damaged:,}"),
            ("verdict", verdict),
        ]
    )
    for note in found.notes:
        print(f"note: {note}")
    for kind, what in (DAMAGE | UNFINISHED).items():
        group = found.findings.by_kind.get(kind)
        if group is None:
            continue
        print(f"\n{kind}: {group.count:,} ({what})")
        for finding in group.examples[:NUM_SHOWN]:
            print(f"  {finding}")
        if group.count > NUM_SHOWN:
            print("  ...")
