"""The length of an audio file, and whether it is whole, as cheaply as its format lets one know.

WAV: header and size alone. Opus: every page's checksum, no decoding. MP3: size and count of its
LAME header. FLAC: its last frame is found and decoded; bytes in the middle are not looked at.
"""

from __future__ import annotations

import io
import struct

from ttsbatch.audio.wav_header import HEAD_BYTES, measure_wav_head

_XING_WITHIN_BYTES = 64  # of the start: the header of a frame, its side information, then the tag
_XING_HAS_FRAMES_AND_BYTES = 3


def bytes_needed(extension: str, size: int) -> int:
    """How much of a file of `size` bytes, from its start, `measure_audio` has to see."""
    return min(size, HEAD_BYTES) if extension == ".wav" else size


def measure_audio(extension: str, head: bytes, size: int) -> tuple[int, int]:
    """(samples, sample rate in Hz) of a mono file that is whole.

    Args:
        extension: of the file's name, with the dot.
        head: its first `bytes_needed` bytes.
        size: of the whole file, bytes.

    Raises:
        ValueError: not such a file, cut short, or longer than its header says; the message says
            which, in words that follow the file's name.
    """
    if extension == ".wav":
        return measure_wav_head(head, size)
    if extension == ".opus":
        from ttsbatch.audio.ogg import measure_opus

        return measure_opus(head)
    if extension == ".mp3":
        return _measure_mp3(head)
    if extension == ".flac":
        return _measure_flac(head)
    raise ValueError("is no audio file of ours")


def _measure_mp3(data: bytes) -> tuple[int, int]:
    """Source: the Xing and LAME header as the encoder writes it (lame, VbrTag.c)."""
    import soundfile

    start = data[:_XING_WITHIN_BYTES]
    at = max(start.find(b"Xing"), start.find(b"Info"))
    if at < 0 or len(data) < at + 16:
        raise ValueError(f"{len(data):,} bytes without an MP3 header")
    flags, _, num_bytes = struct.unpack_from(">III", data, at + 4)
    if flags & _XING_HAS_FRAMES_AND_BYTES != _XING_HAS_FRAMES_AND_BYTES:
        raise ValueError("its header has no size")
    if num_bytes != len(data):
        what = "cut short: " if len(data) < num_bytes else ""
        raise ValueError(f"{what}{len(data):,} bytes, expected {num_bytes:,} by its header")
    try:
        info = soundfile.info(io.BytesIO(data))
    except soundfile.LibsndfileError as e:
        raise ValueError(f"not an MP3 file: {e}") from e
    return _mono(info.frames, info.samplerate, info.channels)


def _measure_flac(data: bytes) -> tuple[int, int]:
    import soundfile

    if data[:4] != b"fLaC":
        raise ValueError(f"{len(data):,} bytes without a FLAC header")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            num_samples, rate_hz, channels = file.frames, file.samplerate, file.channels
            file.seek(max(0, num_samples - 1))
            num_left = len(file.read(2, dtype="int16"))
    except soundfile.LibsndfileError as e:
        raise ValueError("cut short or damaged: its end cannot be decoded") from e
    if num_left != min(num_samples, 1):
        raise ValueError(f"cut short: has no sample {num_samples:,}")
    return _mono(num_samples, rate_hz, channels)


def _mono(num_samples: int, rate_hz: int, channels: int) -> tuple[int, int]:
    if channels != 1:
        raise ValueError(f"{channels} channels, expected mono")
    return num_samples, rate_hz
