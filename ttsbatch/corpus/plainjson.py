"""Any value that a corpus can hold -> a value that strict JSON can hold."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def plain_json(value: Any) -> Any:
    """`value` with everything that JSON has no word for replaced.

    NaN and infinity become null, dates and times their ISO 8601 form, decimals their digits as a
    string, bytes their text (base64 where they are no UTF-8), arrays lists, keys strings.
    Strings are left alone, lone surrogates too: whoever writes them escapes them.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain_json(x) for k, x in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_json(x) for x in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _plain_bytes(bytes(value))
    if isinstance(value, (np.generic, np.ndarray)):
        return plain_json(value.tolist())
    if isinstance(value, (dt.date, dt.time)):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    return str(value)


def _plain_bytes(value: bytes) -> str:
    try:
        return value.decode("utf8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")
