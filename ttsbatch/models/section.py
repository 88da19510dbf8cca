"""Reading a checkpoint's JSON: typed values, and messages that name the file and the key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ttsbatch.counts import counted
from ttsbatch.errors import ModelError


def read_json(path: Path) -> Any:
    """One JSON file of a checkpoint.

    Raises:
        ModelError: the file is missing, unreadable or not JSON.
    """
    try:
        return json.loads(path.read_text("utf8"))
    except FileNotFoundError as e:
        raise ModelError(f"{path}: no such file; the folder of a checkpoint holds it") from e
    except OSError as e:
        raise ModelError(f"{path}: cannot be read: {e.strerror or e}") from e
    except ValueError as e:
        raise ModelError(f"{path}: not JSON: {e}") from e


class Section:
    """One object of the JSON, with its place in the file for messages.

    Raises:
        ModelError: from every method, the constructor included: what was read is missing, of
            another type or out of range; the message says where, what was found and expected.
    """

    def __init__(self, raw: Any, where: str) -> None:
        if not isinstance(raw, Mapping):
            raise ModelError(f"{where}: is {type(raw).__name__}; expected a JSON object")
        self.raw = raw
        self.where = where

    def sub(self, key: str) -> Section:
        """The object under a key."""
        return Section(self.get(key, dict), f"{self.where}: {key}")

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of a key, of one type; null counts as absent."""
        value = self.raw.get(key)
        if value is None:
            value = default
        if kind is float and type(value) is int:
            value = float(value)
        if value is None:
            raise ModelError(f"{self.where}.{key} is missing")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ModelError(f"{self.where}.{key} is {value!r}; expected {kind.__name__}")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number, 1 or more."""
        value: int = self.get(key, int, default)
        if value < 1:
            raise ModelError(f"{self.where}.{key} is {value}; expected 1 or more")
        return value

    def number(self, key: str, default: float) -> float:
        """A number above 0."""
        value = self.raw.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ModelError(f"{self.where}.{key} is {value!r}; expected a number above 0")
        return float(value)

    def integers(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Whole numbers above 0, at least one."""
        value = self.raw.get(key, default)
        if value is None:
            raise ModelError(f"{self.where}.{key} is missing")
        if (
            not isinstance(value, list | tuple)
            or not value
            or not all(type(x) is int and x > 0 for x in value)
        ):
            raise ModelError(f"{self.where}.{key} is {value!r}; expected a list of whole numbers")
        return tuple(value)

    def expect(self, key: str, only: Any) -> None:
        """Nothing but this one value, if the key is there."""
        value = self.raw.get(key, only)
        if value != only:
            raise ModelError(f"{self.where}.{key} is {value!r}; only {only!r} is supported")

    def divides(self, name: str, value: int, by: int) -> None:
        """That `value` is a multiple of `by`."""
        if value % by:
            raise ModelError(f"{self.where}: {name} is {value}; expected a multiple of {by}")

    def numbers(self, key: str, length: int) -> tuple[float, ...]:
        """Numbers above 0, exactly `length` of them."""
        value = self.raw.get(key)
        if value is None:
            raise ModelError(f"{self.where}.{key} is missing")
        if (
            not isinstance(value, list | tuple)
            or len(value) != length
            or not all(type(x) in (int, float) and x > 0 for x in value)
        ):
            raise ModelError(
                f"{self.where}.{key} is {value!r}; expected a list of "
                f"{counted(length, 'number')} above 0"
            )
        return tuple(float(x) for x in value)
