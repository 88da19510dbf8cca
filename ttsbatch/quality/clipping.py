"""How many samples hit the end of a scale: that of int16, or the clip's own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FULL_SCALE = 32_767
MIN_PEAK = 1_000  # -30 dBFS: a flat top below it is a matter of rounding
FLAT_RUN = 3  # samples alike at a lower peak: a flat top, where two may be chance


def clipped_share(samples: npt.NDArray[np.int16]) -> float:
    """Share (0..1) of samples that lie in a flat top.

    One sample at full scale is a peak; two or more in a row are flat. Below full scale, where a
    model or a gain has clipped before, it takes three at the clip's own peak.

    Args:
        samples: [N] int16, N > 0.
    """
    count = 0
    for peak in {int(samples.max()), int(samples.min())}:
        if abs(peak) < MIN_PEAK:
            continue
        run = 2 if abs(peak) >= FULL_SCALE else FLAT_RUN
        # Full scale below is -32,767 or -32,768, whichever a writer chose.
        near = samples <= -FULL_SCALE if peak <= -FULL_SCALE else samples == peak
        count += _in_runs(np.flatnonzero(near), run)
    return count / len(samples)


def _in_runs(places: npt.NDArray[np.int64], least: int) -> int:
    """How many of some ascending places have `least` or more neighbours in a row."""
    if len(places) < least:
        return 0
    breaks = np.flatnonzero(np.diff(places) > 1) + 1
    sizes = np.diff(np.concatenate([[0], breaks, [len(places)]]))
    return int(sizes[sizes >= least].sum())
