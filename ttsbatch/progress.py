"""Live progress on stderr: a bar where it is a terminal, a plain line every few seconds if not."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from ttsbatch.reasons import Reasons
from ttsbatch.types import Demand

if TYPE_CHECKING:
    from rich.progress import Progress as RichBar

LINE_EVERY_S = 5.0
ECHO_COLUMNS = 3  # ^C, and the cursor


@dataclass(slots=True)
class Tally:
    """How far a run is. The pipeline counts, a `Progress` shows."""

    rows: int = 0  # valid rows of the corpus
    rejected: int = 0
    finished_before: int = 0  # made by an earlier session
    made: int = 0
    failed: int = 0
    flagged: int = 0
    audio_s: float = 0.0  # made in this session
    expected_s: float = 0.0  # audio that this session has to make, estimated from the text
    expected_done_s: float = 0.0
    longest_s: float = 0.0  # of a piece that this session has to speak, estimated
    steps: set[int | None] = field(default_factory=set)  # that rows still to be made ask for
    started_s: float = field(default_factory=time.monotonic)
    reasons: Reasons = field(default_factory=Reasons)  # why rows were rejected or failed

    def start(self) -> None:
        """Begin the clock."""
        self.started_s = time.monotonic()

    @property
    def num_parallel(self) -> int:
        """Rows worth speaking at once: with more, the longest one alone would last longer.

        Longest first, N at once take as many steps as the longest piece has, or as all have over
        N. At least an eighth of the rows, as one long row should not decide for a whole corpus.
        """
        todo = self.rows - self.finished_before
        widest = math.ceil(self.expected_s / self.longest_s) if self.longest_s else todo
        return min(todo, max(widest, math.ceil(todo / 8)))

    @property
    def demand(self) -> Demand:
        """What the rows that are still to be made ask of the model."""
        return Demand(self.num_parallel, frozenset(self.steps))

    @property
    def done(self) -> int:
        """Rows that are over, of `rows`."""
        return self.finished_before + self.made + self.failed

    @property
    def wall_s(self) -> float:
        """Seconds since the first row was asked for."""
        return time.monotonic() - self.started_s

    @property
    def share(self) -> float:
        """The part of this session's work that is done, 0..1, by expected audio."""
        return min(self.expected_done_s / self.expected_s, 1.0) if self.expected_s else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds left at the pace so far, never below 0; None before there is a pace."""
        if not self.expected_done_s or not self.expected_s:
            return None
        left_s = max(0.0, self.expected_s - self.expected_done_s)
        return self.wall_s * left_s / self.expected_done_s

    def speed(self) -> str:
        """Throughput in words: audio-s/s and RTF."""
        if not self.audio_s:
            return "- audio-s/s  RTF -"
        per_s = self.audio_s / self.wall_s
        return f"{per_s:.1f} audio-s/s  RTF {1 / per_s:.4f}"

    def trouble(self) -> str:
        """Rejected, failed and flagged rows in words; empty where there are none."""
        counts = {"rejected": self.rejected, "failed": self.failed, "flagged": self.flagged}
        return "  ".join(f"{n:,} {word}" for word, n in counts.items() if n)


class Progress(Protocol):
    """What the pipeline tells whoever watches."""

    def phase(self, text: str) -> None:
        """A step begins: checking rows, loading the model."""
        ...

    def update(self, tally: Tally) -> None:
        """Another row is over."""
        ...

    def message(self, text: str) -> None:
        """A line that must be read: a warning."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


class Quiet:
    """Shows nothing but messages."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def phase(self, text: str) -> None:
        """Nothing."""

    def update(self, tally: Tally) -> None:
        """Nothing."""

    def message(self, text: str) -> None:
        """One line."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing."""


class Lines(Quiet):
    """A plain line now and then, for logs and pipes."""

    def __init__(self, stream: TextIO, every_s: float = LINE_EVERY_S) -> None:
        super().__init__(stream)
        self._every_s = every_s
        self._next_s = time.monotonic() + every_s

    def phase(self, text: str) -> None:
        """One line."""
        self.message(text)

    def update(self, tally: Tally) -> None:
        """One line, if the last is old enough."""
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + self._every_s
        eta = "-" if tally.eta_s is None else clock(tally.eta_s)
        parts = [f"{tally.done:,}/{tally.rows:,} rows", tally.speed(), f"ETA {eta}"]
        self.message("  ".join(filter(None, [*parts, tally.trouble()])))


class Bar:
    """A bar that stays on one line of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False)
        self._bar: RichBar | None = None
        self._status = self._console.status("")
        self._shows_status = False

    def phase(self, text: str) -> None:
        """A spinner with the text."""
        if self._bar is None:
            self._status.update(text)
            if not self._shows_status:
                self._status.start()
                self._shows_status = True

    def update(self, tally: Tally) -> None:
        """Redraw the bar; it replaces the spinner."""
        self._stop_status()
        eta = "-" if tally.eta_s is None else clock(tally.eta_s)
        shown: dict[str, Any] = {
            "rows": f"{tally.done:,}/{tally.rows:,} rows",
            "speed": tally.speed(),
            "eta": f"{clock(tally.wall_s)}  ETA {eta}",
            "trouble": tally.trouble(),
        }
        if self._bar is None:
            self._bar = self._new_bar()
            self._bar.add_task("", total=1.0, **shown)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=tally.share, **shown)

    def message(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the last state of the bar on the screen."""
        self._stop_status()
        if self._bar is not None:
            self._bar.stop()

    def _stop_status(self) -> None:
        if self._shows_status:
            self._status.stop()
            self._shows_status = False

    def _new_bar(self) -> RichBar:
        from rich.console import RenderableType
        from rich.constrain import Constrain
        from rich.progress import BarColumn, Progress, TextColumn

        console = self._console

        class Narrow(Progress):
            """Leaves room for the ^C that a terminal echoes.

            On the next line it would push down a bar as wide as the screen, which then stays.
            """

            def get_renderables(self) -> Iterator[RenderableType]:
                for renderable in super().get_renderables():
                    yield Constrain(renderable, console.width - ECHO_COLUMNS)

        return Narrow(
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rows]}"),
            TextColumn("[cyan]{task.fields[speed]}"),
            TextColumn("{task.fields[eta]}"),
            TextColumn("[yellow]{task.fields[trouble]}"),
            console=console,
        )


def clock(seconds: float) -> str:
    """Seconds as `1:02:03`, or `2:03` below an hour."""
    minutes, s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{s:02}" if hours else f"{minutes}:{s:02}"


def make_progress(stream: TextIO, quiet: bool) -> Progress:
    """The fitting display for `stream`, which is stderr."""
    if quiet:
        return Quiet(stream)
    return Bar(stream) if stream.isatty() else Lines(stream)
