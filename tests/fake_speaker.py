"""A speaker whose samples depend on utterance and attempt alone, to drive the pipeline."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ttsbatch.errors import EngineError
from ttsbatch.types import EngineStats, Failure, ModelCard, Segment, Waveform

RATE_HZ: int | None = None  # None: the card's, for tests that change it
LENGTH_FACTOR = 1.0  # of what is spoken, for tests that change it


@dataclass
class FakeSpeaker:
    """Speaks noise of the expected length; texts steer it.

    `mumble N` is silent (flagged) in its first N attempts, `refuse` fails, `break` ends the run,
    `vanish` never comes back and `leave` is the last that is asked for, as no speaker may do.
    """

    card: ModelCard
    stats: EngineStats = field(default_factory=lambda: EngineStats(devices=["cpu"]))
    asked: list[tuple[str, int]] = field(default_factory=list)  # (utterance id, attempt)
    lookahead: int = 1
    backwards: bool = False  # what it takes together, it speaks last first
    forgives: str = ""  # this text is not refused
    on_spoken: Callable[[Segment], None] = lambda segment: None
    stopped: bool = False
    closed: bool = False

    def speak(self, segments: Iterable[Segment]) -> Iterator[Waveform | tuple[Segment, Failure]]:
        if self.backwards:
            segments = reversed(list(segments))
        queue: list[Segment] = []
        source = iter(segments)
        while True:
            while not self.stopped and len(queue) < self.lookahead:
                if (segment := next(source, None)) is None:
                    break
                queue.append(segment)
            if not queue:
                return
            segment = queue.pop(0)
            self.asked.append((segment.utterance.id, segment.attempt))
            if segment.text.startswith("vanish"):
                continue
            yield self._speak(segment)
            self.on_spoken(segment)
            if segment.text.startswith("leave"):
                return

    def _speak(self, segment: Segment) -> Waveform | tuple[Segment, Failure]:
        words = segment.utterance.text.split()  # as given: `spoken_text` has no digits
        if words[0] == "break":
            raise EngineError("the device fell off")
        if words[0] == "refuse" and segment.utterance.text != self.forgives:
            u = segment.utterance
            return segment, Failure(u.source, u.line, u.id, "engine", "engine_error", "refused")
        rng = np.random.default_rng(
            [zlib.crc32(segment.text.encode()), segment.utterance.seed, segment.attempt]
        )
        loudness = 3_000
        if words[0] == "mumble" and segment.attempt < int(words[1]):
            loudness = 3
        rate_hz = self.rate_hz
        num_samples = round(segment.expected_s * LENGTH_FACTOR * rate_hz)
        # Louder and quieter five times a second, as speech is: steady noise would be flagged.
        seconds = np.arange(num_samples) / max(rate_hz, 1)
        swell = np.abs(np.sin(np.pi * 5 * seconds)) + 0.05
        fade = np.minimum(1, seconds[::-1] / 0.05)
        samples = np.clip(rng.normal(0, loudness, num_samples) * swell * fade, -32_000, 32_000)
        return Waveform(segment, samples.astype(np.int16), rate_hz, "stop", 0)

    @property
    def rate_hz(self) -> int:
        return self.card.sample_rate_hz if RATE_HZ is None else RATE_HZ

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        self.closed = True
