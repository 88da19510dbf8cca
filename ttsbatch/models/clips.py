"""Reference clips: read, mixed to mono, resampled; each distinct content once."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

KEPT_CLIPS = 256  # decoded clips kept for rows to come: 30 s at 24 kHz is 2.9 MB each


def read_clip(path: str, rate_hz: int) -> npt.NDArray[np.float32]:
    """A sound file as [N] float32 mono at `rate_hz` (soxr, high quality, as librosa's default).

    Raises:
        OSError, soundfile.LibsndfileError: not there, or not audio.
    """
    import soundfile
    import soxr

    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = samples.mean(axis=1, dtype=np.float32)
    if rate != rate_hz:
        mono = soxr.resample(mono, rate, rate_hz, quality="HQ").astype(np.float32)
    return np.ascontiguousarray(mono)


def longest_first(lengths: Sequence[int], count: Callable[[int], int]) -> Iterator[list[int]]:
    """The places of clips in groups of about one length.

    Args:
        lengths: of the clips.
        count: the length of a group's longest clip -> how many clips it may have, at least one.
    """
    left = sorted(range(len(lengths)), key=lambda i: lengths[i])
    while left:
        group = left[-count(lengths[left[-1]]) :]
        del left[-len(group) :]
        yield group


class ClipReader:
    """Reads clips through a small cache; safe to call from several threads."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._kept: OrderedDict[tuple[str, int, int], tuple[str, npt.NDArray[np.float32]]]
        self._kept = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: str) -> tuple[str, npt.NDArray[np.float32]]:
        """Content hash and samples of the file as it is now."""
        stat = os.stat(path)
        name = (path, stat.st_size, stat.st_mtime_ns)
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        samples = read_clip(path, self._rate_hz)
        key = hashlib.blake2b(samples.tobytes(), digest_size=16).hexdigest()
        with self._lock:
            self._kept[name] = key, samples
            while len(self._kept) > KEPT_CLIPS:
                self._kept.popitem(last=False)
        return key, samples
