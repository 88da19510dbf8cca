"""Integrated loudness and true peak of mono samples.

Source: ITU-R BS.1770-4 (filters, gating, oversampled peak); its filters at rates other than
48 kHz by the analogue parameters of libebur128. The filters are applied as spectra: the poles
are so well damped that after `_TAIL_S` nothing of a response is left in double precision. That
spares a dependency on scipy, which a run would have for this alone.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from ttsbatch.audio.resample import resample

BLOCK_S = 0.4
_STEPS_PER_BLOCK = 4
_ABSOLUTE_GATE_LUFS = -70.0
_RELATIVE_GATE_LU = -10.0
_OFFSET_LUFS = -0.691
_OVERSAMPLING = 4
_TAIL_S = 0.3
_SHELF_HZ, _SHELF_Q, _SHELF_DB = 1681.974450955533, 0.7071752369554196, 3.999843853973347
_HIGH_PASS_HZ, _HIGH_PASS_Q = 38.13547087602444, 0.5003270373238773

_Floats = npt.NDArray[np.float64]


def k_weighting(sample_rate_hz: int) -> tuple[_Floats, _Floats]:
    """The two biquads of the K-weighting, [2, 3] numerators and [2, 3] denominators."""
    k = math.tan(math.pi * _SHELF_HZ / sample_rate_hz)
    high = 10 ** (_SHELF_DB / 20)
    middle = high**0.4996667741545416
    norm = 1 + k / _SHELF_Q + k * k
    shelf_b = [
        (high + middle * k / _SHELF_Q + k * k) / norm,
        2 * (k * k - high) / norm,
        (high - middle * k / _SHELF_Q + k * k) / norm,
    ]
    shelf_a = [1.0, 2 * (k * k - 1) / norm, (1 - k / _SHELF_Q + k * k) / norm]
    k = math.tan(math.pi * _HIGH_PASS_HZ / sample_rate_hz)
    norm = 1 + k / _HIGH_PASS_Q + k * k
    pass_a = [1.0, 2 * (k * k - 1) / norm, (1 - k / _HIGH_PASS_Q + k * k) / norm]
    return np.array([shelf_b, [1.0, -2.0, 1.0]]), np.array([shelf_a, pass_a])


def integrated_lufs(samples: npt.NDArray[np.float32], sample_rate_hz: int) -> float:
    """Gated loudness of a clip, LUFS; -inf for silence.

    A clip below `BLOCK_S`, for which the standard has no figure, counts as one block.

    Args:
        samples: [N] float32, 1 is full scale.
        sample_rate_hz: of the samples.
    """
    if not len(samples):
        return -math.inf
    energy = np.concatenate([[0.0], np.cumsum(np.square(_weighted(samples, sample_rate_hz)))])
    size = min(round(BLOCK_S * sample_rate_hz), len(samples))
    starts = np.arange(0, len(samples) - size + 1, max(1, size // _STEPS_PER_BLOCK))
    powers = (energy[starts + size] - energy[starts]) / size
    heard = powers[powers > _power(_ABSOLUTE_GATE_LUFS)]
    if not len(heard):
        return -math.inf
    heard = heard[heard > float(heard.mean()) * 10 ** (_RELATIVE_GATE_LU / 10)]
    return _OFFSET_LUFS + 10 * math.log10(float(heard.mean()))


def true_peak(samples: npt.NDArray[np.float32], sample_rate_hz: int) -> float:
    """The largest amplitude between the samples too, by fourfold oversampling; 1 is full scale."""
    if not len(samples):
        return 0.0
    between = resample(samples, sample_rate_hz, _OVERSAMPLING * sample_rate_hz)
    return float(max(np.abs(between).max(), np.abs(samples).max()))


def _power(lufs: float) -> float:
    return float(10 ** ((lufs - _OFFSET_LUFS) / 10))


def _weighted(samples: npt.NDArray[np.float32], sample_rate_hz: int) -> _Floats:
    size = _fast_length(len(samples) + round(_TAIL_S * sample_rate_hz))
    spectrum = np.fft.rfft(samples.astype(np.float64), size) * _response(size, sample_rate_hz)
    weighted: _Floats = np.fft.irfft(spectrum, size)[: len(samples)]
    return weighted


@functools.lru_cache(maxsize=16)  # there are seven sizes between one length and its double
def _response(size: int, sample_rate_hz: int) -> npt.NDArray[np.complex128]:
    z = np.exp(-2j * math.pi * np.arange(size // 2 + 1) / size)
    response = np.ones(len(z), np.complex128)
    for b, a in zip(*k_weighting(sample_rate_hz), strict=True):
        response *= (b[0] + z * (b[1] + z * b[2])) / (a[0] + z * (a[1] + z * a[2]))
    return response


def _fast_length(least: int) -> int:
    """A length of small factors, for which the transform is quick."""
    shift = max(0, least.bit_length() - 4)
    return next(k << shift for k in (8, 9, 10, 12, 15, 16, 18) if k << shift >= least)
