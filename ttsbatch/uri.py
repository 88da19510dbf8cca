"""Names that are URIs: what `pyarrow.fs` opens, for input and output."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SECRET = re.compile(r"//[^/@]*@")


def is_uri(name: str) -> bool:
    """Whether a name has a scheme, and so is opened by `pyarrow.fs`."""
    return _URI.match(name) is not None


def shown(uri: str) -> str:
    """A URI for messages: no keys, no options, no slash at its end."""
    scheme, colon, rest = _SECRET.sub("//", uri.partition("?")[0]).partition("://")
    return f"{scheme}{colon}{rest.rstrip('/')}" if colon else scheme.rstrip("/")


def local_path(out: Path | str) -> Path | None:
    """The path of a local file or folder, `file://` included; None: it is behind another URI."""
    if isinstance(out, Path) or not is_uri(out):
        return Path(out)
    return Path(unquote(out[len("file://") :])) if out.startswith("file:///") else None
