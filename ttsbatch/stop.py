"""Stop: how a run is asked to end early."""

from __future__ import annotations

import threading

from ttsbatch.models.protocol import Speaker


class Stop:
    """Asks a run to end early: what is in flight is finished, nothing more is begun."""

    def __init__(self) -> None:
        self.by_signal = False  # asked for by whoever runs the command, not by --fail-fast
        self._event = threading.Event()
        self._speaker: Speaker | None = None

    @property
    def requested(self) -> bool:
        """Whether the run is to end."""
        return self._event.is_set()

    def request(self) -> None:
        """End the run soon; safe from a signal handler and from any thread."""
        self._event.set()
        if self._speaker is not None:
            self._speaker.stop()

    def watch(self, speaker: Speaker | None) -> None:
        """Tell this speaker too, from now on."""
        self._speaker = speaker
        if speaker is not None and self.requested:
            speaker.stop()
