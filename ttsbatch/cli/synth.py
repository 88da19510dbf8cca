"""`ttsbatch synth`: corpus in; audio, manifest and report out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttsbatch.cli import options as o
from ttsbatch.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_ROWS_FAILED, PlanError

if TYPE_CHECKING:
    from ttsbatch.plan import RunPlan


@o.with_corpus_options
def synth(
    options: Mapping[str, Any],
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="Output folder or URI; one with this run is resumed."),
    ] = None,
    format: o.Format = None,
    sample_rate: o.SampleRate = None,
    loudness: o.Loudness = None,
    layout: o.Layout = None,
    shard_size: Annotated[
        int | None, typer.Option(help="Rows per shard.", rich_help_panel=o.RUNNING)
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(help="Further takes of a flagged row.", rich_help_panel=o.RUNNING),
    ] = None,
    save_codes: Annotated[
        bool | None,
        typer.Option("--save-codes", help="Keep the codec codes too.", rich_help_panel=o.RUNNING),
    ] = None,
    fail_fast: Annotated[
        bool | None,
        typer.Option(
            "--fail-fast",
            help="End at the first rejected or failed row.",
            rich_help_panel=o.RUNNING,
        ),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline",
            help="When each stage was busy, as a Chrome trace.",
            rich_help_panel=o.RUNNING,
            dir_okay=False,
        ),
    ] = None,
    check_asr: o.CheckAsr = None,
    max_wer: o.MaxWer = None,
    check_speaker: o.CheckSpeaker = None,
    min_similarity: o.MinSimilarity = None,
    check_dnsmos: o.CheckDnsmos = None,
    min_mos: o.MinMos = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be made; write nothing.")
    ] = False,
    as_json: o.AsJson = False,
    quiet: o.IsQuiet = False,
) -> None:
    """Make a corpus into speech. Rerun the same command to resume."""
    plan, folder = o.plan_from({**options, **locals()})
    if folder is None:
        raise PlanError("no output folder given; expected -o OUT")
    if timeline is not None:
        from ttsbatch.timeline import Timeline

        Timeline.check_file(timeline, folder)
    if dry_run:
        from ttsbatch.cli.check import survey

        raise typer.Exit(survey(plan, as_json, quiet, out=folder))
    raise typer.Exit(_run(plan, folder, as_json, quiet, timeline))


def _run(plan: RunPlan, out: str, as_json: bool, quiet: bool, timeline_file: Path | None) -> int:
    from ttsbatch.cli.signals import stopped_by_signals
    from ttsbatch.cli.tables import print_report
    from ttsbatch.pipeline import synthesize
    from ttsbatch.progress import make_progress
    from ttsbatch.reasons import Reasons
    from ttsbatch.sinks.remote import name_of
    from ttsbatch.stop import Stop
    from ttsbatch.timeline import Timeline

    timeline = Timeline() if timeline_file is not None else None
    progress = make_progress(sys.stderr, quiet)
    stop, reasons = Stop(), Reasons()
    try:
        with stopped_by_signals(stop, progress.message):
            report = synthesize(plan, out, progress, stop, timeline=timeline, reasons=reasons)
    finally:
        progress.close()
    if timeline is not None and timeline_file is not None:
        timeline.write(timeline_file)
    if not quiet:
        print_report(report, sys.stderr)
        for line in reasons.lines(name_of(out)):
            print(line, file=sys.stderr)
    if as_json:
        print(report.to_json(), end="")
    if plan.output.fail_fast and (stopped_at := reasons.stop_line()):
        print(stopped_at, file=sys.stderr)
    if stop.by_signal:
        print("ttsbatch: interrupted; the same command resumes", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_ROWS_FAILED if report.num_bad else EXIT_OK
