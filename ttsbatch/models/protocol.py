"""All that the pipeline and the engine know of a model.

The pipeline knows a `Speaker`: segments in, waveforms out, in any order. A family that is one
forward pass implements just that. A codec-LM family implements `CodecLM` and gets its `Speaker`
from `engine/speak.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ttsbatch.types import EngineStats, Failure, ModelCard, Segment, Waveform

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch
    from torch import Tensor


PAGE_SIZE = 16
"""KV positions per page."""


class Speaker(Protocol):
    """A model that is loaded and ready."""

    card: ModelCard
    stats: EngineStats

    def speak(self, segments: Iterable[Segment]) -> Iterator[Waveform | tuple[Segment, Failure]]:
        """Speak every segment once, in whatever order they are done.

        `segments` is pulled as slots fall free, from another thread perhaps, and is never held
        whole. A segment that cannot be spoken comes back with its failure; the others go on.

        Raises:
            EngineError: the device or the loop failed as a whole.
        """
        ...

    def stop(self) -> None:
        """Begin nothing more; what is being spoken still comes out of `speak`. Any thread."""
        ...

    def close(self) -> None:
        """Give the device and the worker threads back."""
        ...


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """The sampling of one row, defaults filled in, for the first codebook and for the others."""

    temperature: tuple[float, float]  # 0: greedy
    top_k: tuple[int, int]  # 0: off
    top_p: tuple[float, float]  # 1: off
    repetition_penalty: float  # first codebook only; 1: off


NO_DRAWS = DrawSettings((0.0, 0.0), (0, 0), (1.0, 1.0), 1.0)
"""Of rows whose model draws no ids."""


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """A segment, tokenised: ready to be seated. Host memory only."""

    segment: Segment
    num_positions: int  # KV positions of the prompt
    draw: DrawSettings
    payload: Any  # the family's own: token ids, reference audio
    num_following: int = 0  # positions of text that goes in after the prompt, one a frame


@dataclass(frozen=True, slots=True)
class Seat:
    """A prompt, the slot that it is given, and the KV pages that are the slot's until it ends."""

    slot: int
    prompt: PreparedPrompt
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The sizes that the engine allocates by."""

    frame_width: int  # values of a frame: its codes, one per codebook, or its latents
    frame_dtype: torch.dtype  # that frames are kept in: int16 for codes, a float for latents
    frame_rate_hz: float
    sample_rate_hz: int
    samples_per_frame: int
    max_frames: int
    max_positions: int  # KV positions of a row: prompt and frames
    codec_window_frames: int  # new frames per codec pass of a long row
    codec_context_frames: int  # left context of every pass but the first
    kv_bytes_per_position: int
    ends_itself: bool = True  # False: the end token is banned, every row runs to its cap
    keeps_last: bool = False  # the frame that a row is ended with is part of it
    frames_per_round: int = 4  # on a GPU, launched before flags are read; fewer of long frames,
    # as a row that has ended idles through the rest of its round and the next one


@dataclass(frozen=True, slots=True)
class Rules:
    """What one codebook may hold, beyond what a row asks for; tensors on the device."""

    banned: Tensor  # [V] bool: never drawn
    end_id: int  # drawing it ends the row; -1: none
    min_frames: int  # `end_id` is banned while the row has fewer frames


class Draw(Protocol):
    """All chance in a frame, each row's its own. Handed to `CodecLM.step` by the engine."""

    def __call__(
        self,
        logits: Tensor,  # [S, V] f32
        codebook: int,
        rules: Rules | None = None,
        seen: Tensor | None = None,  # [S, V] bool: ids under the repetition penalty; the draw joins
    ) -> Tensor:  # [S] int64
        """An id per row, drawn by the row's own settings."""
        ...

    def normal(self, count: int) -> Tensor:  # [S, count] f32
        """Standard normal numbers, the same at every call within a frame."""
        ...


class SlotTensors(Protocol):
    """The engine's own per-slot state, read-only for a model."""

    age: Tensor  # [S] int64 frames made so far
    active: Tensor  # [S] bool


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of every slot."""

    values: Tensor  # [S, W] codes (int64) or latents (in the run dtype)
    ended: Tensor  # [S] bool: the model ended the row, its `values` are no frame; or, where the
    # spec says `keeps_last`, its last one


class CodecLM(Protocol):
    """A family that makes a frame of codes or latents per step, for the slot engine."""

    card: ModelCard
    spec: EngineSpec
    device: torch.device

    def prepare(self, segment: Segment) -> PreparedPrompt | Failure:
        """Tokenise and read the reference. CPU only; called on another thread."""
        ...

    def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> Any:
        """Allocate all that the steps write to, once.

        KV lives in pages of `PAGE_SIZE` positions, layout as in `kernels/paged_attention.py`;
        page 0 belongs to nobody: slots without a row write there.
        """
        ...

    def stage(self, state: Any, seats: list[Seat]) -> int:
        """Take the seats' prompts in: write their packed inputs to the state, reset their slots.

        Returns how many tokens were staged: what `prefill` must then run, or more.
        """
        ...

    def prefill(self, state: Any, num_tokens: int) -> None:
        """Run the staged tokens into the KV: shapes fixed by `num_tokens`, no host sync.

        What was not staged of them is padding, which reaches nobody's KV.
        """
        ...

    def move(self, state: Any, old: Tensor, new: Tensor) -> None:
        """Rows of slots `old` go to slots `new`, [M] int64 each; their pages stay theirs."""
        ...

    def step(self, state: Any, rows: SlotTensors, draw: Draw, bound: int) -> Frame:
        """Make one frame in each of the first slots: fixed shapes, no host sync.

        Nothing that it allocates is kept. `rows` has as many slots as are to be run, or all.

        `bound` is the host's upper bound of the positions that any row has in use, this one's
        included; it may choose a path, never change a result.
        """
        ...

    def context_frames(self, prompt: PreparedPrompt) -> Tensor | None:
        """The [R, W] frames of a reference that the codec must hear first, or None."""
        ...

    def decode_audio(self, frames: Tensor) -> Tensor:
        """[B, F, W] frames to [B, F * samples_per_frame] f32 samples in -1..1, one codec pass.

        `frames` are of the spec's dtype; zeros behind a clip's own are padding.
        """
        ...

    def trial_calls(self) -> list[Callable[[], object]]:
        """Small calls that launch the codec's kernels once each, for threads to make.

        Kernels that have to be compiled are compiled in parallel so, before the first real pass.
        """
        ...


class ReferenceEncoders(Protocol):
    """What a family that clones makes of reference clips, apart from the rest of the model."""

    @property
    def device(self) -> torch.device:
        """Where they are, and the clips."""
        ...

    @property
    def sample_rate_hz(self) -> int:
        """Of the clips."""
        ...

    def parts(self) -> dict[str, Callable[[list[Tensor]], object]]:
        """Each encoder by name: it takes [N_i] f32 mono clips on the device.

        "speaker" makes their voice vectors, "codec encoder" their codes or latents; a family may
        lack either.
        """
        ...


def host_codes(codes: Tensor) -> npt.NDArray[np.int16]:
    """Device codes [F, Q] as host int16."""
    import numpy as np

    return codes.to("cpu").numpy().astype(np.int16)
