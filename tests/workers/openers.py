"""What workers of tests open: functions that a new process can import."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fake_speaker import FakeSpeaker
from ttsbatch.errors import EngineError, ModelError
from ttsbatch.models import open_card
from ttsbatch.models.protocol import Speaker
from ttsbatch.plan import EnginePlan
from ttsbatch.types import Demand, Failure, ModelCard, Segment, Utterance, Waveform


def said(*texts: str) -> list[Segment]:
    """Segments of a fifth of a second each."""
    rows = [
        Utterance(str(n), t, t, "rows.jsonl", n + 1, None, "en", n) for n, t in enumerate(texts)
    ]
    return [Segment(u, 0, u.text, expected_s=0.2) for u in rows]


@dataclass
class Mischief(FakeSpeaker):
    """Texts do it harm: `die`, `boom` (an error that cannot be pickled), `wait N` seconds,
    `hold FILE` for a minute, once the file is there."""

    ctrl_c_after: int = 0  # takes; then the run that it works for gets the signal

    def speak(self, segments: Iterable[Segment]) -> Iterator[Waveform | tuple[Segment, Failure]]:
        for item in super().speak(segments):
            segment = item.segment if isinstance(item, Waveform) else item[0]
            words = segment.text.split()
            if words[0] == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if words[0] == "boom":
                raise _UnpicklableError(lambda: None)
            if words[0] == "wait":
                time.sleep(float(words[1]))
            if words[0] == "hold":
                Path(words[1]).touch()
                time.sleep(60)
            self.stats.add_seconds("decode", 0.5)
            self.stats.num_steps += 1
            yield item
            if self.stats.num_steps == self.ctrl_c_after:
                os.kill(os.getppid(), signal.SIGINT)


class _UnpicklableError(Exception):
    pass


def mischief(ctrl_c_after: int = 0) -> Speaker:
    speaker = Mischief(open_card(None), ctrl_c_after=ctrl_c_after)
    speaker.stats.notes.append("loaded")
    speaker.stats.stage_seconds |= {"warmup": 2.0}
    return speaker


def broken() -> Speaker:
    raise ModelError("models/x: tensor 'a' is missing")


def slow() -> Speaker:
    time.sleep(60)
    return mischief()


def cut_short() -> Speaker:
    raise EOFError("models/x: no input left")


def fake_lm() -> Speaker:
    """The slot engine over the fake model of the engine's tests."""
    from tests.engine.fake import FakeLM
    from ttsbatch.engine.speak import CodecLMSpeaker

    return CodecLMSpeaker(FakeLM(), 4, keep_codes=True)


def opened(card: ModelCard, plan: EnginePlan, keep_codes: bool, demand: Demand) -> Speaker:
    """In place of `loading.open_here`: a note says what for."""
    speaker = mischief()
    speaker.stats.notes.append(f"{card.name} on {plan.device} for {demand.num_parallel}")
    return speaker


def two_gpus() -> list[str]:
    return ["cuda:0", "cuda:1"]


def no_gpu_found() -> list[str]:
    return ["cpu"]


def no_gpus() -> list[str]:
    raise EngineError("--device is 'cuda'; found 0 CUDA devices")


def dies() -> list[str]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []
