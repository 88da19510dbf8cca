"""JSON Lines: one object a line. A line that is none is a failed row, and reading goes on."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, NoReturn

from ttsbatch.corpus.fields import ROW_FIELD_SET, column_names, no_text_column, renamer
from ttsbatch.corpus.lines import physical_lines, shown
from ttsbatch.corpus.open import CorpusFile, open_stream
from ttsbatch.plan import CorpusPlan
from ttsbatch.types import Failure, Record

_MAX_DEPTH = 64  # of an extra field; far more than any corpus needs, far less than a stack holds
_LOOK_AHEAD_ROWS = 1000  # before a file without any text is called one without a text column


def read_jsonl(file: CorpusFile, plan: CorpusPlan) -> Iterator[Record | Failure]:
    """The rows of a file, in order; blank lines are none.

    Raises:
        CorpusError: the file cannot be read, or its rows call the text something else: none has
            a "text", and each has a string under a name that is no field of ours.
    """
    rows = _rows(file, plan)
    held: deque[Record | Failure] = deque()
    columns: dict[str, None] = {}
    misnamed = False
    for row in rows:
        held.append(row)
        if isinstance(row, Failure):
            continue
        others = [k for k, v in row.fields.items() if k not in ROW_FIELD_SET and isinstance(v, str)]
        misnamed = "text" not in row.fields and bool(others)
        if not misnamed:
            break
        columns |= dict.fromkeys(row.fields)
        if len(held) >= _LOOK_AHEAD_ROWS:
            break
    if misnamed:
        raise no_text_column(file.source, column_names(columns, plan.mapping), plan.mapping)
    while held:
        yield held.popleft()
    yield from rows


def _rows(file: CorpusFile, plan: CorpusPlan) -> Iterator[Record | Failure]:
    rename = renamer(plan.mapping)
    decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
    source, base = file.source, file.base
    with open_stream(file) as stream:
        for number, line in physical_lines(stream, source):
            if not line.strip():
                continue
            try:
                value = decode(line.decode("utf8"))
            except UnicodeDecodeError as e:
                message = f"not UTF-8: {e.reason} at byte {e.start}"
                yield _failure(source, number, "bad_unicode", message, shown(line))
                continue
            except (ValueError, RecursionError) as e:
                yield _failure(source, number, "invalid_json", _reason(e), shown(line))
                continue
            if type(value) is not dict:
                message = f"is {_kind(value)}; expected a JSON object"
                yield _failure(source, number, "not_an_object", message, shown(line))
            elif line.count(b"{") + line.count(b"[") > _MAX_DEPTH and _too_deep(value):
                message = f"nested more than {_MAX_DEPTH} levels deep"
                yield _failure(source, number, "invalid_json", message, shown(line))
            else:
                yield Record(source, number, rename(value), base)


def _failure(source: str, line: int, reason: str, message: str, row: str) -> Failure:
    return Failure(source, line, None, "read", reason, message, row)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}"
    if isinstance(error, RecursionError):
        return f"nested more than {_MAX_DEPTH} levels deep"
    return f"not JSON: {error}"


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        inside: list[Any] = []
        for x in level:
            inside += x.values() if isinstance(x, dict) else x
        level = [x for x in inside if isinstance(x, (dict, list))]
        if not level:
            return False
    return True
