"""Samples at another rate, through soxr."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_QUALITY = "HQ"  # 20 bits; the samples have 16


def resampled_length(num_samples: int, from_hz: int, to_hz: int) -> int:
    """How many samples `resample` gives: the nearest whole number, halves up, but not none."""
    return max((2 * num_samples * to_hz + from_hz) // (2 * from_hz), min(num_samples, 1))


def resample(samples: npt.NDArray[np.float32], from_hz: int, to_hz: int) -> npt.NDArray[np.float32]:
    """The samples at `to_hz`; every call by itself, so that no other row can matter.

    Args:
        samples: [N] float32.
        from_hz: their rate.
        to_hz: the rate of the result.

    Returns:
        [resampled_length(N, from_hz, to_hz)] float32; peaks may be above those of the input.
    """
    import soxr

    if from_hz == to_hz or not len(samples):
        return samples
    out: npt.NDArray[np.float32] = soxr.resample(samples, from_hz, to_hz, quality=_QUALITY)
    length = resampled_length(len(samples), from_hz, to_hz)
    if len(out) < length:
        return np.concatenate([out, np.zeros(length - len(out), np.float32)])
    return out[:length]
