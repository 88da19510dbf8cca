"""The parts of a request, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import torch

from ttsbatch.bench.end_to_end import bench_end_to_end
from ttsbatch.bench.parts import bench_ar, bench_codecs, bench_prefill, bench_step
from ttsbatch.bench.profiles import KernelTime, kernel_table, record_trace
from ttsbatch.bench.references import bench_references
from ttsbatch.bench.timing import Timing
from ttsbatch.bench.workload import Variant, voices_of, workload
from ttsbatch.engine.device import make_current, use_threads_for
from ttsbatch.errors import PlanError
from ttsbatch.models import FAMILIES
from ttsbatch.models.protocol import CodecLM
from ttsbatch.types import Demand, ModelCard

Part = Literal["step", "prefill", "ar", "codec", "speaker", "e2e"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, slots=True)
class Request:
    """What to time, on what."""

    card: ModelCard
    device: torch.device
    dtype: torch.dtype
    part: Part | None  # None: all that the model has
    slots: list[int]  # a figure for each, where a part has slots
    num_rows: int  # of the workload
    context: int  # mean positions of the step
    variant: Variant | None  # None: by the model
    num_references: int
    trace: Path | None = None  # gets a trace of the step
    timeline: Path | None = None  # gets the stages of the last run of `synth`
    kernels: list[KernelTime] | None = field(default=None)  # gets the kernels of the step

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts to time."""
        if self.part is not None:
            return (self.part,)
        return tuple(p for p in PARTS if p != "speaker" or self.clones)

    @property
    def clones(self) -> bool:
        """Whether the model makes anything of reference clips."""
        return "ref_audio" in self.card.options

    @property
    def left_out(self) -> dict[str, str]:
        """The parts that have no meaning for the model, and why."""
        if self.clones or self.part is not None:
            return {}
        return {"speaker": f"{self.card.name} clones nothing"}

    def check(self) -> None:
        """See that it can be done, before anything is loaded.

        Raises:
            PlanError: an option that this model or these parts have no use for.
        """
        card = self.card
        if FAMILIES[card.family].load_codec_lm is None:
            raise PlanError(f"--model is {card.name!r}; only codec-LM models have parts to time")
        if self.part == "speaker" and not self.clones:
            message = f"--part speaker: {card.name} clones nothing; expected a model that does"
            raise PlanError(message)
        if (self.trace or self.kernels is not None) and "step" not in self.parts:
            raise PlanError("--trace and --kernels are of the step; expected --part step")
        if self.timeline and "e2e" not in self.parts:
            raise PlanError("--timeline is of a whole run; expected --part e2e")


def timings(r: Request) -> Iterator[Timing]:
    """The figures as they come; `synth` first, while this process holds no device memory.

    Raises:
        TTSBatchError: a part failed.
    """
    with TemporaryDirectory(prefix="ttsbatch-bench-") as name:
        folder = Path(name)
        voices = voices_of(r.card, r.variant, r.num_references, folder / "references")
        rows = workload(r.num_rows, voices=voices)
        if "e2e" in r.parts:
            yield from _whole_runs(r, rows, folder)
        make_current(r.device)
        use_threads_for(r.device, r.card.num_parameters)
        family = FAMILIES[r.card.family]
        if "speaker" in r.parts:
            assert family.load_encoders is not None
            yield from bench_references(family.load_encoders(r.card, r.device), r.num_references)
        if not set(r.parts) <= {"e2e", "speaker"}:
            assert family.load_codec_lm is not None
            model = family.load_codec_lm(r.card, r.device, r.dtype, Demand())
            yield from _of_model(r, model, rows, voices[0], folder)


def _whole_runs(r: Request, rows: list[dict[str, Any]], folder: Path) -> Iterator[Timing]:
    # `synth` runs in a folder of its own, so that a relative path would mean another one.
    model = r.card.name if r.card.path is None else str(Path(r.card.path).resolve())
    for slots in r.slots:
        options = {"--model": model, "--slots": str(slots), "--device": str(r.device)}
        options["--dtype"] = str(r.dtype).removeprefix("torch.")
        with TemporaryDirectory(dir=folder) as own:
            yield bench_end_to_end(Path(own), rows, options, r.timeline)


def _of_model(
    r: Request, model: CodecLM, rows: list[dict[str, Any]], voice: dict[str, Any], folder: Path
) -> Iterator[Timing]:
    if "step" in r.parts:
        for slots in r.slots:
            yield bench_step(model, slots, r.context, voice, folder)
    if "prefill" in r.parts:
        yield from bench_prefill(model, rows)
    if "ar" in r.parts:
        for slots in r.slots:
            yield bench_ar(model, slots, rows)
    if "codec" in r.parts:
        yield from bench_codecs(model)
    if r.trace is not None:
        record_trace(model, r.slots[-1], r.context, voice, folder, r.trace)
    if r.kernels is not None:
        r.kernels.extend(kernel_table(model, r.slots[-1], r.context, voice, folder))
