"""Throughput by part on random weights or a checkpoint: frame step, AR alone, codec alone.

End to end is not here: it is the `synth` command itself. The workload is drawn beforehand:
utterance lengths log-normal with a mean of 5 s, cut at 20 s; texts of the size that speaks so long.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ttsbatch import __version__
from ttsbatch.engine.budget import make_job
from ttsbatch.engine.codec_batches import FULL_FRAMES, CodecBatches, Piece, Shape
from ttsbatch.engine.decode import DecodeLoop, FinishedCodes
from ttsbatch.engine.queue import JobQueue, Prefetch, Refusal
from ttsbatch.engine.slots import Job
from ttsbatch.errors import SinkError
from ttsbatch.models.protocol import PAGE_SIZE, CodecLM, PreparedPrompt
from ttsbatch.types import EngineStats, Segment, Utterance

MEAN_S, SIGMA, LONGEST_S, SHORTEST_S = 5.0, 0.6, 20.0, 0.5
CHARS_PER_S = 14.0
WORDS = [
    "the",
    "a",
    "river",
    "light",
    "under",
    "stone",
    "quiet",
    "morning",
    "paper",
    "window",
    "garden",
    "north",
    "slow",
    "bread",
    "copper",
    "harbour",
    "little",
    "weather",
    "answer",
    "yellow",
    "market",
    "carry",
    "evening",
    "between",
    "wooden",
    "letter",
]


@dataclass(frozen=True, slots=True)
class Timing:
    """One measured figure."""

    name: str
    slots: int
    seconds: float
    audio_seconds: float
    extra: dict[str, float]

    @property
    def audio_seconds_per_second(self) -> float:
        """The throughput; 0 where the part makes no audio."""
        return self.audio_seconds / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"audio_seconds_per_second": self.audio_seconds_per_second}


def lengths_s(count: int, seed: int = 0) -> np.ndarray:
    """[count] float64 seconds of the workload."""
    rng = np.random.default_rng(seed)
    mu = np.log(MEAN_S) - SIGMA**2 / 2
    return np.clip(rng.lognormal(mu, SIGMA, count), SHORTEST_S, LONGEST_S)


def workload(count: int, seed: int = 0, voice: str | None = "ryan") -> list[dict[str, Any]]:
    """Corpus rows (`id`, `text`, `max_seconds`, `voice`) of the workload."""
    rng = np.random.default_rng(seed + 1)
    rows = []
    for i, seconds in enumerate(lengths_s(count, seed)):
        words: list[str] = []
        while sum(map(len, words)) + len(words) < seconds * CHARS_PER_S:
            words.append(WORDS[rng.integers(len(WORDS))])
        row: dict[str, Any] = {"id": f"bench-{i:05d}", "text": " ".join(words).capitalize() + "."}
        rows.append(row | {"max_seconds": round(float(seconds), 2), "voice": voice})
    return rows


def jobs_of(model: CodecLM, rows: list[dict[str, Any]]) -> list[Job]:
    """The rows as jobs."""
    jobs = []
    for i, row in enumerate(rows):
        utterance = Utterance(
            id=row["id"],
            text=row["text"],
            spoken_text=row["text"],
            source="bench",
            line=i + 1,
            voice=row["voice"],
            language="en",
            seed=i,
            max_seconds=row["max_seconds"],
        )
        prompt = model.prepare(Segment(utterance, 0, row["text"]))
        assert isinstance(prompt, PreparedPrompt)
        jobs.append(make_job(prompt, model.spec))
    return jobs


def pages_for(slots: int, positions: int) -> int:
    """Pages for that many slots of that many positions, and the scratch page."""
    return slots * -(-positions // PAGE_SIZE) + 1


def bench_ar(model: CodecLM, slots: int, count: int, use_graphs: bool = True) -> Timing:
    """Prefill and decode with continuous refill, no codec; graphs are captured beforehand."""
    stats = EngineStats()
    longest = int(LONGEST_S * model.spec.frame_rate_hz) + 160
    longest = -(-longest // PAGE_SIZE) * PAGE_SIZE
    loop = DecodeLoop(model, slots, pages_for(slots, longest), longest, stats, use_graphs)
    jobs: list[Job | Refusal] = [*jobs_of(model, workload(count))]

    def run(part: list[Job | Refusal]) -> int:
        with Prefetch(part, count, "bench-jobs") as incoming:
            done = loop.run(JobQueue(incoming, count))
            return sum(len(f.codes) for f in done if isinstance(f, FinishedCodes))

    run(jobs[:slots])  # warm-up: prefill kernels
    stats.stage_seconds.clear()
    stats.busy_slot_steps = stats.total_slot_steps = stats.num_steps = stats.eager_steps = 0
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
            "eager_steps": stats.eager_steps,
        },
    )


def bench_step(
    model: CodecLM,
    slots: int,
    context: int,
    frames: int = 32,
    around: AbstractContextManager[Any] | None = None,
) -> Timing:
    """Milliseconds of one frame of all slots, each row at about `context` positions.

    `around` is entered around the timed frames (a profiler).
    """
    stats = EngineStats()
    longest = -(-(context + frames + 64) // PAGE_SIZE) * PAGE_SIZE
    loop = DecodeLoop(model, slots, pages_for(slots, longest), longest, stats)
    text = "a " * (context - frames // 2 - 11)  # one id each, and the prompt's other positions
    rows = [
        {"id": str(i), "text": text.strip(), "max_seconds": 4.0, "voice": "ryan"}
        for i in range(slots)
    ]
    seconds = loop.time_frames(jobs_of(model, rows), frames, around)
    audio = slots * frames / model.spec.frame_rate_hz
    return Timing("step", slots, seconds, audio, {"step_ms": 1e3 * seconds / frames})


def bench_codec(model: CodecLM, frames: int, batch: int, repeats: int = 5) -> Timing:
    """Decode of a batch of rows of one length to int16 samples, which stay on the device."""
    batches = CodecBatches(model)
    codes = torch.randint(0, 64, (batch, frames, model.spec.num_codebooks), device=model.device)
    shape, pieces = Shape(batch, frames), [Piece(c) for c in codes]
    with torch.inference_mode():
        if model.device.type == "cuda":
            batches.capture(torch.cuda.Stream(model.device), [shape])
        batches.run(pieces, shape)
        _synchronize(model)
        started = time.perf_counter()
        for _ in range(repeats):
            batches.run(pieces, shape)
        _synchronize(model)
    seconds = (time.perf_counter() - started) / repeats
    audio = batch * frames / model.spec.frame_rate_hz
    return Timing(f"codec {batch}x{frames}", 0, seconds, audio, {"ms": 1e3 * seconds})


def _synchronize(model: CodecLM) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


def describe(model: CodecLM, dtype: torch.dtype) -> dict[str, str]:
    """What a figure has to be read with: versions, device, model."""
    cuda = model.device.type == "cuda"
    return {
        "ttsbatch": __version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(model.device) if cuda else "cpu",
        "dtype": str(dtype).removeprefix("torch."),
        "model": model.card.name,
    }


def timings(
    model: CodecLM, slots: list[int], count: int, context: int, part: str = "all"
) -> Iterator[Timing]:
    """The parts one by one: "step", "ar", "codec", or "all" of them."""
    for s in slots if part in ("step", "all") else []:
        yield bench_step(model, s, context)
    for s in slots if part in ("ar", "all") else []:
        yield bench_ar(model, s, count)
    if part in ("codec", "all"):
        longest = model.spec.codec_window_frames + model.spec.codec_context_frames
        for frames in (64, 128, longest):
            yield bench_codec(model, frames, max(1, FULL_FRAMES // frames))


def record_trace(model: CodecLM, slots: int, context: int, file: Path) -> None:
    """Write a Chrome trace of a few frames of all slots.

    Raises:
        SinkError: the file cannot be written.
    """
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU]
    if model.device.type == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    recorder = profile(activities=kinds)
    bench_step(model, slots, context, frames=4, around=recorder)
    try:
        recorder.export_chrome_trace(str(file))
    except OSError as e:
        raise SinkError(f"{file}: cannot be written: {e.strerror or e}") from e
