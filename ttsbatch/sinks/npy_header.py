"""The header of an .npy file, against its size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import BinaryIO

from numpy.lib import format as npy

from ttsbatch.counts import counted


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What an array file holds."""

    dtype: str
    shape: tuple[int, ...]


def read_npy_header(file: BinaryIO, size: int) -> NpyHeader:
    """Read the header of a file of `size` bytes, from its start.

    Raises:
        ValueError: no such file, or not whole; in words that follow the file's name.
    """
    try:
        npy.read_magic(file)
        shape, _, dtype = npy.read_array_header_1_0(file)
    except ValueError as e:
        raise ValueError(f"not an array file: {e}") from e
    expected = file.tell() + math.prod(shape) * dtype.itemsize
    if size != expected:
        raise ValueError(f"{counted(size, 'byte')}, expected {expected:,} by its header")
    return NpyHeader(str(dtype), tuple(shape))
