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
    from ttsbatch.bench import Timing


class Part(StrEnum):
    """What to time."""

    step = "step"
    ar = "ar"
    codec = "codec"
    all = "all"


def bench(
    model: Annotated[str, typer.Option("--model", help="Checkpoint folder or random:NAME.")],
    slots: Annotated[
        list[int] | None, typer.Option("--slots", help="Repeatable: a sweep.", show_default="256")
    ] = None,
    part: Annotated[Part, typer.Option(help="What to time.")] = Part.all,
    utterances: Annotated[int, typer.Option(help="Rows of the AR workload.", min=1)] = 2048,
    context: Annotated[int, typer.Option(help="Mean positions of the step.", min=64)] = 250,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Chrome trace of a few steps.", dir_okay=False)
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    as_json: AsJson = False,
) -> None:
    """Time the frame step, AR decoding with refill, and the codec; end to end is `synth` itself."""
    from ttsbatch.bench import describe, record_trace, timings
    from ttsbatch.engine.device import choose_device, use_threads_for
    from ttsbatch.errors import PlanError
    from ttsbatch.models import FAMILIES, fetch_missing, open_card
    from ttsbatch.plan import make_plan

    plan = make_plan({"corpus": "-", "device": device, "dtype": dtype}).engine
    card = open_card(model)
    load = FAMILIES[card.family].load_codec_lm
    if load is None:
        raise PlanError(f"--model is {model!r}; only codec-LM models have parts to time")
    fetch_missing(card)
    where, kind = choose_device(plan)
    use_threads_for(where, card.num_parameters)
    loaded = load(card, where, kind)
    about = describe(loaded, kind)
    if not as_json:
        print("  ".join(f"{k} {v}" for k, v in about.items()), file=sys.stderr)
    done: list[dict[str, Any]] = []
    for timing in timings(loaded, slots or [256], utterances, context, part.value):
        done.append(timing.to_json())
        if not as_json:
            _print(timing)
    if trace is not None:
        record_trace(loaded, (slots or [256])[-1], context, trace)
    if as_json:
        print(json.dumps({"about": about, "timings": done}, indent=2))


def _print(timing: Timing) -> None:
    extra = "  ".join(f"{k} {v:,.2f}" for k, v in timing.extra.items())
    what = f"{timing.name:<16}" + (f"{timing.slots:5d} slots" if timing.slots else " " * 11)
    print(f"{what}  {timing.audio_seconds_per_second:9,.0f} audio-s/s  {extra}", flush=True)
