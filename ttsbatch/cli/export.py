"""`ttsbatch export OUT`: the finished rows in the form of a training tool."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttsbatch.cli.options import AsJson, IsQuiet
from ttsbatch.counts import counted
from ttsbatch.errors import EXIT_OK, EXIT_ROWS_FAILED, PlanError

if TYPE_CHECKING:
    from ttsbatch.export.run import Exported


class To(StrEnum):
    """Forms of an export."""

    hf = "hf"
    nemo = "nemo"
    lhotse = "lhotse"
    webdataset = "webdataset"
    ljspeech = "ljspeech"


def export(
    out: Annotated[str, typer.Argument(help="The output folder of a run, or its URI.")],
    to: Annotated[To, typer.Option("--to", metavar="FORM", help=f"{', '.join(To)}.")],
    path: Annotated[
        Path, typer.Option("--out", "-o", help="A new folder, there once the export is whole.")
    ],
    include_flagged: Annotated[
        bool,
        typer.Option(
            "--include-flagged/--no-flagged",
            help="Whether rows that the quality checks flagged go along, marked.",
        ),
    ] = False,
    audiofolder: Annotated[
        bool, typer.Option("--audiofolder", help="hf: files and metadata.jsonl, not Parquet.")
    ] = False,
    shar: Annotated[
        bool, typer.Option("--shar", help="lhotse: Shar, not manifests and files.")
    ] = False,
    link: Annotated[
        bool,
        typer.Option("--link", help="Hard links to OUT's files rather than copies of them."),
    ] = False,
    shard_size: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rows per shard, where there are shards; 1000.", min=1),
    ] = None,
    as_json: AsJson = False,
    quiet: IsQuiet = False,
) -> None:
    """Write the finished rows as a data set: hf, nemo, lhotse, webdataset or ljspeech.

    Exits 7 if the run has rows left to make.
    """
    form = to.value
    for is_wanted, option, owner in (
        (audiofolder, "audiofolder", To.hf),
        (shar, "shar", To.lhotse),
    ):
        if is_wanted and to is not owner:
            raise PlanError(f"--{option} has no use for --to {to}; expected --to {owner}")
        form += f" --{option}" if is_wanted else ""
    if "://" in str(path) or ":/" in str(path):
        raise PlanError(f"-o is {str(path)!r}; expected a local folder")

    from tqdm import tqdm

    from ttsbatch.export.run import export_run
    from ttsbatch.sinks.remote import name_of

    # disable=None: no bar where stderr is no terminal
    with tqdm(unit=" rows", file=sys.stderr, disable=True if quiet else None) as bar:

        def on_row(total: int) -> None:
            bar.total = total
            bar.update()

        done = export_run(
            out,
            form,
            path,
            include_flagged=include_flagged,
            link=link,
            shard_size=shard_size,
            on_row=on_row,
        )
    if as_json:
        print(json.dumps(done.to_json(), indent=2))
    else:
        _print(done)
    _warn(name_of(out), done)
    raise typer.Exit(EXIT_ROWS_FAILED if done.is_unfinished else EXIT_OK)


def _print(done: Exported) -> None:
    from ttsbatch.cli.tables import print_pairs
    from ttsbatch.progress import clock

    print_pairs(
        [
            ("export", str(done.path)),
            ("form", done.form),
            ("rows", f"{done.rows:,}"),
            ("audio", clock(done.audio_s)),
            ("flagged", f"{done.flagged:,} marked, {done.flagged_left_out:,} left out"),
            ("not made", f"{done.not_made:,} rejected or failed"),
        ]
    )


def _warn(out: str, done: Exported) -> None:
    """What the export lacks, on stderr, so that nobody has to look for it."""
    if done.flagged_left_out:
        print(
            f"ttsbatch: left out: {counted(done.flagged_left_out, 'flagged row')}; "
            "--include-flagged takes them, marked",
            file=sys.stderr,
        )
    if done.is_unfinished:
        left = "an unknown number of rows" if done.left is None else counted(done.left, "row")
        print(
            f"ttsbatch: {out}: the run is not finished, {left} still to be made; "
            "the same synth command resumes it",
            file=sys.stderr,
        )
