"""How many samples hit the end of the scale."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MIN_RUN = 2  # one sample at full scale is a peak; clipping is flat


def clipped_share(samples: npt.NDArray[np.int16]) -> float:
    """Share (0..1) of samples that lie in a flat top: two or more in a row at full scale.

    Args:
        samples: [N] int16, N > 0.
    """
    at_end = (samples >= 32767) | (samples <= -32767)
    pairs = at_end[1:] & at_end[:-1]
    flat = np.zeros(len(samples), bool)
    flat[1:] |= pairs
    flat[:-1] |= pairs
    return float(np.count_nonzero(flat) / len(samples))
