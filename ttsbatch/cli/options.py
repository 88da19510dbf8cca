"""The options that commands share; each has the name of the recipe field that it overrides."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ttsbatch.plan import RunPlan

ROWS = "What a row gets where it says nothing itself"
READING = "Reading the corpus"
RUNNING = "Running"
WRITING = "The audio that is written"
CHECKS = "Checks with a model of their own"

Corpus = Annotated[
    list[str] | None,
    typer.Argument(
        help=".jsonl, .parquet, .csv, .tsv or .txt, each also .gz or .zst; globs; - for JSONL on "
        "stdin; any URI that pyarrow.fs opens.",
        show_default=False,
    ),
]
Recipe = Annotated[
    Path | None, typer.Option("--recipe", help="TOML with the options' own names; options win.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Checkpoint folder, hub id, or random:NAME; without it the embedded English model.",
    ),
]
Voice = Annotated[str | None, typer.Option(help="A named voice.", rich_help_panel=ROWS)]
Language = Annotated[
    str | None,
    typer.Option(help="ISO 639 code or English name; else auto.", rich_help_panel=ROWS),
]
Instruct = Annotated[str | None, typer.Option(help="How to speak, in words.", rich_help_panel=ROWS)]
RefAudio = Annotated[
    str | None, typer.Option(help="A recording of the voice to clone.", rich_help_panel=ROWS)
]
RefText = Annotated[
    str | None, typer.Option(help="What is said in --ref-audio.", rich_help_panel=ROWS)
]
Seed = Annotated[
    int | None,
    typer.Option(help="Rows without a seed derive theirs from this.", rich_help_panel=ROWS),
]
Temperature = Annotated[
    float | None, typer.Option(help="0 decodes greedily.", rich_help_panel=ROWS)
]
TopK = Annotated[int | None, typer.Option(help="0 is off.", rich_help_panel=ROWS)]
TopP = Annotated[float | None, typer.Option(help="1 is off.", rich_help_panel=ROWS)]
RepetitionPenalty = Annotated[float | None, typer.Option(help="1 is off.", rich_help_panel=ROWS)]
Guidance = Annotated[
    float | None,
    typer.Option(help="How closely latents follow the text and voice.", rich_help_panel=ROWS),
]
Steps = Annotated[
    int | None,
    typer.Option(help="Solver steps per patch of latents, 2 to 100.", rich_help_panel=ROWS),
]
MaxSeconds = Annotated[
    float | None,
    typer.Option(
        help="The longest audio of a row, in place of the bound from its text.",
        rich_help_panel=ROWS,
    ),
]
Split = Annotated[
    bool | None,
    typer.Option(
        "--split/--no-split",
        help="Whether long rows are spoken in pieces and joined.",
        rich_help_panel=ROWS,
        show_default=False,
    ),
]
Normalize = Annotated[
    bool | None,
    typer.Option(
        "--normalize/--no-normalize",
        help="Whether markup is taken out and numbers are put in words; on.",
        rich_help_panel=ROWS,
        show_default=False,
    ),
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN",
        help="Read a field of ours from another column; repeatable.",
        rich_help_panel=READING,
        show_default=False,
    ),
]
Limit = Annotated[int | None, typer.Option(help="Stop after N rows.", rich_help_panel=READING)]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Of CSV and TSV: one character, or tab.", rich_help_panel=READING),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether CSV and TSV begin with column names; without them columns count from 0.",
        rich_help_panel=READING,
        show_default=False,
    ),
]
UnsupportedLanguage = Annotated[
    str | None,
    typer.Option(
        metavar="reject|warn",
        help="A row in a language that the model does not list.",
        rich_help_panel=READING,
    ),
]
Device = Annotated[
    str | None, typer.Option(help="auto, cpu, cuda, cuda:0,1.", rich_help_panel=RUNNING)
]
Dtype = Annotated[
    str | None, typer.Option(help="auto, float32, bfloat16.", rich_help_panel=RUNNING)
]
Slots = Annotated[
    str | None, typer.Option(help="Rows in work at once; auto.", rich_help_panel=RUNNING)
]
Format = Annotated[
    str | None,
    typer.Option(metavar="wav|flac|opus|mp3", help="Of the files; wav.", rich_help_panel=WRITING),
]
SampleRate = Annotated[
    int | None, typer.Option(help="Hz, in place of the model's own.", rich_help_panel=WRITING)
]
Loudness = Annotated[
    float | None,
    typer.Option(
        metavar="LUFS",
        help="Bring each row to this integrated loudness, such as -23.",
        rich_help_panel=WRITING,
    ),
]
Layout = Annotated[
    str | None,
    typer.Option(
        metavar="dir|tar|parquet",
        help="A file per row, WebDataset shards, or Parquet with the audio in it; dir.",
        rich_help_panel=WRITING,
    ),
]
CheckAsr = Annotated[
    str | None,
    typer.Option(
        "--check-asr",
        metavar="FOLDER",
        help="Hear every row with this faster-whisper model.",
        rich_help_panel=CHECKS,
    ),
]
MaxWer = Annotated[
    float | None,
    typer.Option(help="More wrong words than this share are a flag; 0.3.", rich_help_panel=CHECKS),
]
CheckSpeaker = Annotated[
    str | None,
    typer.Option(
        "--check-speaker",
        metavar="FILE",
        help="Compare cloned voices with their references by this ONNX speaker encoder.",
        rich_help_panel=CHECKS,
    ),
]
MinSimilarity = Annotated[
    float | None,
    typer.Option(help="A smaller cosine is a flag; 0.5.", rich_help_panel=CHECKS),
]
CheckDnsmos = Annotated[
    str | None,
    typer.Option(
        "--check-dnsmos",
        metavar="FOLDER",
        help="Score every row with sig_bak_ovr.onnx of the DNS Challenge.",
        rich_help_panel=CHECKS,
    ),
]
MinMos = Annotated[
    float | None,
    typer.Option(help="A lower overall score, 1 to 5, is a flag; 2.5.", rich_help_panel=CHECKS),
]
AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")]
IsQuiet = Annotated[
    bool, typer.Option("--quiet", help="Nothing on stderr but warnings and errors.")
]


def _corpus_options(
    corpus: Corpus = None,
    recipe: Recipe = None,
    model: Model = None,
    voice: Voice = None,
    language: Language = None,
    instruct: Instruct = None,
    ref_audio: RefAudio = None,
    ref_text: RefText = None,
    seed: Seed = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    repetition_penalty: RepetitionPenalty = None,
    guidance: Guidance = None,
    steps: Steps = None,
    max_seconds: MaxSeconds = None,
    normalize: Normalize = None,
    split: Split = None,
    map: Map = None,
    limit: Limit = None,
    delimiter: Delimiter = None,
    header: Header = None,
    unsupported_language: UnsupportedLanguage = None,
    device: Device = None,
    dtype: Dtype = None,
    slots: Slots = None,
) -> None:
    """What every command that reads a corpus takes, in the order of its help."""


def with_corpus_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the options of `_corpus_options` before its own.

    Args:
        command: its first parameter gets those options, as a mapping for `plan_from`.
    """
    shared = inspect.signature(_corpus_options, eval_str=True).parameters
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    def run(**given: Any) -> None:
        command({name: given.pop(name) for name in shared}, **given)

    # What typer reads in place of the `def` line.
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*shared.values(), *own)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def plan_from(options: Mapping[str, Any]) -> tuple[RunPlan, str | None]:
    """The plan of a command's arguments laid over its recipe, and `out`.

    Args:
        options: the command's options by name; names that are no recipe field are left out.

    Raises:
        PlanError: a bad recipe or a bad value.
    """
    from ttsbatch.plan import make_plan
    from ttsbatch.recipe import FIELDS, read_recipe

    recipe = options.get("recipe")
    values = read_recipe(recipe) if recipe else {}
    given = {k: v for k, v in options.items() if k in FIELDS and v is not None}
    values |= given
    out = values.pop("out", None)
    return make_plan(values), out
