"""The values of a row: their types and ranges, whatever the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttsbatch.corpus.fields import (
    BOOL_FIELDS,
    NUMBER_FIELDS,
    STRING_FIELDS,
    WHOLE_FIELDS,
    column_names,
    has_lone_surrogate,
)
from ttsbatch.plan import sampling_problems

MAX_SEED = 2**63 - 1
_SHOWN = 80  # characters of a value that a message repeats


class Reject(Exception):
    """Ends the checking of a row."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message


def text_of(value: Any, row: Mapping[str, Any], mapping: Mapping[str, str]) -> str:
    """The text of a row.

    Args:
        value: what is there in place of a text.
        row: all fields of the row, for the message.
        mapping: columns of --map by field, for the message.

    Raises:
        Reject: there is none, or it is no text.
    """
    if type(value) is not str:
        if value is None:
            raise Reject("missing_text", _no_text(row, mapping))
        raise wrong_type("text", value, "a string")
    if has_lone_surrogate(value):
        raise Reject("bad_unicode", '"text" holds a lone surrogate')
    return value


def _no_text(row: Mapping[str, Any], mapping: Mapping[str, str]) -> str:
    column = mapping.get("text")
    name = '"text"' if column is None else f'"{column}" (--map text={column})'
    if "text" in row:
        return f"{name} is null or an empty cell; expected a string"
    found = ", ".join(column_names(map(str, row), mapping))
    hint = " (see --map)" if column is None else ""
    return f"no {name}; fields found: {found or 'none'}{hint}"


def typed(name: str, value: Any) -> Any:
    """The value of an optional field in the type that we use.

    Raises:
        Reject: it is of another type.
    """
    if name in STRING_FIELDS:
        if type(value) is not str:
            raise wrong_type(name, value, "a string")
        if has_lone_surrogate(value):
            raise Reject("bad_unicode", f'"{name}" holds a lone surrogate')
        return value
    if name in BOOL_FIELDS:
        if type(value) is not bool:
            raise wrong_type(name, value, "true or false")
        return value
    if name in WHOLE_FIELDS:
        whole = whole_of(value)
        if whole is None:
            raise wrong_type(name, value, "a whole number")
        return whole
    assert name in NUMBER_FIELDS
    if type(value) not in (int, float):
        raise wrong_type(name, value, "a number")
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def whole_of(value: Any) -> int | None:
    """A whole number, which JSON may spell 1.0; None: it is none."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    return None


def check_values(own: Mapping[str, Any]) -> None:
    """Look at the ranges of a row's own values.

    Raises:
        Reject: one is out of range.
    """
    seed = own.get("seed")
    if seed is not None and not 0 <= seed <= MAX_SEED:
        raise Reject("bad_value", f'"seed" is {repeated(seed)}; expected 0 to {MAX_SEED}')
    if own.get("file_name") == "":
        raise Reject("bad_value", '"file_name" is empty; expected a name')
    for name, expected in sampling_problems(own).items():
        raise Reject("bad_value", f'"{name}" is {repeated(own[name])}; expected {expected}')


def wrong_type(name: str, value: Any, expected: str) -> Reject:
    """What a value of another type is rejected with."""
    return Reject("wrong_type", f'"{name}" is {repeated(value)}; expected {expected}')


def repeated(value: Any) -> str:
    """A value as a message repeats it."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = "a huge number"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
