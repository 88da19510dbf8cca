"""The segments of one utterance, put together again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ttsbatch.types import Waveform

FADE_S = 0.005  # long enough that a joint cannot click, too short to be heard
MAX_GAIN_DB = (
    3.0  # two takes of one voice differ by less; what differs by more is no matter of level
)
_FRAME_S = 0.02
_QUIET_DB = -40.0  # below a segment's loudest frame: silence
_FULL_SCALE = 32_767

_Samples = npt.NDArray[np.int16]


def join_segments(waves: Sequence[Waveform], pauses_s: Sequence[float] = ()) -> _Samples:
    """All samples in the order of the segments; one segment: as it is.

    Segments are brought to their median level, by at most `MAX_GAIN_DB` and never into clipping,
    faded over `FADE_S` on both sides of a joint, and set apart until the quiet at the joint is as
    long as the pause. Nothing is cut off.

    Args:
        waves: the segments of one utterance, one each, in any order.
        pauses_s: quiet at each joint, seconds, what the segments bring along included.

    Returns:
        [N] int16; N is at most the sum of all segments and pauses.

    Raises:
        ValueError: no segment, different sample rates, or not one pause per joint.
    """
    rates = {w.sample_rate_hz for w in waves}
    if len(rates) != 1:
        raise ValueError(f"segments at {sorted(rates)} Hz; expected one sample rate")
    if len(waves) == 1:
        return waves[0].samples
    if len(pauses_s) != len(waves) - 1:
        raise ValueError(f"{len(pauses_s)} pauses for {len(waves)} segments; expected one a joint")
    rate_hz = rates.pop()
    parts = [w.samples for w in sorted(waves, key=lambda w: w.segment.index)]
    size = max(1, round(_FRAME_S * rate_hz))
    levels = [_level_db(p, size) for p in parts]
    spoken = [level for level in levels if level is not None]
    target_db = float(np.median(spoken)) if spoken else 0.0
    pieces: list[_Samples] = []
    for i, (part, level_db) in enumerate(zip(parts, levels, strict=True)):
        gain = 1.0 if level_db is None else _gain(part, target_db - level_db)
        pieces.append(_shaped(part, gain, round(FADE_S * rate_hz), i > 0, i + 1 < len(parts)))
        if i + 1 < len(parts):
            there = _quiet_frames(part[::-1], size) + _quiet_frames(parts[i + 1], size)
            # Down: with floor, sums of pauses stay within what was planned.
            pieces.append(np.zeros(max(0, int(pauses_s[i] * rate_hz) - there * size), np.int16))
    return np.concatenate(pieces)


def _powers(part: _Samples, size: int) -> npt.NDArray[np.float64]:
    """[F] mean power of whole frames."""
    frames = part[: len(part) // size * size].reshape(-1, size).astype(np.float64)
    powers: npt.NDArray[np.float64] = np.mean(np.square(frames), axis=1)
    return powers


def _is_heard(power: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    return power > max(1.0, float(power.max(initial=0.0)) * 10 ** (_QUIET_DB / 10))


def _level_db(part: _Samples, size: int) -> float | None:
    """Level of the frames that are heard; None where there are none."""
    power = _powers(part, size)
    heard = power[_is_heard(power)]
    return 10 * float(np.log10(heard.mean())) if len(heard) else None


def _quiet_frames(part: _Samples, size: int) -> int:
    """Whole silent frames at the beginning."""
    heard = _is_heard(_powers(part, size))
    return int(np.argmax(heard)) if heard.any() else len(heard)


def _gain(part: _Samples, wanted_db: float) -> float:
    gain = float(10 ** (np.clip(wanted_db, -MAX_GAIN_DB, MAX_GAIN_DB) / 20))
    peak = int(np.abs(part.astype(np.int32)).max(initial=1))
    if peak >= _FULL_SCALE:
        return 1.0  # clipped: made quieter, it would pass for sound audio
    # Below full scale, so that no gain looks like clipping either.
    return min(gain, max(1.0, (_FULL_SCALE - 1) / peak))


def _shaped(part: _Samples, gain: float, fade: int, fades_in: bool, fades_out: bool) -> _Samples:
    shaped = part.astype(np.float64) * gain
    fade = min(fade, len(part) // 2)
    ramp = np.sin((np.arange(fade) + 0.5) / max(fade, 1) * (np.pi / 2)) ** 2
    if fades_in:
        shaped[:fade] *= ramp
    if fades_out:
        shaped[len(part) - fade :] *= ramp[::-1]
    return np.rint(shaped).astype(np.int16)
