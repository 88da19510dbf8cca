"""The fields of a row: their names, their types, and columns of other names mapped to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ttsbatch.errors import CorpusError, PlanError

STRING_FIELDS = ("voice", "language", "instruct", "ref_audio", "ref_text", "file_name")
WHOLE_FIELDS = ("seed", "top_k", "steps")
NUMBER_FIELDS = ("temperature", "top_p", "repetition_penalty", "guidance", "max_seconds")
BOOL_FIELDS = ("split",)
ROW_FIELDS = ("id", "text", *STRING_FIELDS, *WHOLE_FIELDS, *NUMBER_FIELDS, *BOOL_FIELDS)
ROW_FIELD_SET = frozenset(ROW_FIELDS)

_TEXT_LIKE = frozenset(
    ("sentence", "transcript", "transcription", "normalized_text", "utterance", "content", "line")
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def check_mapping(mapping: Mapping[str, str]) -> None:
    """See that --map names fields of ours.

    Raises:
        PlanError: it does not.
    """
    for field in mapping:
        if field not in ROW_FIELD_SET:
            raise PlanError(
                f"--map names the field {field!r}; expected one of {', '.join(ROW_FIELDS)}"
                " (other columns are carried through as they are)"
            )


def field_names(columns: Sequence[str], mapping: Mapping[str, str]) -> list[list[str]]:
    """What each column of a table is called in a row: usually one name, its own.

    A column may be mapped to several fields. One that has the name of a field which another
    column is mapped to rides along as "NAME_column".
    """
    names = []
    for column in columns:
        mapped = [field for field, c in mapping.items() if c == column]
        own = f"{column}_column" if column in mapping else column
        names.append(mapped or [own])
    return names


def renamer(mapping: Mapping[str, str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """As `field_names`, for rows whose columns differ from one to the next."""
    if not mapping:
        return lambda row: row

    def rename(row: dict[str, Any]) -> dict[str, Any]:
        columns = list(row)
        names = field_names(columns, mapping)
        return {n: row[c] for c, own in zip(columns, names, strict=True) for n in own}

    return rename


def column_names(names: Iterable[str], mapping: Mapping[str, str]) -> list[str]:
    """The columns that the fields of a row were read from: `field_names` backwards."""
    columns = (
        mapping.get(n) or (own if (own := n.removesuffix("_column")) in mapping else n)
        for n in names
    )
    return list(dict.fromkeys(columns))


def require_text(source: str, columns: Sequence[str], mapping: Mapping[str, str]) -> None:
    """See that a table has a text column, and every column that --map names.

    Raises:
        CorpusError: it has not; with the columns found and the option to use.
    """
    for field, column in mapping.items():
        if column not in columns:
            raise _no_mapped_column(source, columns, field, column)
    if "text" not in mapping and "text" not in columns:
        raise no_text_column(source, columns, mapping)


def no_text_column(source: str, columns: Sequence[str], mapping: Mapping[str, str]) -> CorpusError:
    """The error for a file that calls its text something else than it, or --map, should."""
    if "text" in mapping:
        return _no_mapped_column(source, columns, "text", mapping["text"])
    guess = next((c for c in columns if c.lower() in _TEXT_LIKE), "COLUMN")
    return CorpusError(
        f'{source}: no column "text"; {_found(columns)};'
        f" name the one that holds the text, such as --map text={guess}"
    )


def _no_mapped_column(source: str, columns: Sequence[str], field: str, column: str) -> CorpusError:
    return CorpusError(f"{source}: --map {field}={column}: no column {column!r}; {_found(columns)}")


def _found(columns: Sequence[str]) -> str:
    return "columns found: " + (", ".join(columns) if columns else "none")


def from_cell(field: str, cell: str) -> Any:
    """The value of a CSV cell. What is no number stays text, for the row check to complain about.

    An empty cell is None.
    """
    if cell == "":
        return None
    if field in WHOLE_FIELDS or field in NUMBER_FIELDS:
        text = cell.strip()
        if _WHOLE.fullmatch(text):
            return int(text)
        return float(text) if _NUMBER.fullmatch(text) else cell
    if field in BOOL_FIELDS:
        return _BOOLS.get(cell.strip().lower(), cell)
    return cell


@lru_cache(maxsize=4096)
def near_field(name: str) -> str | None:
    """The field of ours that `name` is one slip away from, or None.

    A slip: another case, a hyphen or space for the underscore, or, in names of four characters
    and more, one character too many, too few, wrong, or two swapped.
    """
    if name in ROW_FIELD_SET:
        return None
    plain = re.sub(r"[-\s]", "_", name.strip()).lower()
    if plain in ROW_FIELD_SET:
        return plain
    if len(plain) < 4:
        return None
    return next((f for f in ROW_FIELDS if len(f) >= 4 and _one_slip(plain, f)), None)


def _one_slip(a: str, b: str) -> bool:
    if abs(len(a) - len(b)) > 1:
        return False
    if len(a) > len(b):
        a, b = b, a
    i = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    if len(a) < len(b):
        return a[i:] == b[i + 1 :]
    return a[i + 1 :] == b[i + 1 :] or (
        a[i : i + 2] == b[i : i + 2][::-1] and a[i + 2 :] == b[i + 2 :]
    )


def has_lone_surrogate(text: str) -> bool:
    """Whether `text` cannot be written as UTF-8."""
    if text.isascii():
        return False
    try:
        text.encode("utf8")
    except UnicodeEncodeError:
        return True
    return False
