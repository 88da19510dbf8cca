"""The pages of an Ogg file: their checksums, and a serial number that is not drawn by chance.

Source: RFC 3533 (The Ogg Encapsulation Format), RFC 7845 (Ogg Encapsulation for Opus).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ttsbatch.counts import counted

_HEADER = struct.Struct("<4sBBqIIIB")  # capture, version, flags, granule, serial, number, crc, n
_LAST_PAGE = 4
_MIRRORED = bytes(int(f"{i:08b}"[::-1], 2) for i in range(256))
OPUS_RATE_HZ = 48_000  # granule positions of Opus always count at this rate


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the file."""

    start: int
    end: int
    body: int  # where its packets begin
    granule: int
    is_last: bool


def with_serial(data: bytes, serial: int) -> bytes:
    """The file with another stream number in all its pages.

    libsndfile draws the number at random, so that no two encodings would be the same.

    Raises:
        ValueError: not an Ogg file that is whole.
    """
    out = bytearray(data)
    for page in pages(data):
        struct.pack_into("<I", out, page.start + 14, serial)
        struct.pack_into("<I", out, page.start + 22, 0)
        checksum = _checksum(bytes(out[page.start : page.end]))
        struct.pack_into("<I", out, page.start + 22, checksum)
    return bytes(out)


def measure_opus(data: bytes) -> tuple[int, int]:
    """(samples, sample rate in Hz) of an Ogg Opus file; its checksums are right then.

    Raises:
        ValueError: not such a file, cut short or damaged.
    """
    found = list(pages(data))
    head = data[found[0].body : found[0].body + 19] if found else b""
    if head[:8] != b"OpusHead" or len(head) < 19:
        raise ValueError(f"{counted(len(data), 'byte')} without an Opus header")
    if not found[-1].is_last:
        raise ValueError("cut short: its last page is not there")
    channels, skip, rate_hz = struct.unpack_from("<BHI", head, 9)
    if channels != 1 or rate_hz == 0 or OPUS_RATE_HZ % rate_hz:
        raise ValueError(f"{channels} channels at {rate_hz:,} Hz; expected mono")
    return (found[-1].granule - skip) // (OPUS_RATE_HZ // rate_hz), rate_hz


def pages(data: bytes) -> Iterator[Page]:
    """The pages of an Ogg file, each with a right checksum.

    Raises:
        ValueError: no Ogg file, cut short or damaged.
    """
    position = 0
    while position < len(data):
        if len(data) < position + _HEADER.size:
            raise ValueError(f"cut short in a page header at byte {position:,}")
        capture, _, flags, granule, _, _, checksum, num_lengths = _HEADER.unpack_from(
            data, position
        )
        if capture != b"OggS":
            raise ValueError(f"no page at byte {position:,}")
        body = position + _HEADER.size + num_lengths
        end = body + sum(data[position + _HEADER.size : body])
        if len(data) < end:
            raise ValueError(f"cut short in the page at byte {position:,}")
        blank = data[position : position + 22] + bytes(4) + data[position + 26 : end]
        if _checksum(blank) != checksum:
            raise ValueError(f"damaged in the page at byte {position:,}")
        yield Page(position, end, body, granule, bool(flags & _LAST_PAGE))
        position = end


def _checksum(page: bytes) -> int:
    """Ogg's CRC-32, through zlib's: the same polynomial with its bits in the other order."""
    mirrored = zlib.crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)
