"""The worker's side: load the model, speak what comes, tell how it goes."""

from __future__ import annotations

import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection

from ttsbatch.errors import EngineError
from ttsbatch.memory import peak_host_memory_bytes
from ttsbatch.models.protocol import Speaker
from ttsbatch.types import EngineStats, Segment, Waveform
from ttsbatch.workers.messages import (
    Begin,
    Broken,
    End,
    Found,
    Load,
    Over,
    Ready,
    Refused,
    Segments,
    Sender,
    Span,
    Status,
    Taken,
)

STATUS_EVERY_S = 0.25
Find = Callable[[], list[str]]


def run_worker(pipe: Connection, control: Connection, find: Find | None = None) -> None:
    """The whole life of a worker process.

    Args:
        pipe: to the run, for messages.
        control: from the run: a byte asks to begin nothing more; its end is the end of the run.
        find: called first of all, for names of devices that are then told.
    """
    worker = _Worker(pipe)
    watch = threading.Thread(target=_watch, args=(control, worker), daemon=True)
    watch.start()
    try:
        worker.work(find)
    except BaseException as e:
        try:
            worker.out.send(Broken(_picklable(e), traceback.format_exc()))
        except OSError:  # the run needs it no more, which was the error too
            worker.close()


def _watch(control: Connection, worker: _Worker) -> None:
    while os.read(control.fileno(), 1):
        worker.stop()
    os._exit(1)


def _picklable(error: BaseException) -> BaseException:
    """The error itself, or one of ours that says the same."""
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    except Exception:
        pass
    return EngineError(f"{type(error).__name__}: {error}")


class _Worker:
    def __init__(self, pipe: Connection) -> None:
        self.out = Sender(pipe)
        self._pipe = pipe
        self._speaker: Speaker | None = None
        self._stopped = False
        self._spans: list[Span] = []
        self._told_at = 0.0

    def work(self, find: Find | None) -> None:
        if find is not None:
            self.out.send(Found(find()))
        load = self._pipe.recv()
        assert isinstance(load, Load)
        self._speaker = speaker = load.opener()
        if self._stopped:
            speaker.stop()
        self.out.send(Ready(_frozen(speaker.stats), []))
        while True:
            begin = self._pipe.recv()
            assert isinstance(begin, Begin)
            self._speak(speaker, begin)

    def stop(self) -> None:
        self._stopped = True
        if self._speaker is not None:
            self._speaker.stop()

    def close(self) -> None:
        if self._speaker is not None:
            self._speaker.close()

    def _speak(self, speaker: Speaker, begin: Begin) -> None:
        speaker.stats.on_span = self._note if begin.with_spans else None
        incoming = _Incoming(self._pipe, self.out)
        for item in speaker.speak(incoming.segments()):
            if isinstance(item, Waveform):
                self.out.send_waveform(item)
            else:
                self.out.send(Refused(item[0].key, item[1]))
            if time.monotonic() - self._told_at > STATUS_EVERY_S:
                self.out.send(Status(_frozen(speaker.stats), self._take_spans()))
                self._told_at = time.monotonic()
        incoming.drain()
        self.out.send(Over(_frozen(speaker.stats), self._take_spans()))

    def _note(
        self, stage: str, seconds: float, ended_s: float | None = None, thread: str | None = None
    ) -> None:
        ended_s = time.perf_counter() if ended_s is None else ended_s
        thread = threading.current_thread().name if thread is None else thread
        self._spans.append((stage, seconds, ended_s, thread))

    def _take_spans(self) -> list[Span]:
        spans = self._spans[: len(self._spans)]  # others may be added meanwhile
        del self._spans[: len(spans)]
        return spans


class _Incoming:
    """Segments since `Begin`; the speaker pulls them on a thread of its own."""

    def __init__(self, pipe: Connection, out: Sender) -> None:
        self._pipe, self._out, self._ended = pipe, out, False

    def segments(self) -> Iterator[Segment]:
        while (segments := self._next()) is not None:
            yield from segments
            self._out.send(Taken(len(segments)))

    def drain(self) -> None:
        """Read up to `End` what a speaker that was stopped left."""
        while self._next() is not None:
            pass

    def _next(self) -> list[Segment] | None:
        message = None if self._ended else self._pipe.recv()
        if isinstance(message, Segments):
            return message.segments
        assert self._ended or isinstance(message, End)
        self._ended = True
        return None


def _frozen(stats: EngineStats) -> EngineStats:
    """A copy that can travel."""
    return replace(
        stats,
        stage_seconds=dict(stats.stage_seconds),
        kernel_fallbacks=dict(stats.kernel_fallbacks),
        devices=list(stats.devices),
        notes=list(stats.notes),
        peak_host_memory_bytes=peak_host_memory_bytes(),
        on_span=None,
    )
