"""Does a clip sound like the voice, where the voice has been measured?

The mean spectrum of a clip says who speaks, and at what rate the samples were meant to be played:
speech that is played too fast or too slow moves all of it up or down. A wrong speed therefore
shows twice, in the duration and here, and where both lean the same way less of each will do.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ttsbatch.quality.spectrum import NUM_BANDS, Spectrum
from ttsbatch.types import VoiceProfile

LOUD_BELOW_DB = 20.0  # under the mean: what is quieter is more room and noise than voice
DB_PER_NEPER = 10 / math.log(10)
MIN_EXPECTED_S = 1.8  # a word or two have not all the sounds of a voice

# 200 sentences of the embedded default lie 0.4 to 1.6 dB from its mean (a hundredth up to 3.0),
# at 0.6 times their speed 3.5 to 5.5 dB, at 1.6 times 5.5 to 10 dB.
ODD_DB = 3.2
FAST, SLOW = 0.9, 1.15  # of the expected seconds


def mean_spectrum(spectrum: Spectrum) -> npt.NDArray[np.float32] | None:
    """[NUM_BANDS] mean levels of the loud frames in dB, their mean taken off; None without any."""
    if not len(spectrum.level):
        return None
    loud = spectrum.level >= spectrum.level.mean() * 10 ** (-LOUD_BELOW_DB / 10)
    mean = spectrum.bands[loud].mean(axis=0) * np.float32(DB_PER_NEPER)
    centred: npt.NDArray[np.float32] = mean - mean.mean()
    return centred


def distance_db(spectrum: Spectrum, profile: VoiceProfile) -> float | None:
    """How far a clip's mean spectrum is from the voice's: dB, root mean square over the bands."""
    mean = mean_spectrum(spectrum)
    if mean is None or len(profile.spectrum_db) != NUM_BANDS:
        return None
    return float(np.sqrt(np.mean(np.square(mean - np.array(profile.spectrum_db, np.float32)))))


def is_wrong_speed(
    distance: float, duration_s: float, expected_s: float, profile: VoiceProfile
) -> bool:
    """Whether duration and spectrum both speak for another speed."""
    ratio = duration_s / (expected_s * profile.pace)
    return expected_s >= MIN_EXPECTED_S and distance > ODD_DB and not FAST <= ratio <= SLOW
