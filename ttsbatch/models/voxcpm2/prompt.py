"""Segment -> prompt: which id, or which patch of which clip, stands at every position.

Source: `_generate` of `voxcpm2.py` in package `voxcpm` 2.0.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ttsbatch.models.text_tokenizer import TextTokenizer
from ttsbatch.models.voxcpm2.config import (
    AUDIO_START_ID,
    REFERENCE_END_ID,
    REFERENCE_START_ID,
    VoxCPM2Config,
)

_OPENING, _CLOSING = tuple("(（"), tuple(")）")
_BRACKETS = re.compile("[()（）]+")

CONTEXT_PATCHES = 3  # of a continued clip, which the VAE hears before the row's own


@dataclass(frozen=True, slots=True)
class Clip:
    """A clip, decoded and resampled, and the side that is padded to whole patches.

    A reference is padded at its end; a clip to continue before its beginning, so that the row goes
    on where it ends.
    """

    key: str  # content hash: a distinct clip is encoded once
    samples: npt.NDArray[np.float32]  # [N] mono at the VAE's input rate
    padded: Literal["left", "right"]

    def num_patches(self, config: VoxCPM2Config) -> int:
        """Positions that it takes."""
        return -(-len(self.samples) // config.patch_samples_in)


@dataclass(frozen=True, slots=True)
class Placed:
    """A clip whose patches stand from position `at` on."""

    clip: Clip
    at: int
    num_patches: int


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """The positions of one prompt, and the settings of its solver."""

    token_ids: npt.NDArray[np.int64]  # [T]; 0 where audio is
    is_audio: npt.NDArray[np.bool_]  # [T]
    clips: tuple[Placed, ...]
    continued: Placed | None  # the one that the row goes on from: it ends the prompt
    guidance: float
    num_steps: int

    @property
    def context_patches(self) -> int:
        """Patches that the VAE hears before the row's own."""
        return 0 if self.continued is None else min(CONTEXT_PATCHES, self.continued.num_patches)


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a prompt is made of, resolved by the family."""

    text: str
    instruct: str | None = None  # without a clip to continue only
    reference: Clip | None = None  # a voice to speak with
    continued: Clip | None = None  # a clip to go on from, which says `continued_text`
    continued_text: str = ""


class PromptBuilder:
    """Builds layouts for one checkpoint."""

    def __init__(self, config: VoxCPM2Config, tokenizer: TextTokenizer) -> None:
        self.config, self._tokenizer = config, tokenizer

    def build(self, spoken: Spoken, guidance: float, num_steps: int) -> PromptLayout:
        """The layout of one prompt. `spoken.text` is not empty."""
        ids: list[int] = []
        audio: list[bool] = []
        clips: list[Placed] = []

        def put(numbers: list[int]) -> None:
            ids.extend(numbers)
            audio.extend([False] * len(numbers))

        def place(clip: Clip) -> Placed:
            placed = Placed(clip, len(ids), clip.num_patches(self.config))
            ids.extend([0] * placed.num_patches)
            audio.extend([True] * placed.num_patches)
            clips.append(placed)
            return placed

        if spoken.reference is not None:
            put([REFERENCE_START_ID])
            place(spoken.reference)
            put([REFERENCE_END_ID])
        put([*self._tokenizer.encode(self._whole_text(spoken)), AUDIO_START_ID])
        continued = None if spoken.continued is None else place(spoken.continued)
        return PromptLayout(
            np.array(ids, np.int64),
            np.array(audio, np.bool_),
            tuple(clips),
            continued,
            guidance,
            num_steps,
        )

    def _whole_text(self, spoken: Spoken) -> str:
        text = one_line(spoken.text)
        if spoken.continued is not None:
            return spoken.continued_text + text
        text = without_leading_brackets(text)
        if spoken.instruct:
            return f"({one_line(_BRACKETS.sub(' ', spoken.instruct))}){text}"
        return text


def without_leading_brackets(text: str) -> str:
    """A text that does not begin with a bracket: its words stay, the brackets around them go.

    The model takes what stands in brackets before a text for an instruction, and does not say it.
    A row tells it how to speak in `instruct` alone.
    """
    if text[:1] not in _OPENING:
        return text
    kept: list[str] = []
    num_dropped = depth = 0  # opening brackets without their end; those open within the text
    for char in text:
        if not kept:
            num_dropped += (char in _OPENING) - (char in _CLOSING)
            if char in _OPENING or char in _CLOSING or char.isspace():
                continue
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING and depth:
            depth -= 1
        elif char in _CLOSING and num_dropped > 0:
            num_dropped -= 1
            continue
        kept.append(char)
    return one_line("".join(kept))


def one_line(text: str) -> str:
    """Every run of white space as one blank, none at the ends."""
    return re.sub(r"\s+", " ", text).strip()
