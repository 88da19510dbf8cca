"""The embedded model's `Speaker`: one row per worker thread, in whatever order they are done.

Threads and not processes: ONNX Runtime and numpy drop the interpreter lock, and only the
phonemes (a fortieth of the work) hold it. On two cores two threads make 110 audio-s/s, two
processes 105, one thread 54.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ttsbatch.models.hibari.card import VOICE, num_workers
from ttsbatch.models.hibari.speakable import CannotRead, cut_phonemes, speakable
from ttsbatch.plan import EnginePlan
from ttsbatch.types import EngineStats, Failure, ModelCard, Segment, Stage, Waveform

if TYPE_CHECKING:
    from hibari import Hibari

Spoken = Waveform | tuple[Segment, Failure]

LOOKAHEAD = 2  # rows taken per worker: one in work, one ready


def load(card: ModelCard, plan: EnginePlan) -> HibariSpeaker:
    """Load the weights and the lexicon, about a second."""
    started = time.perf_counter()
    from hibari import Hibari

    tts = Hibari(voice=VOICE, threads=1)
    # Loaded here, before threads share them.
    alphabet = frozenset(tts.g2p.oov.cin)
    stats = EngineStats(devices=["cpu"])
    stats.add_seconds("load", time.perf_counter() - started)
    return HibariSpeaker(card, tts, alphabet, num_workers(plan), stats)


class HibariSpeaker:
    """Speaks English on the CPU; `slots` of the plan is its number of worker threads."""

    def __init__(
        self,
        card: ModelCard,
        tts: Hibari,
        alphabet: frozenset[str],
        num_workers: int,
        stats: EngineStats,
    ) -> None:
        self.card = card
        self.stats = stats
        self._tts = tts
        self._alphabet, self._cannot_read = alphabet, CannotRead(alphabet)
        self._num_workers = num_workers
        self._lock = threading.Lock()  # guards `stats`
        self._stopped = threading.Event()

    def speak(self, segments: Iterable[Segment]) -> Iterator[Spoken]:
        """Speak every segment once; the samples depend on text, seed and attempt alone."""
        source = iter(segments)
        room = LOOKAHEAD * self._num_workers
        pool = ThreadPoolExecutor(self._num_workers, thread_name_prefix="hibari")
        pending: dict[Future[Spoken], None] = {}  # in the order of the segments
        more = True
        try:
            while True:
                if self._stopped.is_set():
                    more = False
                    pending = {f: None for f in pending if not f.cancel()}
                while more and len(pending) < room:
                    segment = next(source, None)
                    if segment is None:
                        more = False
                    else:
                        pending[pool.submit(self._speak_one, segment)] = None
                if not pending:
                    return
                done = wait(pending, return_when=FIRST_COMPLETED).done
                for future in [f for f in pending if f in done]:
                    del pending[future]
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def stop(self) -> None:
        """Begin nothing more; what is being spoken is finished."""
        self._stopped.set()

    def close(self) -> None:
        """Nothing to give back: the threads end with `speak`."""

    def _speak_one(self, segment: Segment) -> Spoken:
        try:
            return self._voice(segment)
        except Exception as e:  # one row's trouble, whatever it is, must not stop the others
            return segment, _failure(segment, "engine_error", f"{type(e).__name__}: {e}")

    def _voice(self, segment: Segment) -> Spoken:
        started = time.perf_counter()
        if why := self._cannot_read(segment.text):
            return segment, _failure(segment, "unsupported_language", why)
        sentences = self._tts.phonemize(speakable(segment.text, self._alphabet))
        pieces = [self._tts.ids(p) for s in sentences for p in cut_phonemes(s)]
        prepared = time.perf_counter()
        rng = np.random.default_rng(_draw_key(segment))
        waves = [self._tts.from_ids(ids, rng=rng) for ids in pieces]
        wave = np.concatenate(waves) if waves else np.zeros(0, np.float32)
        with self._lock:
            self.stats.add_seconds("prepare", prepared - started)
            self.stats.add_seconds("decode", time.perf_counter() - prepared)
        if not len(wave):
            message = f"no speech came of {segment.text[:40]!r}"
            return segment, _failure(segment, "engine_error", message)
        samples, num_nonfinite = to_int16(wave)
        return Waveform(segment, samples, self.card.sample_rate_hz, "stop", 0, num_nonfinite)


def to_int16(wave: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int16], int]:
    """Samples in -1..1 as int16, and how many were NaN or infinite (they become 0)."""
    good = np.isfinite(wave)
    num_nonfinite = len(wave) - int(np.count_nonzero(good))
    if num_nonfinite:
        wave = np.where(good, wave, np.float32(0))
    return np.rint(np.clip(wave, -1, 1) * 32767).astype(np.int16), num_nonfinite


def _draw_key(segment: Segment) -> int | list[int]:
    seed, index, attempt = segment.utterance.seed, segment.index, segment.attempt
    if index:
        return [seed, attempt, index]
    return [seed, attempt] if attempt else seed


def _failure(segment: Segment, reason: str, message: str) -> Failure:
    u = segment.utterance
    stage: Stage = "prepare" if reason == "unsupported_language" else "engine"
    return Failure(u.source, u.line, u.id, stage, reason, message)
