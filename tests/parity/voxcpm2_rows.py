"""Rows of the tiny VoxCPM2 as jobs: the golden runs with their noise, and ours with drawn noise."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tests.parity.loops import by_id, run_loop
from tests.parity.voxcpm2 import CPU, FIXTURE, META, MODES, config, golden, time_major
from ttsbatch.engine.budget import make_job
from ttsbatch.engine.decode import FinishedFrames
from ttsbatch.engine.slots import Job
from ttsbatch.models.clips import read_clip
from ttsbatch.models.protocol import Draw, Frame, PreparedPrompt, SlotTensors
from ttsbatch.models.voxcpm2.card import open_card
from ttsbatch.models.voxcpm2.model import VoxCPM2, VoxCPM2State, load
from ttsbatch.models.voxcpm2.prompt import Clip, Spoken
from ttsbatch.types import Sampling, Segment, Utterance

RATE_HZ = 16_000
ROWS = [  # id, text, seed, patches at most, sampling
    ("short", "hello.", 11, 3, Sampling()),
    ("long", "hello world, hello world today.", 13, 14, Sampling()),
    ("coarse", "今天!", 15, 5, Sampling(steps=4)),
]


class GoldenNoise(VoxCPM2):
    """Takes each row's noise from the goldens, by the row's seed, in place of drawn noise."""

    def step(self, state: VoxCPM2State, rows: SlotTensors, draw: Draw, bound: int) -> Frame:
        seed: Tensor = rows.seed  # type: ignore[attr-defined]
        noise = torch.stack(
            [
                _noise(MODES[s], a) if s < len(MODES) else torch.zeros(256)
                for s, a in zip(seed.tolist(), rows.age.tolist(), strict=True)
            ]
        )

        class Given:
            def normal(self, count: int) -> Tensor:
                return noise[:, :count]

        return super().step(state, rows, Given(), bound)  # type: ignore[arg-type]


def _noise(mode: str, age: int) -> Tensor:
    noise = time_major(golden(f"gen.{mode}.noise"))
    return noise[min(age, len(noise) - 1)].flatten()


@cache
def model() -> VoxCPM2:
    """The tiny checkpoint in fp32."""
    return load(open_card(str(FIXTURE)), CPU, torch.float32)


@cache
def golden_model() -> GoldenNoise:
    """The same with the goldens' noise."""
    m = model()
    return GoldenNoise(m.card, m.network, m._vae, m.prompts._tokenizer)


def _clip(name: str | None, padded: Any) -> Clip | None:
    return None if name is None else Clip(name, read_clip(str(FIXTURE / name), RATE_HZ), padded)


def golden_prompt(mode: str) -> PreparedPrompt:
    """The prompt of a golden run; its seed is its place among the modes."""
    meta = META["modes"][mode]
    utterance = Utterance(
        id=mode,
        text=meta["target_text"],
        spoken_text=meta["target_text"],
        source="modes",
        line=1,
        voice=None,
        language="auto",
        seed=MODES.index(mode),
        max_seconds=meta["effective_max_len"] / config().patch_rate_hz,
    )
    told = re.match(r"\((.*?)\)", meta["target_text"])
    spoken = Spoken(
        text=meta["target_text"][told.end() if told else 0 :],
        instruct=told[1] if told else None,
        reference=_clip(meta["reference"], "right"),
        continued=_clip(meta["prompt_audio"], "left"),
        continued_text=meta["prompt_text"] or "",
    )
    return golden_model().prompt(Segment(utterance, 0, meta["target_text"]), spoken)


def golden_job(mode: str) -> Job:
    """A golden run."""
    return make_job(golden_prompt(mode), golden_model().spec)


def segment(name: str, **changes: Any) -> Segment:
    """One of `ROWS`, with other fields of its utterance."""
    _, text, seed, patches, sampling = next(r for r in ROWS if r[0] == name)
    utterance = Utterance(
        id=name,
        text=text,
        spoken_text=text,
        source="rows.jsonl",
        line=1,
        voice=None,
        language="auto",
        seed=seed,
        sampling=sampling,
        max_seconds=patches / config().patch_rate_hz,
    )
    return Segment(replace(utterance, **changes), 0, text)


def job(said: Segment) -> Job:
    """A segment as the model prepares it."""
    prompt = model().prepare(said)
    assert isinstance(prompt, PreparedPrompt)
    return make_job(prompt, model().spec)


def run(m: VoxCPM2, jobs: list[Job], num_slots: int) -> dict[str, FinishedFrames]:
    """Decode jobs in the order given; results by row id."""
    return by_id(run_loop(m, jobs, num_slots))
