"""The audio file formats: which sample rates they take, and samples to the bytes of a file.

The same samples give the same bytes, and what libsndfile decodes has exactly as many samples:
WAV and FLAC hold the count, Ogg Opus in its granule positions, MP3 in its LAME header.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ttsbatch.audio.ogg import with_serial
from ttsbatch.audio.wav import encode_wav

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 192_000


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """One kind of file, mono."""

    name: str
    container: str  # as libsndfile names it
    subtype: str
    rates_hz: tuple[int, ...] | None = None  # None: any
    compression_level: float | None = None  # of libsndfile, 0..1; None: its default
    bytes_per_second: int | None = None  # of speech, roughly; None: by the sample rate
    bytes_per_sample: float = 2.0  # where it goes by the sample rate

    @property
    def extension(self) -> str:
        """Of file names, with the dot."""
        return f".{self.name}"

    def takes(self, sample_rate_hz: int) -> bool:
        """Whether a file may have this rate."""
        if self.rates_hz is not None:
            return sample_rate_hz in self.rates_hz
        return MIN_RATE_HZ <= sample_rate_hz <= MAX_RATE_HZ

    @property
    def expected_rates(self) -> str:
        """The rates that it takes, in words."""
        if self.rates_hz is None:
            return f"{MIN_RATE_HZ} to {MAX_RATE_HZ}"
        return ", ".join(map(str, self.rates_hz[:-1])) + f" or {self.rates_hz[-1]}"

    def estimate_bytes(self, seconds: float, sample_rate_hz: int) -> float:
        """Roughly what so much speech takes."""
        by_rate = self.bytes_per_sample * sample_rate_hz
        return seconds * (by_rate if self.bytes_per_second is None else self.bytes_per_second)


FORMATS = {
    f.name: f
    for f in (
        AudioFormat("wav", "WAV", "PCM_16"),
        AudioFormat("flac", "FLAC", "PCM_16", bytes_per_sample=1.0),
        # 56 kbit/s at most. libsndfile's default of 33 is the slower one: 8 s of speech were
        # encoded at 15 times real time on one core, at this level at 50 times.
        AudioFormat(
            "opus",
            "OGG",
            "OPUS",
            (8_000, 12_000, 16_000, 24_000, 48_000),
            compression_level=0.8,
            bytes_per_second=6_500,
        ),
        AudioFormat(
            "mp3",
            "MP3",
            "MPEG_LAYER_III",
            (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
            bytes_per_second=7_000,
        ),
    )
}


def encode_audio(
    samples: npt.NDArray[np.int16], sample_rate_hz: int, audio_format: AudioFormat
) -> bytes:
    """A mono file of 16-bit samples; the same samples always give the same bytes.

    Args:
        samples: [N] int16; N > 0, except in WAV.
        sample_rate_hz: one that the format takes.
        audio_format: of FORMATS.
    """
    import soundfile

    if audio_format.container == "WAV":
        return encode_wav(samples, sample_rate_hz)
    buffer = io.BytesIO()
    soundfile.write(
        buffer,
        samples,
        sample_rate_hz,
        format=audio_format.container,
        subtype=audio_format.subtype,
        compression_level=audio_format.compression_level,
    )
    data = buffer.getvalue()
    return with_serial(data, 1) if audio_format.container == "OGG" else data
