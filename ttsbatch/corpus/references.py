"""Reference clips: found, readable, long and loud enough to clone a voice from.

A million rows may share a few clips, so what was found of a path is kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ttsbatch.uri import is_uri

MIN_REFERENCE_S = 0.1
MAX_REFERENCE_S = 30.0
SILENT_PEAK = 1e-3  # -60 dBFS: nothing louder than that is silence
LOUDEST_PEAK = 8.0  # +18 dBFS, of a mix in floats; integers kept as floats are far beyond
_KEPT = 100_000  # paths; a few tens of megabytes
_BLOCK_FRAMES = 1 << 16


@dataclass(frozen=True, slots=True)
class ReferenceProblem:
    """Why a clip cannot be used."""

    reason: str  # ref_missing, ref_unreadable, ref_silent, ref_too_short, ref_too_long
    message: str


class References:
    """Looks at reference clips, each once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], str | ReferenceProblem] = {}

    def find(self, path: str, base: str) -> str | ReferenceProblem:
        """The clip's path from the working folder, or what is wrong with it.

        Args:
            path: as the row gives it; `\\` is read as `/` where no file has the name as written.
            base: the folder that a relative path starts from.
        """
        key = (path, base)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _KEPT:
                self._found.clear()
            found = self._found[key] = _find(path, base)
        return found


def _find(path: str, base: str) -> str | ReferenceProblem:
    if is_uri(path) or (is_uri(base) and not os.path.isabs(path)):
        return ReferenceProblem(
            "ref_unreadable",
            f'"ref_audio" {path!r} is on a remote file system; expected a local file',
        )
    for name in dict.fromkeys((path, path.replace("\\", "/"))):
        whole = os.path.normpath(os.path.join(base, name)) if name else ""
        if whole and _exists(whole):
            return check_clip(whole, path) or whole
    return ReferenceProblem("ref_missing", f'"ref_audio" is {path!r}; no such file in {base}')


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:  # a NUL in the name
        return False


def check_clip(path: str, name: str) -> ReferenceProblem | None:
    """What is wrong with the clip at `path`, called `name` in the message; None if it is good.

    Reads at most `MAX_REFERENCE_S` seconds. Clipped, stereo or of any sample rate is good; samples
    that are not of the range -1 to 1 are not, as encoders make NaN of them.
    """
    import numpy as np
    import soundfile

    try:
        with soundfile.SoundFile(path) as clip:
            rate = clip.samplerate
            frames, peak = 0, 0.0
            most = int(MAX_REFERENCE_S * rate)
            if clip.frames <= most:  # a header may claim any number; a long one is believed
                while len(block := clip.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
                    frames += len(block)
                    peak = float(np.maximum(peak, np.abs(block).max()))  # keeps a NaN
                    if frames > most or not np.isfinite(peak):
                        break
            else:
                frames = clip.frames
    except (RuntimeError, OSError, ValueError, TypeError) as e:
        return ReferenceProblem("ref_unreadable", f'"ref_audio" {name!r} is no readable audio: {e}')
    if not np.isfinite(peak):
        return ReferenceProblem("ref_unreadable", f'"ref_audio" {name!r} holds NaN or infinity')
    if peak > LOUDEST_PEAK:
        message = (
            f'"ref_audio" {name!r} peaks at {peak:g}; expected floats of -1 to 1, at most '
            f"{LOUDEST_PEAK:g} (it looks like integers kept as floats)"
        )
        return ReferenceProblem("ref_unreadable", message)
    seconds = frames / rate
    if seconds > MAX_REFERENCE_S:
        message = (
            f'"ref_audio" {name!r} is {seconds:.1f} s long; expected {MAX_REFERENCE_S:g} s or less'
        )
        return ReferenceProblem("ref_too_long", message)
    if seconds < MIN_REFERENCE_S:
        message = (
            f'"ref_audio" {name!r} is {seconds:.3f} s long; expected {MIN_REFERENCE_S:g} s or more'
        )
        return ReferenceProblem("ref_too_short", message)
    if peak < SILENT_PEAK:
        level = "is all zero" if peak == 0 else f"peaks at {20 * np.log10(peak):.0f} dBFS"
        return ReferenceProblem("ref_silent", f'"ref_audio" {name!r} {level}; expected speech')
    return None
