"""What a run and its workers tell each other, over a pipe each; recordings travel as raw bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import numpy as np
import numpy.typing as npt

from ttsbatch.models.protocol import Speaker
from ttsbatch.types import EngineStats, Failure, FinishReason, Segment, Waveform

Key = tuple[str, int, int]
"""`Segment.key`: the run keeps the segment, a worker sends back its name."""
Span = tuple[str, float, float, str]
"""Stage, busy seconds, when they ended (`time.perf_counter`, one clock on a machine), thread."""


@dataclass(frozen=True, slots=True)
class Load:
    """To a worker, first of all: what opens its speaker; picklable."""

    opener: Callable[[], Speaker]


@dataclass(frozen=True, slots=True)
class Begin:
    """To a worker: segments follow."""

    with_spans: bool  # tell when each stage was busy


@dataclass(frozen=True, slots=True)
class Segments:
    """To a worker: some of them."""

    segments: list[Segment]


@dataclass(frozen=True, slots=True)
class End:
    """To a worker: that was the last segment since `Begin`."""


@dataclass(frozen=True, slots=True)
class Found:
    """From a worker, before `Load`: the names of the devices that the run is to use."""

    devices: list[str]


@dataclass(frozen=True, slots=True)
class Taken:
    """From a worker: so many more segments are being prepared; it has room for others."""

    count: int


@dataclass(frozen=True, slots=True)
class Spoken:
    """From a worker: the head of a waveform; its samples, and its codes if any, follow as bytes."""

    key: Key
    num_samples: int
    sample_rate_hz: int
    finish_reason: FinishReason
    num_frames: int
    num_nonfinite: int
    codes_shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Refused:
    """From a worker: a segment that cannot be spoken."""

    key: Key
    failure: Failure


@dataclass(frozen=True, slots=True)
class Status:
    """From a worker: its counts so far."""

    stats: EngineStats
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class Ready(Status):
    """From a worker: the model is loaded."""


@dataclass(frozen=True, slots=True)
class Over(Status):
    """From a worker: every segment before `End` has come back, or will not."""


@dataclass(frozen=True, slots=True)
class Broken:
    """From a worker, its last word: what it raised, and where."""

    error: BaseException
    trace: str


Report = Found | Taken | Spoken | Refused | Status | Broken


class Sender:
    """The worker's end: any thread may send."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def send(self, report: Report) -> None:
        """Send a report."""
        with self._lock:
            self._pipe.send(report)

    def send_waveform(self, wave: Waveform) -> None:
        """Send a waveform without its segment."""
        codes = wave.codes
        head = Spoken(
            wave.segment.key,
            len(wave.samples),
            wave.sample_rate_hz,
            wave.finish_reason,
            wave.num_frames,
            wave.num_nonfinite,
            None if codes is None else codes.shape,
        )
        with self._lock:
            self._pipe.send(head)
            _send_array(self._pipe, wave.samples)
            if codes is not None:
                _send_array(self._pipe, codes)


def receive_waveform(pipe: Connection, head: Spoken, segment: Segment) -> Waveform:
    """The waveform whose head has just come."""
    samples = _receive_array(pipe, (head.num_samples,))
    codes = None if head.codes_shape is None else _receive_array(pipe, head.codes_shape)
    return Waveform(
        segment,
        samples,
        head.sample_rate_hz,
        head.finish_reason,
        head.num_frames,
        head.num_nonfinite,
        codes,
    )


def light(segment: Segment) -> Segment:
    """A segment without the columns that only ride along."""
    u = segment.utterance
    return replace(segment, utterance=replace(u, extra={})) if u.extra else segment


def _send_array(pipe: Connection, values: npt.NDArray[np.int16]) -> None:
    if values.size:
        pipe.send_bytes(np.ascontiguousarray(values).data.cast("B"))


def _receive_array(pipe: Connection, shape: tuple[int, ...]) -> npt.NDArray[np.int16]:
    values = np.empty(shape, np.int16)
    if values.size:
        pipe.recv_bytes_into(values.data.cast("B"))
    return values
