"""The command line: `main` and the command list. Errors become exit codes here and only here."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ttsbatch import __version__
from ttsbatch.cli import bench, check, export, models, redo, report, synth, verify, voices
from ttsbatch.errors import EXIT_INTERRUPTED, PlanError, TTSBatchError


class Commands(TyperGroup):
    """Turns our errors into one line on stderr and an exit code; a bug keeps its traceback."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in plain text: rich alone would take 0.15 s to import."""
        self.rich_markup_mode = None
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without a command there is the help: typer's own `no_args_is_help` prints nothing."""
        if not args and not ctx.resilient_parsing:
            print(ctx.get_help(), file=sys.stderr)
            raise typer.Exit(PlanError.exit_code)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except TTSBatchError as e:
            print(f"ttsbatch: error: {e}", file=sys.stderr)
            raise typer.Exit(e.exit_code) from e
        except KeyboardInterrupt:
            print("ttsbatch: interrupted; the same command resumes", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    help="A corpus in; audio shards, a manifest and an RTF report out.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ttsbatch {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


for command in (
    synth.synth,
    check.check,
    report.report,
    verify.verify,
    export.export,
    redo.redo,
    bench.bench,
    models.models,
    voices.voices,
):
    app.command()(command)


def main() -> None:
    """The console script."""
    app()
