"""The length of an audio file, and whether it is whole, by the checksums that its format has.

WAV: header and size alone. Opus: every page's checksum, no decoding. MP3: size and count of its
LAME header. FLAC: all of it is decoded, a thousand times faster than it plays, which compares every
frame's checksum, and then that of the samples.
"""

from __future__ import annotations

import hashlib
import io
import struct

import numpy as np

from ttsbatch.audio.wav_header import HEAD_BYTES, measure_wav_head
from ttsbatch.counts import counted

_XING_WITHIN_BYTES = 64  # of the start: the header of a frame, its side information, then the tag
_XING_HAS_FRAMES_AND_BYTES = 3
_FLAC_MD5 = slice(26, 42)  # behind the marker, a block's header and 18 bytes of STREAMINFO
_BLOCK_SAMPLES = 1 << 16


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
        raise ValueError(f"{counted(len(data), 'byte')} without an MP3 header")
    flags, _, num_bytes = struct.unpack_from(">III", data, at + 4)
    if flags & _XING_HAS_FRAMES_AND_BYTES != _XING_HAS_FRAMES_AND_BYTES:
        raise ValueError("its header has no size")
    if num_bytes != len(data):
        what = "cut short: " if len(data) < num_bytes else ""
        found = counted(len(data), "byte")
        raise ValueError(f"{what}{found}, expected {num_bytes:,} by its header")
    try:
        info = soundfile.info(io.BytesIO(data))
    except soundfile.LibsndfileError as e:
        raise ValueError(f"not an MP3 file: {e}") from e
    return _mono(info.frames, info.samplerate, info.channels)


def _measure_flac(data: bytes) -> tuple[int, int]:
    """Source: RFC 9639, 8.2 (STREAMINFO: MD5 of the unencoded samples) and 9.3 (frame CRC)."""
    import soundfile

    if data[:4] != b"fLaC":
        raise ValueError(f"{counted(len(data), 'byte')} without a FLAC header")
    num_decoded, digest = 0, hashlib.md5(usedforsecurity=False)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            num_samples, rate_hz, channels = file.frames, file.samplerate, file.channels
            is_16_bit = file.subtype == "PCM_16"
            block = np.empty((_BLOCK_SAMPLES, channels), "<i2")
            while num_read := len(part := file.read(out=block)):
                num_decoded += num_read
                digest.update(part.tobytes())
    except soundfile.LibsndfileError as e:
        raise ValueError("cut short or damaged: not all of it can be decoded") from e
    if num_decoded != num_samples:
        raise ValueError(f"{num_decoded:,} samples, expected {num_samples:,} by its header")
    md5 = data[_FLAC_MD5]
    if is_16_bit and any(md5) and digest.digest() != md5:  # zeros: its encoder kept none
        raise ValueError("damaged: its samples are not those of its checksum")
    return _mono(num_samples, rate_hz, channels)


def _mono(num_samples: int, rate_hz: int, channels: int) -> tuple[int, int]:
    if channels != 1:
        raise ValueError(f"{channels} channels, expected mono")
    return num_samples, rate_hz
