"""The frozen records that flow through a run. Needs numpy and no torch.

`Record -> Utterance -> Segment -> Waveform -> manifest line`, or a `Failure` at any stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

FinishReason = Literal["stop", "length"]
AUTO = "auto"  # the language of a row that leaves the choice to the model

Stage = Literal["read", "validate", "prepare", "engine", "quality"]
"""Where a row stopped: the file, the row's check, the prompt, the model, the gates."""

FEWEST_STEPS, MOST_STEPS = 2, 100
"""Of a flow-matching solver. One step is a still one: the patch would be the noise itself; and a
graph holds an evaluation for every step."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a row draws its codes or latents; `None` means the checkpoint's own default.

    `temperature` >= 0 (0: greedy), `top_k` >= 0 (0: off), 0 < `top_p` <= 1,
    `repetition_penalty` > 0 (1: off). They govern every codebook. Of a model that makes latents by
    flow matching: `guidance` >= 0 (1: off) and the solver's `steps`, 2 to 100.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    guidance: float | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a corpus file as it was read, not yet checked."""

    source: str  # the corpus as named on the command line, or the file a glob found
    line: int  # 1-based physical line on which the record begins; in Parquet the row
    fields: Mapping[str, Any]  # after --map: our field names where mapped, else the column's own
    base: str  # folder that relative reference paths start from


@dataclass(frozen=True, slots=True)
class Utterance:
    """One valid row, all defaults filled in."""

    id: str
    text: str  # as given
    spoken_text: str  # what the model is sent, after clean-up; never empty
    source: str
    line: int
    voice: str | None  # the model's own spelling; None where the reference is the voice
    language: str  # ISO 639-1 (639-3 where there is none) or "auto"
    seed: int  # 0 <= seed < 2**63
    instruct: str | None = None
    ref_audio: str | None = None  # path that exists
    ref_text: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    max_seconds: float | None = None
    split: bool = True
    file_name: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The `fields` of its `Record`, for failures.jsonl: the row without what was filled in."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of an utterance, in one attempt: what a model is asked to speak."""

    utterance: Utterance
    index: int  # 0-based piece of a long text
    text: str  # the piece of `spoken_text`
    attempt: int = 0  # 0 first; a retry draws with another derived seed
    expected_s: float = 0.0  # seconds that the text should take; orders the queue, bounds the row
    max_share: float = 1.0  # of the row's `max_seconds`: what this piece may use

    @property
    def key(self) -> tuple[str, int, int]:
        """(utterance id, segment, attempt): names this piece of work within a run."""
        return self.utterance.id, self.index, self.attempt


@dataclass(frozen=True, slots=True)
class Waveform:
    """The speech of one segment, on the host."""

    segment: Segment
    samples: npt.NDArray[np.int16]  # [N] mono
    sample_rate_hz: int
    finish_reason: FinishReason
    num_frames: int  # codec frames, without any reference audio; 0 for models without frames
    num_nonfinite: int = 0  # samples that were NaN or infinite before they became int16
    codes: npt.NDArray[np.int16] | None = None  # [F, Q], codec-LM families only

    @property
    def duration_s(self) -> float:
        """Seconds of audio."""
        return len(self.samples) / self.sample_rate_hz


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that was not made, and why: one line of failures.jsonl."""

    source: str
    line: int
    utterance_id: str | None
    stage: Stage
    reason: str  # one of the stable words of the contract
    message: str
    row: Any = None  # the row itself: a mapping, or the raw text where it did not parse


@dataclass(frozen=True, slots=True)
class VoiceProfile:
    """What was measured of a voice's good speech; its rows are held to it."""

    pace: float  # seconds of speech over the expected seconds, median of many rows
    spectrum_db: tuple[float, ...] = ()  # mean levels of `quality.spectrum`'s bands; their mean: 0


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What can be known of a model without its weights: enough to check every row."""

    name: str  # as the manifest shows it
    family: str  # "hibari", "qwen3_tts"
    path: str | None  # local folder of the checkpoint; None: embedded or random weights
    sample_rate_hz: int
    frame_rate_hz: float | None  # codec frames per second; None for models without frames
    num_codebooks: int  # 0 for models without frames
    max_frames: int | None  # the longest output of one segment
    languages: tuple[str, ...]  # ISO 639-1 codes that it speaks
    speaks_auto: bool  # True: a row of language "auto" is left to the model
    voices: tuple[str, ...]  # named voices, the model's own spelling; may be empty
    default_voice: str | None  # the only voice, where there is one
    options: frozenset[str]  # row fields it has a use for, of OPTION_FIELDS
    needs_reference: bool  # it only clones: a row without ref_audio cannot be made
    licence: str
    num_parameters: int
    content_hash: str  # identifies weights and config in run.json and in the resume key
    config: Any = None  # the family's own parsed config
    profiles: Mapping[str, VoiceProfile] = field(default_factory=dict)  # of voices measured so far
    exclusive: tuple[tuple[str, str, str], ...] = ()
    """Two of instruct, ref_audio and ref_text that no row can have both of, and why."""
    cannot_read: Callable[[str], str | None] | None = None
    """Why it cannot speak a text, or None; absent where it takes any. Pickles and compares."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What the rows of a job ask of a model together: known before it is loaded."""

    num_parallel: int | None = None  # rows that are worth speaking at once; None: not known
    steps: frozenset[int | None] = frozenset({None})
    """Solver steps that rows ask for; None among them: some leave it to the model."""


OPTION_FIELDS = frozenset(
    {
        "instruct",
        "ref_audio",
        "ref_text",
        "temperature",
        "top_k",
        "top_p",
        "repetition_penalty",
        "guidance",
        "steps",
        "max_seconds",
    }
)
"""Row fields that not every model has a use for. `seed`, `voice` and `language` go to all."""


class OnSpan(Protocol):
    """Told that a stage was busy."""

    def __call__(
        self, stage: str, seconds: float, ended_s: float | None = None, thread: str | None = None
    ) -> None:
        """So many seconds until `ended_s` of `time.perf_counter` (now), on that thread (this)."""
        ...


@dataclass(slots=True)
class EngineStats:
    """What an engine counts while it speaks; `report.py` reads it once, at the end.

    The one mutable record: the speaker that owns it adds to it on its own threads.
    """

    stage_seconds: dict[str, float] = field(default_factory=dict)
    """Busy seconds by stage: prepare, prefill, decode, codec (and load, warmup)."""
    num_slots: int = 0
    busy_slot_steps: int = 0  # slot-frames that made a frame
    total_slot_steps: int = 0  # slot-frames run
    num_steps: int = 0
    prefill_tokens: int = 0
    codec_graph_hits: int = 0
    codec_graph_misses: int = 0
    eager_steps: int = 0  # frames and prefills run without a graph
    kernel_fallbacks: dict[str, int] = field(default_factory=dict)
    """Calls of plain torch on a GPU where there are kernels, by name; a capture counts once."""
    devices: list[str] = field(default_factory=list)
    peak_device_memory_bytes: int = 0
    peak_host_memory_bytes: int = 0  # of processes that the speaker has beside the run's
    notes: list[str] = field(default_factory=list)  # for whoever runs it: a choice that changed
    on_span: OnSpan | None = None  # told of every busy time as it ends

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Add busy time to a stage."""
        self.stage_seconds[stage] = self.stage_seconds.get(stage, 0.0) + seconds
        if self.on_span is not None:
            self.on_span(stage, seconds)


@dataclass(frozen=True, slots=True)
class SegmentNote:
    """What the manifest says of one segment: enough to draw it again."""

    text: str
    finish_reason: FinishReason
    num_samples: int = 0  # as spoken, before it was joined
    attempt: int = 0  # the take that was kept
    seed: int | None = None  # None: the row's


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """A finished utterance, checked, ready to be written."""

    utterance: Utterance
    key: str  # content and settings: what resume goes by
    samples: npt.NDArray[np.int16]  # [N] mono, at `sample_rate_hz`
    sample_rate_hz: int
    finish_reason: FinishReason  # "length" if any segment ended so
    num_frames: int
    attempts: int
    segments: tuple[SegmentNote, ...]
    checks: Mapping[str, Any]  # every measured value, and "verdict": "pass" or "flag"
    codes: npt.NDArray[np.int16] | None = None  # [F, Q], only with --save-codes
