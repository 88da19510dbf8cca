"""The parts of a run that make codes and samples, each alone: frame step, prefill, AR, codec."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from ttsbatch.bench.timing import Timing
from ttsbatch.bench.workload import REFERENCE_TEXT, write_clip
from ttsbatch.engine.budget import make_job
from ttsbatch.engine.codec_batches import (
    FULL_SAMPLES,
    CodecBatches,
    Piece,
    Shape,
    frames_in,
    scaled,
)
from ttsbatch.engine.decode import PREFILL_BUCKETS, DecodeLoop, FinishedFrames
from ttsbatch.engine.graphs import BucketGraphs
from ttsbatch.engine.queue import JobQueue, Prefetch, Refusal
from ttsbatch.engine.slots import Job, SlotTable
from ttsbatch.errors import EngineError, PlanError
from ttsbatch.kernels.launch import fallbacks
from ttsbatch.models.protocol import PAGE_SIZE, CodecLM, PreparedPrompt
from ttsbatch.text.duration import expected_seconds
from ttsbatch.types import AUTO, EngineStats, Sampling, Segment, Utterance

REPEATS = 5  # of prefill and codec passes
STEP_FRAMES = 32


def jobs_of(model: CodecLM, rows: list[dict[str, Any]]) -> list[Job]:
    """Corpus rows as jobs.

    Raises:
        EngineError: the model refuses one.
    """
    jobs = []
    for i, row in enumerate(rows):
        utterance = Utterance(
            id=row["id"],
            text=row["text"],
            spoken_text=row["text"],
            source="bench",
            line=i + 1,
            voice=row.get("voice"),
            language=AUTO,
            seed=i,
            instruct=row.get("instruct"),
            ref_audio=row.get("ref_audio"),
            ref_text=row.get("ref_text"),
            max_seconds=row["max_seconds"],
            sampling=Sampling(steps=row.get("steps")),
        )
        expected_s = expected_seconds(row["text"], AUTO)
        prompt = model.prepare(Segment(utterance, 0, row["text"], expected_s=expected_s))
        if not isinstance(prompt, PreparedPrompt):
            raise EngineError(f"a row of the workload is refused: {prompt.message}")
        jobs.append(make_job(prompt, model.spec))
    return jobs


def pages_for(slots: int, positions: int) -> int:
    """Pages for that many slots of that many positions, and the scratch page."""
    return slots * -(-positions // PAGE_SIZE) + 1


def bench_step(
    model: CodecLM,
    slots: int,
    context: int,
    voice: dict[str, Any],
    folder: Path,
    frames: int = STEP_FRAMES,
    around: AbstractContextManager[Any] | None = None,
    use_graphs: bool = True,
) -> Timing:
    """Milliseconds of one frame of all slots, each row at about `context` positions.

    Args:
        model: loaded.
        slots: all of them busy.
        context: mean positions over the timed frames.
        voice: a row's fields, of `workload.voices_of`.
        folder: where a reference may be written.
        frames: timed ones.
        around: is entered around the timed frames (a profiler).
        use_graphs: off for what compares.

    Raises:
        PlanError: a context that the model or the shortest prompt has no room for.
    """
    release(model)
    stats, fell = EngineStats(), fallbacks.copy()
    longest = -(-(context + frames + 64) // PAGE_SIZE) * PAGE_SIZE
    if longest > model.spec.max_positions:
        raise PlanError(
            f"--context is {context}; {model.card.name} has {model.spec.max_positions} positions, "
            f"of which the timed frames need {longest - context}"
        )
    loop = DecodeLoop(model, slots, pages_for(slots, longest), longest, stats, use_graphs)
    row = row_of_positions(model, context - frames // 2, voice, folder)
    # One frame more warms up; a row that is over costs less than one that goes on.
    row["max_seconds"] = max(row["max_seconds"], (frames + 2) / model.spec.frame_rate_hz)
    jobs = jobs_of(model, [row | {"id": str(i)} for i in range(slots)])
    seconds = loop.time_frames(jobs, frames, around)
    positions = jobs[0].prompt.num_positions + frames // 2
    return Timing(
        "step",
        slots,
        seconds,
        slots * frames / model.spec.frame_rate_hz,
        {"step_ms": 1e3 * seconds / frames, "context": positions},
        _slow_paths(fell, eager_steps=loop.num_eager),
    )


def row_of_positions(
    model: CodecLM, positions: int, voice: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """A row whose prompt takes about `positions` positions: a long text, or a long reference.

    Raises:
        PlanError: the shortest prompt is longer.
    """
    row = {"id": "0", "text": "a", "max_seconds": 4.0} | voice
    # A model that clones hears its text frame by frame, and its reference beforehand.
    clones = "ref_audio" in voice
    if clones:
        row |= {"ref_text": REFERENCE_TEXT}

        def lengthened(by: int) -> dict[str, Any]:
            seconds = by / model.spec.frame_rate_hz
            return row | {"ref_audio": str(write_clip(folder / f"step-{by}.wav", 0, seconds))}
    else:

        def lengthened(by: int) -> dict[str, Any]:
            return row | {"text": " ".join(["a"] * by)}

    first, tried = 1 + clones, 16
    short, longer = (
        job.prompt.num_positions
        for job in jobs_of(model, [lengthened(first), lengthened(first + tried)])
    )
    missing = positions - short
    if missing < 0:
        raise PlanError(
            f"--context leaves {positions} positions to the prompt; expected at least {short}"
        )
    return lengthened(first + missing * tried // (longer - short))  # a word may be several


def bench_prefill(model: CodecLM, rows: list[dict[str, Any]]) -> list[Timing]:
    """Prefill passes of packed prompts, one figure per captured size, references encoded before.

    `audio_seconds` are those of the rows that a pass seats: prefill alone would sustain so many.
    """
    release(model)
    jobs: list[Job] = []
    tokens = 0
    for job in jobs_of(model, rows):
        tokens += job.prompt.num_positions
        if jobs and tokens > PREFILL_BUCKETS[-1]:
            break
        jobs.append(job)
    longest = max(j.prompt.num_positions for j in jobs)
    state = model.new_state(len(jobs), pages_for(len(jobs), longest), longest)
    fell = fallbacks.copy()
    work = BucketGraphs(
        "prefill", lambda tokens: model.prefill(state, tokens), model.device, PREFILL_BUCKETS
    )
    timings, num_before = [], 0
    with torch.inference_mode():
        if model.device.type == "cuda":
            work.capture(torch.cuda.Stream(model.device))
        for bucket in PREFILL_BUCKETS:
            slots, room = SlotTable(len(jobs), pages_for(len(jobs), longest)), bucket
            owners = []
            for job in jobs:
                if job.prompt.num_positions > room:
                    break
                room -= job.prompt.num_positions
                owners.append(slots.take(Job(job.prompt, 1, 0)))  # pages for the prompt alone
            if len(owners) <= num_before:  # the same prompts, and more padding
                continue
            num_before = len(owners)
            seats = [o.seat for o in owners]

            def one_pass(seats: Any = seats) -> None:
                work.run(model.stage(state, seats))

            seconds = _seconds(model, one_pass)
            tokens = bucket - room
            expected = sum(j.expected_frames for j in jobs[: len(owners)])
            timings.append(
                Timing(
                    f"prefill {bucket}",
                    0,
                    seconds,
                    expected / model.spec.frame_rate_hz,
                    {"ms": 1e3 * seconds, "rows": len(owners), "tokens_per_s": tokens / seconds},
                    _slow_paths(fell, eager_prefills=work.num_eager),
                )
            )
            work.num_eager = 0
    return timings


def bench_ar(model: CodecLM, slots: int, rows: list[dict[str, Any]]) -> Timing:
    """Prefill and decode with continuous refill, no codec; graphs are captured beforehand."""
    release(model)
    stats, fell = EngineStats(), fallbacks.copy()
    jobs: list[Job | Refusal] = []
    longest = 0
    for job in jobs_of(model, rows):
        jobs.append(job)
        longest = max(longest, job.num_pages * PAGE_SIZE)
    loop = DecodeLoop(model, slots, pages_for(slots, longest), longest, stats)

    def run(part: list[Job | Refusal]) -> int:
        with Prefetch(part, len(jobs), "bench-jobs") as incoming:
            done = loop.run(JobQueue(incoming, len(jobs)))
            return sum(len(f.frames) for f in done if isinstance(f, FinishedFrames))

    references = len({row.get("ref_audio") for row in rows})
    run(jobs[: max(slots, references)])  # warm-up: prefill kernels, every reference
    stats.stage_seconds.clear()
    stats.busy_slot_steps = stats.total_slot_steps = stats.num_steps = 0
    eager_before = loop.num_eager
    _synchronize(model)
    started = time.perf_counter()
    frames = run(jobs)
    _synchronize(model)
    seconds = time.perf_counter() - started
    return Timing(
        "ar",
        slots,
        seconds,
        frames / model.spec.frame_rate_hz,
        {
            "steps": stats.num_steps,
            "busy": stats.busy_slot_steps / max(stats.total_slot_steps, 1),
            "prefill_host_s": stats.stage_seconds.get("prefill", 0.0),
            "decode_host_s": stats.stage_seconds.get("decode", 0.0),
        },
        _slow_paths(fell, eager_steps=loop.num_eager - eager_before),
    )


def bench_codec(model: CodecLM, frames: int, batch: int) -> Timing:
    """Decode of a batch of rows of one length to int16 samples, which stay on the device."""
    release(model)
    batches, fell = CodecBatches(model), fallbacks.copy()
    random = torch.rand(batch, frames, model.spec.frame_width, device=model.device)
    random = random if model.spec.frame_dtype.is_floating_point else random * 64
    shape, pieces = Shape(batch, frames), [Piece(c) for c in random.to(model.spec.frame_dtype)]
    with torch.inference_mode():
        if model.device.type == "cuda":
            batches.capture(torch.cuda.Stream(model.device), [shape])
        seconds = _seconds(model, lambda: batches.run(pieces, shape))
    return Timing(
        f"codec {batch}x{frames}",
        0,
        seconds,
        batch * frames / model.spec.frame_rate_hz,
        {"ms": 1e3 * seconds},
        _slow_paths(fell, codec_graph_misses=batches.misses),
    )


def bench_codecs(model: CodecLM) -> list[Timing]:
    """The codec on full batches of short, middling and the longest passes."""
    spec = model.spec
    longest = spec.codec_window_frames + spec.codec_context_frames
    full = frames_in(FULL_SAMPLES, spec) if model.device.type == "cuda" else longest
    lengths = *(scaled(n, longest) for n in (64, 128)), longest
    return [bench_codec(model, n, max(1, full // n)) for n in lengths]


def release(model: CodecLM) -> None:
    """Free what the part before has allocated: its loop and its graphs hold each other."""
    if model.device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _seconds(model: CodecLM, call: Callable[[], object]) -> float:
    """Of one call, in the mean of some after one that warms up."""
    call()
    _synchronize(model)
    started = time.perf_counter()
    for _ in range(REPEATS):
        call()
    _synchronize(model)
    return (time.perf_counter() - started) / REPEATS


def _synchronize(model: CodecLM) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


def _slow_paths(fell_before: Any, **counts: int) -> dict[str, int]:
    return counts | {f"without kernels: {k}": n for k, n in (fallbacks - fell_before).items()}
