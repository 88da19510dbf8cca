"""The length of a WAV file from its header and its size, without reading the samples."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from ttsbatch.counts import counted

HEAD_BYTES = 4096
_PCM = 1


def measure_wav(path: Path) -> tuple[int, int]:
    """(samples, sample rate in Hz) of a 16-bit mono WAV file that is whole.

    Raises:
        ValueError: not such a file, cut short, or longer than its header says; the message says
            which, in words that follow the file's name.
        OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        size, head = os.fstat(fd).st_size, os.read(fd, HEAD_BYTES)
    finally:
        os.close(fd)
    return measure_wav_head(head, size)


def measure_wav_head(head: bytes, size: int) -> tuple[int, int]:
    """The same from the first `HEAD_BYTES` of a file of `size` bytes.

    Raises:
        ValueError: as `measure_wav`.
    """
    if len(head) < 12 or head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        raise ValueError(f"{counted(size, 'byte')} without a WAV header")
    (riff_bytes,) = struct.unpack_from("<I", head, 4)
    rate_hz = position = 0
    start = 12
    while start + 8 <= len(head):
        name, length = struct.unpack_from("<4sI", head, start)
        position = start + 8
        if name == b"fmt " and position + 16 <= len(head):
            rate_hz = _rate(struct.unpack_from("<HHIIHH", head, position))
        elif name == b"data":
            break
        start = position + length + length % 2
    else:
        raise ValueError(f"{counted(size, 'byte')} without a data chunk")
    if not rate_hz:
        raise ValueError("has no format chunk")
    if size < position + length:
        raise ValueError(f"cut short: {size - position:,} of {counted(length, 'byte')} of audio")
    if size != riff_bytes + 8:
        raise ValueError(f"{counted(size, 'byte')}, expected {riff_bytes + 8:,} by its header")
    if length % 2:
        raise ValueError(f"{counted(length, 'byte')} of audio, which is half a sample too many")
    return length // 2, rate_hz


def _rate(fields: tuple[int, ...]) -> int:
    encoding, channels, rate_hz, _, _, bits = fields
    if (encoding, channels, bits) != (_PCM, 1, 16):
        raise ValueError(
            f"encoding {encoding}, {counted(channels, 'channel')}, {counted(bits, 'bit')}; "
            "expected 16-bit PCM, mono"
        )
    return rate_hz
