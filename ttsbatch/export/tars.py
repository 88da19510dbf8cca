"""A plain tar, written member by member: the same members give the same bytes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path


def new_tar(path: Path) -> tarfile.TarFile:
    """An empty tar, open for `add_member`; to be used as a context manager."""
    return tarfile.open(path, "w", format=tarfile.PAX_FORMAT)


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Append a file, without time or owner."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
