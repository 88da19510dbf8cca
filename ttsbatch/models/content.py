"""What identifies the content of a checkpoint folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

SUFFIXES = (".json", ".txt", ".safetensors", ".pth", ".bin")
EDGE_BYTES = 1 << 20


def content_hash(folder: Path) -> str:
    """Names, sizes and the first and last MiB of the weights, and the small files whole.

    Reading 4 GB to start a run would cost seconds; a changed checkpoint of the same size differs
    in its header (which holds every tensor's offsets) or in its last tensors.
    """
    h = hashlib.blake2b(digest_size=16)
    for file in sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES):
        size = file.stat().st_size
        h.update(f"{file.relative_to(folder).as_posix()}:{size}\n".encode())
        with file.open("rb") as f:
            h.update(f.read(EDGE_BYTES))
            if size > EDGE_BYTES:
                f.seek(max(EDGE_BYTES, size - EDGE_BYTES))
                h.update(f.read(EDGE_BYTES))
    return h.hexdigest()
