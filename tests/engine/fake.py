"""A codec-LM whose codes depend only on the utterance and the frame, and helpers to drive it.

It speaks as its row's text says: "end 7" ends by itself after 7 frames, "run" goes on to its cap,
"refuse" is refused by `prepare`, "crash" is a bug there. Whatever a wrong engine could mix up
shows: a slot that was not staged adds up its neighbours' rows into its codes, and a page that is
shared, missing or beyond `bound` fails an assertion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ttsbatch.engine.budget import make_job
from ttsbatch.engine.decode import DecodeLoop, FinishedFrames
from ttsbatch.engine.queue import JobQueue, Refusal
from ttsbatch.engine.slots import Job
from ttsbatch.models.protocol import (
    PAGE_SIZE,
    Draw,
    DrawSettings,
    EngineSpec,
    Frame,
    PreparedPrompt,
    Seat,
    SlotTensors,
)
from ttsbatch.types import EngineStats, Failure, ModelCard, Segment, Utterance

NUM_CODES = 1000
NOT_A_NUMBER = 999  # a frame of this code decodes to NaN
MEMORY = 5  # frames that a frame of audio hears back
CARD = ModelCard(
    name="fake",
    family="fake",
    path=None,
    sample_rate_hz=100,
    frame_rate_hz=12.5,
    num_codebooks=3,
    max_frames=2000,
    languages=("en",),
    speaks_auto=True,
    voices=(),
    default_voice=None,
    options=frozenset(),
    needs_reference=False,
    licence="Apache-2.0",
    num_parameters=0,
    content_hash="fake",
)
SPEC = EngineSpec(
    frame_width=3,
    frame_dtype=torch.int16,
    frame_rate_hz=12.5,
    sample_rate_hz=100,
    samples_per_frame=8,
    max_frames=2000,
    max_positions=256,
    codec_window_frames=300,
    codec_context_frames=25,
    kv_bytes_per_position=64,
)


@dataclass(eq=False)
class FakeRow:
    """The payload of a prompt; a plain object, so that a test can see it go."""

    key: int
    ends_at: int  # frames; -1: runs to its cap
    context_frames: int  # that the codec hears before the row's own


@dataclass
class FakeState:
    """Per-slot state, and who wrote each page last."""

    key: Tensor  # [S] int64
    ends_at: Tensor  # [S] int64
    prompt_length: Tensor  # [S] int64
    dirt: Tensor  # [S] int64: what slots without a row pick up from the others
    pages: list[tuple[int, ...]]
    page_owner: dict[int, int]
    staged: list[Seat] = field(default_factory=list)

    def first(self, n: int) -> FakeState:
        """The first slots; tensors share their memory."""
        parts = (self.key[:n], self.ends_at[:n], self.prompt_length[:n], self.dirt[:n])
        return FakeState(*parts, self.pages[:n], self.page_owner)


@dataclass
class FakeLM:
    """See the module."""

    spec: EngineSpec = SPEC
    card: ModelCard = CARD
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    num_steps: int = 0
    seated: list[tuple[int, int, str]] = field(default_factory=list)  # (steps so far, slot, id)
    staged_tokens: list[int] = field(default_factory=list)
    slots_stepped: list[int] = field(default_factory=list)  # of each frame

    def prepare(self, segment: Segment) -> PreparedPrompt | Failure:
        word, _, number = segment.text.partition(" ")
        u = segment.utterance
        if word == "refuse":
            return Failure(u.source, u.line, u.id, "prepare", "ref_unreadable", "refused")
        if word == "crash":
            raise RuntimeError("a bug in prepare")
        ends_at = int(number) if word == "end" else -1
        row = FakeRow(row_key(segment), ends_at, u.extra.get("context_frames", 0))
        draw = DrawSettings((1.0, 1.0), (0, 0), (1.0, 1.0), 1.0)
        positions, following = u.extra.get("positions", 3), u.extra.get("following", 0)
        return PreparedPrompt(segment, positions, draw, row, following)

    def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> FakeState:
        def dirty() -> Tensor:
            return torch.full((num_slots,), 77)

        pages: list[tuple[int, ...]] = [()] * num_slots
        owners = dict.fromkeys(range(num_pages), -1)
        return FakeState(dirty(), dirty(), dirty(), dirty(), pages, owners)

    def stage(self, state: FakeState, seats: list[Seat]) -> int:
        assert not state.staged, "the seats staged before were never prefilled"
        for seat in seats:
            row: FakeRow = seat.prompt.payload
            state.key[seat.slot], state.ends_at[seat.slot] = row.key, row.ends_at
            state.prompt_length[seat.slot] = seat.prompt.num_positions
            state.dirt[seat.slot] = 0
            state.pages[seat.slot] = seat.pages
            self.seated.append((self.num_steps, seat.slot, seat.prompt.segment.utterance.id))
        state.staged = list(seats)
        self.staged_tokens.append(sum(s.prompt.num_positions for s in seats))
        return self.staged_tokens[-1]

    def prefill(self, state: FakeState, num_tokens: int) -> None:
        assert num_tokens >= sum(s.prompt.num_positions for s in state.staged)
        for seat in state.staged:
            assert 0 not in seat.pages
            for page in seat.pages:
                assert page in state.page_owner
                state.page_owner[page] = seat.prompt.payload.key
        state.staged = []

    def move(self, state: FakeState, old: Tensor, new: Tensor) -> None:
        assert not state.staged
        for tensor in (state.key, state.ends_at, state.prompt_length, state.dirt):
            tensor[new] = tensor[old]
            tensor[old] = 77
        for left, taken in zip(old.tolist(), new.tolist(), strict=True):
            state.pages[taken], state.pages[left] = state.pages[left], ()

    def step(self, state: FakeState, rows: SlotTensors, draw: Draw, bound: int) -> Frame:
        self.num_steps += 1
        self.slots_stepped.append(len(rows.age))
        assert not state.staged
        state = state.first(len(rows.age))
        position = state.prompt_length - 1 + rows.age
        for slot in rows.active.nonzero().flatten().tolist():
            at = int(position[slot])
            assert at < min(bound, self.spec.max_positions)
            assert state.page_owner[state.pages[slot][at // PAGE_SIZE]] == state.key[slot]
        codes = fake_codes(state.key[:, None], rows.age[:, None], self.spec.frame_width)
        codes = (codes + state.dirt[:, None]) % NUM_CODES
        state.dirt += torch.where(rows.active, 0, 1 + state.key.sum() % 89)
        return Frame(codes, rows.age == state.ends_at)

    def context_frames(self, prompt: PreparedPrompt) -> Tensor | None:
        row: FakeRow = prompt.payload
        if row.context_frames == 0:
            return None
        frames = torch.arange(row.context_frames)[:, None]
        return fake_codes(torch.tensor(row.key + 1), frames, self.spec.frame_width)

    def decode_audio(self, codes: Tensor) -> Tensor:
        # A moving sum over frames: causal, so what a pass lacks on its left changes its start.
        level = codes.sum(dim=2).double()
        heard = sum(torch.nn.functional.pad(level, (n, 0))[:, : codes.shape[1]] for n in range(5))
        audio = heard / (4 * MEMORY * NUM_CODES)
        audio = torch.where((codes == NOT_A_NUMBER).any(dim=2), torch.nan, audio)
        return audio.repeat_interleave(self.spec.samples_per_frame, dim=1).float()

    def trial_calls(self) -> list[Callable[[], object]]:
        return []


def row_key(segment: Segment) -> int:
    """What a segment's codes are made from."""
    return segment.utterance.seed * 7919 + segment.attempt * 104729 + segment.index * 1299709


def fake_codes(key: Tensor, frame: Tensor, num_codebooks: int) -> Tensor:
    """Codes [..., Q] from keys and frames [..., 1]; NOT_A_NUMBER is never among them."""
    mixed = key * 31 + frame * 17 + torch.arange(num_codebooks) * 5 + (key * frame) % 23
    return mixed % (NUM_CODES - 10)


def segment(
    text: str,
    seed: int = 1,
    cap: int | None = None,
    name: str | None = None,
    attempt: int = 0,
    index: int = 0,
    expected_frames: int = 10,
    **extra: int,
) -> Segment:
    """A segment that says `text`, of at most `cap` frames."""
    utterance = Utterance(
        id=name or f"{text}/{seed}",
        text=text,
        spoken_text=text,
        source="fake.jsonl",
        line=seed,
        voice=None,
        language="en",
        seed=seed,
        max_seconds=None if cap is None else cap / SPEC.frame_rate_hz,
        extra=extra,
    )
    return Segment(utterance, index, text, attempt, expected_frames / SPEC.frame_rate_hz)


def job(said: Segment, model: FakeLM | None = None) -> Job:
    """A segment as a job."""
    model = model or FakeLM()
    prompt = model.prepare(said)
    assert isinstance(prompt, PreparedPrompt)
    return make_job(prompt, model.spec)


def expected_codes(of: Job) -> tuple[np.ndarray, str]:
    """What a job must give: codes [F, Q], and how it ends."""
    row: FakeRow = of.prompt.payload
    stops = 0 <= row.ends_at < of.cap_frames
    frames = torch.arange(row.ends_at if stops else of.cap_frames)[:, None]
    codes = fake_codes(torch.tensor(row.key), frames, SPEC.frame_width)
    return codes.numpy(), "stop" if stops else "length"


class Ready:
    """In place of a `Prefetch`: everything is there at once, so order is the test's own."""

    def __init__(self, items: Iterable[Job | Refusal]) -> None:
        self._items: Iterator[Job | Refusal] = iter(list(items))
        self.ended = False

    def take(self) -> Job | Refusal | None:
        """The next item."""
        item = next(self._items, None)
        self.ended = item is None
        return item


def queue_of(items: Iterable[Job | Refusal], lookahead: int = 1000) -> JobQueue:
    """A queue whose items are all prepared."""
    return JobQueue(Ready(items), lookahead)  # type: ignore[arg-type]


def loop_of(
    model: FakeLM, num_slots: int, num_pages: int | None = None, stats: EngineStats | None = None
) -> DecodeLoop:
    """A loop over the fake; pages for the longest rows in every slot unless given."""
    pages = num_slots * SPEC.max_positions // PAGE_SIZE + 1 if num_pages is None else num_pages
    return DecodeLoop(model, num_slots, pages, SPEC.max_positions, stats or EngineStats())


def check(finished: FinishedFrames | Refusal) -> str:
    """The row's id, once its codes and its end are seen to be right."""
    assert isinstance(finished, FinishedFrames)
    codes, reason = expected_codes(finished.job)
    np.testing.assert_array_equal(finished.frames.numpy(), codes)
    assert finished.finish_reason == reason
    return finished.job.prompt.segment.utterance.id
