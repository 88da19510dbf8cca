"""Waveform to the bytes of a WAV file."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt


def encode_wav(samples: npt.NDArray[np.int16], sample_rate_hz: int) -> bytes:
    """A 16-bit mono WAV file; the same samples always give the same bytes.

    Args:
        samples: [N] int16.
        sample_rate_hz: as the header says it.
    """
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, samples, sample_rate_hz, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


_HEADER_BYTES = 44


def wav_bytes(num_samples: int) -> int:
    """Size of the file that `encode_wav` makes of so many samples."""
    return _HEADER_BYTES + 2 * num_samples
