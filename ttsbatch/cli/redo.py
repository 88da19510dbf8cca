"""`ttsbatch redo OUT --id ID`: single rows, or one piece of a row, made again."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ttsbatch.cli import options as o
from ttsbatch.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_ROWS_FAILED, PlanError

if TYPE_CHECKING:
    from ttsbatch.redo import Redone


def redo(
    out: Annotated[str, typer.Argument(help="The output folder of a run, or its URI.")],
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="A row to make again; repeatable.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Drawn from this; else the next take of the row's own seed.")
    ] = None,
    segment: Annotated[
        int | None, typer.Option(help="Speak only this piece of a long row anew, from 0.")
    ] = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    slots: o.Slots = None,
    as_json: o.AsJson = False,
    quiet: o.IsQuiet = False,
) -> None:
    """Make single rows again, with the settings of the run.

    The old version of a row stays until the new one is whole. Exits 7 if a row stays as it was.
    """
    from ttsbatch.cli.signals import stopped_by_signals
    from ttsbatch.plan import make_engine_plan
    from ttsbatch.progress import make_progress
    from ttsbatch.redo import Redo, redo_rows
    from ttsbatch.stop import Stop

    if not ids:
        raise PlanError("no row given; expected at least one --id")
    if seed is not None and not 0 <= seed < 2**63:
        raise PlanError(f"--seed is {seed}; expected 0 <= seed < 2**63")
    given = {"device": device, "dtype": dtype, "slots": slots}
    is_other = any(value is not None for value in given.values())
    engine = make_engine_plan(given) if is_other else None
    progress = make_progress(sys.stderr, quiet)
    stop = Stop()
    try:
        with stopped_by_signals(stop, progress.message):
            what = Redo(tuple(dict.fromkeys(ids)), seed, segment)
            redone = redo_rows(out, what, progress, stop, engine)
    finally:
        progress.close()
    if as_json:
        print(json.dumps({"made": redone.lines, "problems": redone.problems}, indent=2))
    else:
        _print(redone)
    for row_id, problem in redone.problems.items():
        print(f"ttsbatch: {row_id!r} {problem}", file=sys.stderr)
    if stop.by_signal:
        print("ttsbatch: interrupted; rows not listed are as they were", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED)
    raise typer.Exit(EXIT_ROWS_FAILED if redone.problems else EXIT_OK)


def _print(redone: Redone) -> None:
    for line in redone.lines:
        print(
            f"{line['id']!r}: {line['audio_filepath']}, {line['duration']:.2f} s, "
            f"seed {line['seed']}, take {line['attempts']}, {line['checks']['verdict']}"
        )
