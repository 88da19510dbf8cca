"""ONNX models of a few nodes, written by hand: the format is protobuf, and these need little of it.

Source: onnx.proto3 of github.com/onnx/onnx, field numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

FLOAT = 1
Dim = int | str


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _int(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes(number: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def node(op: str, inputs: Sequence[str], output: str, **ints: int | list[int]) -> bytes:
    """A node whose attributes are whole numbers or lists of them."""
    data = b"".join(_bytes(1, name) for name in inputs) + _bytes(2, output) + _bytes(4, op)
    for name, value in ints.items():
        if isinstance(value, int):
            attribute = _int(3, value) + _int(20, 2)
        else:
            attribute = b"".join(_int(8, v) for v in value) + _int(20, 7)
        data += _bytes(5, _bytes(1, name) + attribute)
    return data


def constant(name: str, shape: Sequence[int], values: Sequence[float]) -> bytes:
    """A float initializer."""
    dims = b"".join(_int(1, d) for d in shape)
    raw = struct.pack(f"<{len(values)}f", *values)
    return dims + _int(2, FLOAT) + _bytes(8, name) + _bytes(9, raw)


def _value(name: str, shape: Sequence[Dim]) -> bytes:
    dims = b"".join(_bytes(1, _int(1, d) if isinstance(d, int) else _bytes(2, d)) for d in shape)
    tensor = _int(1, FLOAT) + _bytes(2, dims)
    return _bytes(1, name) + _bytes(2, _bytes(1, tensor))


def write_model(
    path: Path,
    nodes: Sequence[bytes],
    takes: tuple[str, Sequence[Dim]],
    gives: tuple[str, Sequence[Dim]],
    constants: Sequence[bytes] = (),
) -> Path:
    """Write a model of one input and one output; returns its path."""
    graph = b"".join(_bytes(1, n) for n in nodes) + _bytes(2, "tiny")
    graph += b"".join(_bytes(5, c) for c in constants)
    graph += _bytes(11, _value(*takes)) + _bytes(12, _value(*gives))
    path.write_bytes(_int(1, 8) + _bytes(7, graph) + _bytes(8, _bytes(1, "") + _int(2, 13)))
    return path
