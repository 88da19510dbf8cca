"""One JSON object a line, in strict UTF-8, whatever a corpus carried along.

Beyond `json.dumps`: no NaN (it is no JSON; becomes null), lone surrogates and the line separators
that other readers split at (U+0085, U+2028, U+2029) only as escapes, Parquet's dates, decimals
and bytes as text.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Set
from typing import Any

_ESCAPED = re.compile("[\x85\u2028\u2029\ud800-\udfff]")


def encode_line(value: Mapping[str, Any]) -> bytes:
    """A JSON object and a newline, as UTF-8."""
    return dump_json(value).encode("utf8") + b"\n"


def dump_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON text that encodes as UTF-8 and holds no line break but those of `indent`."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain, indent=indent)
    except (ValueError, TypeError):  # NaN, or a key that is no string: rare, so paid for only here
        text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent)
    return _ESCAPED.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def plain(value: Any) -> Any:
    """The nearest value that JSON has: text of dates and decimals, base64 of bytes, null of NaN."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k if isinstance(k, str) else str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Set):
        return sorted((plain(v) for v in value), key=repr)
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return plain(value.tolist())
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
