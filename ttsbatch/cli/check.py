"""`ttsbatch check`: what `synth` would reject, and what the rest would take. Loads no model."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from ttsbatch.cli import options as o
from ttsbatch.errors import EXIT_OK, EXIT_ROWS_FAILED

if TYPE_CHECKING:
    from ttsbatch.plan import RunPlan
    from ttsbatch.survey import Survey


@o.with_corpus_options
def check(
    options: Mapping[str, Any],
    as_json: o.AsJson = False,
    quiet: o.IsQuiet = False,
) -> None:
    """Check every row and reference, and estimate audio, time and disk. No model is loaded."""
    plan, _ = o.plan_from(options)
    raise typer.Exit(survey(plan, as_json, quiet))


def survey(plan: RunPlan, as_json: bool, quiet: bool, out: str | None = None) -> int:
    """Look a corpus through and print what was found; the exit code of the `synth` to come.

    Args:
        plan: as for `synth`.
        as_json: print JSON in place of a table.
        quiet: no progress.
        out: where the rows would go, where this is a dry run of `synth`.
    """
    from ttsbatch.progress import make_progress
    from ttsbatch.survey import survey_corpus

    progress = make_progress(sys.stderr, quiet)
    try:
        progress.phase("checking rows")
        found = survey_corpus(plan, progress.message, out)
    finally:
        progress.close()
    if as_json:
        print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        _print(found, out)
    return EXIT_ROWS_FAILED if found.num_rejected else EXIT_OK


def _print(found: Survey, out: str | None) -> None:
    from ttsbatch.cli.tables import print_pairs
    from ttsbatch.progress import clock

    if found.wall_s is None:
        wall = "not known for this model; synth --limit 100 measures it"
    else:
        wall = f"{clock(found.wall_s)} (about)" if found.wall_s >= 1 else "under 1 s"
    pairs = [
        ("model", found.model),
        ("rows", f"{found.num_rows:,}"),
        *([] if found.num_finished is None else [("finished", f"{found.num_finished:,}")]),
        ("to make", f"{found.num_to_make:,}"),
        ("rejected", f"{found.num_rejected:,}"),
        ("audio", f"{audio_length(found.audio_s)} (about)"),
        ("wall time", wall),
        ("disk", f"{disk_size(found.disk_bytes)} (about)"),
    ]
    if out is not None:
        pairs.append(("output", f"{out} (dry run: nothing is written)"))
    print_pairs(pairs)
    for reason, rejects in sorted(found.rejects.items()):
        print(f"\n{reason}: {rejects.count:,}")
        for failure in rejects.examples:
            print(f"  {failure.source}:{failure.line}: {failure.message}")
        if rejects.count > len(rejects.examples):
            print("  ...")


def audio_length(seconds: float) -> str:
    """Seconds in the unit that suits them: `12.3 s`, `4.5 min`, `6.78 h`."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:,.2f} h"


def disk_size(num_bytes: int) -> str:
    """Bytes in the unit that suits them: `4.2 kB`, `123.4 MB`, `5.678 GB`."""
    if num_bytes < 1e6:
        return f"{num_bytes / 1e3:.1f} kB"
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes < 1e9 else f"{num_bytes / 1e9:,.3f} GB"
