"""Parquet, a record batch at a time; a row's line is its number, from 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ttsbatch.corpus.fields import field_names, require_text
from ttsbatch.corpus.open import CorpusFile, open_seekable
from ttsbatch.corpus.plainjson import plain_json
from ttsbatch.errors import CorpusError
from ttsbatch.plan import CorpusPlan
from ttsbatch.types import Failure, Record

_BATCH_ROWS = 4096


class _BadText(bytes):
    """A string value that is no UTF-8."""


def read_parquet(file: CorpusFile, plan: CorpusPlan) -> Iterator[Record | Failure]:
    """The rows of a file, in order. Dictionary columns are unpacked, nulls are None.

    Raises:
        CorpusError: no Parquet, damaged, or without a text column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_seekable(file) as stream, pq.ParquetFile(stream) as table:
            columns = list(table.schema_arrow.names)
            if twice := sorted({c for c in columns if columns.count(c) > 1}):
                raise CorpusError(f"{file.source}: has a column twice: {', '.join(twice)}")
            require_text(file.source, columns, plan.mapping)
            names = field_names(columns, plan.mapping)
            source, base = file.source, file.base
            number = 0
            for batch in table.iter_batches(batch_size=_BATCH_ROWS):
                for fields, bad in _rows(batch, names):
                    number += 1
                    if bad:
                        yield _bad_unicode(source, number, fields)
                    else:
                        yield Record(source, number, fields, base)
    except pa.ArrowException as e:
        raise CorpusError(f"{file.source}: cannot be read as Parquet: {e}") from e


def _rows(batch: Any, names: list[list[str]]) -> Iterator[tuple[dict[str, Any], bool]]:
    keys = [name for own in names for name in own]
    values = []
    spoilt: list[list[Any]] = []
    for column, own in zip(batch.columns, names, strict=True):
        cells, has_bad = _cells(column)
        values += [cells] * len(own)
        if has_bad:
            spoilt.append(cells)
    rows = (dict(zip(keys, row, strict=True)) for row in zip(*values, strict=True))
    if not spoilt:
        return ((row, False) for row in rows)
    return ((row, any(type(c[i]) is _BadText for c in spoilt)) for i, row in enumerate(rows))


def _cells(column: Any) -> tuple[list[Any], bool]:
    """A column as Python values, and whether any of its strings is no UTF-8 (a `_BadText`)."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return column.to_pylist(), False
    except UnicodeDecodeError:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            large = pa.types.is_large_string(column.type)
            raw = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
            return [_text(x) for x in raw], True
        return [_scalar(x) for x in column], True
    except (ValueError, OverflowError):  # a timestamp that Python's datetime cannot hold
        return [_scalar(x) for x in column], False


def _text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode("utf8")
    except UnicodeDecodeError:
        return _BadText(value)


def _scalar(value: Any) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return _BadText(b"")
    except (ValueError, OverflowError):
        return str(value)


def _bad_unicode(source: str, number: int, fields: dict[str, Any]) -> Failure:
    names = [k for k, v in fields.items() if type(v) is _BadText]
    row = {
        k: v.decode("utf8", "backslashreplace") if isinstance(v, _BadText) else plain_json(v)
        for k, v in fields.items()
    }
    message = f"not UTF-8: {', '.join(names)}"
    return Failure(source, number, None, "read", "bad_unicode", message, row)
