"""`ttsbatch bench`: throughput by part, on a checkpoint or on random weights of official sizes."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttsbatch.cli.options import AsJson, Device, Dtype

if TYPE_CHECKING:
    from ttsbatch.bench.profiles import KernelTime
    from ttsbatch.bench.timing import Timing


class Part(StrEnum):
    """What to time: the names of `bench.run.Part`, and all of them."""

    step = "step"
    prefill = "prefill"
    ar = "ar"
    codec = "codec"
    speaker = "speaker"
    e2e = "e2e"
    all = "all"


class Variant(StrEnum):
    """Whose voices the workload has: the names of `bench.workload.Variant`."""

    named = "named"
    cloning = "cloning"
    embedding = "embedding"


def bench(
    model: Annotated[str, typer.Option("--model", help="Checkpoint folder or random:NAME.")],
    part: Annotated[Part, typer.Option(help="What to time.")] = Part.all,
    slots: Annotated[
        list[int] | None,
        typer.Option("--slots", help="Repeatable: a sweep.", min=1, show_default="256"),
    ] = None,
    utterances: Annotated[int, typer.Option(help="Rows of the workload.", min=1)] = 2048,
    context: Annotated[int, typer.Option(help="Mean positions of the step.", min=64)] = 250,
    variant: Annotated[
        Variant | None,
        typer.Option(
            help="A named voice, or the model's own; clips cloned in context; clips without text.",
            show_default="cloning if the model does nothing else, else named",
        ),
    ] = None,
    references: Annotated[int, typer.Option(help="Distinct clips of 6 s to clone.", min=1)] = 64,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Chrome trace of a few frames (step).", dir_okay=False),
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="A table of the kernels of one frame (step).")
    ] = False,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline", help="When each stage was busy (e2e), as a Chrome trace.", dir_okay=False
        ),
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    as_json: AsJson = False,
) -> None:
    """Time the frame step, prefill, AR decoding, the codec, the reference encoders, and synth.

    On a GPU it exits 5 where anything ran without a graph or without kernels after warm-up.
    """
    from ttsbatch.bench.run import PARTS, Request, timings
    from ttsbatch.bench.timing import check_paths, describe
    from ttsbatch.engine.device import choose_device
    from ttsbatch.models import fetch_missing, open_card
    from ttsbatch.plan import make_plan

    card = open_card(model)
    where, kind = choose_device(make_plan({"corpus": "-", "device": device, "dtype": dtype}).engine)
    table: list[KernelTime] | None = [] if kernels else None
    request = Request(
        card=card,
        device=where,
        dtype=kind,
        part=next((p for p in PARTS if p == part.value), None),  # "all" is none of them
        slots=slots or [256],
        num_rows=utterances,
        context=context,
        variant=None if variant is None else variant.value,
        num_references=references,
        trace=trace,
        timeline=timeline,
        kernels=table,
    )
    request.check()
    fetch_missing(card)
    about = describe(card.name, where, kind)
    if not as_json:
        print("  ".join(f"{k} {v}" for k, v in about.items()), file=sys.stderr)
        for name, why in request.left_out.items():
            print(f"left out: {name}: {why}", file=sys.stderr)
    done: list[Timing] = []
    for timing in timings(request):
        done.append(timing)
        if not as_json:
            _print(timing)
    if as_json:
        values: dict[str, Any] = {"about": about, "timings": [t.to_json() for t in done]}
        values["left_out"] = request.left_out
        if table is not None:
            values["kernels"] = [k.to_json() for k in table]
        print(json.dumps(values, indent=2))
    elif table is not None:
        from ttsbatch.bench.profiles import table_lines

        print("\n".join(table_lines(table)))
    if where.type == "cuda":
        check_paths(done)


def _print(timing: Timing) -> None:
    extra = "  ".join(f"{k} {v:,.2f}" for k, v in timing.extra.items())
    what = f"{timing.name:<16}" + (f"{timing.slots:5d} slots" if timing.slots else " " * 11)
    print(f"{what}  {timing.audio_seconds_per_second:9,.0f} audio-s/s  {extra}", flush=True)
