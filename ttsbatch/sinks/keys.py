"""The resume key: two rows with the same key are the same audio.

Made of everything that decides what is heard, and of nothing else: not the line or the file that
a row was on, not `extra`, not `file_name`, not the device, not the shard.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from ttsbatch.plan import RunPlan
from ttsbatch.types import ModelCard, Sampling, Utterance

_CHUNK_BYTES = 1 << 20
_values = attrgetter(*(field.name for field in fields(Sampling)))  # `astuple` takes 10 us


def run_settings(plan: RunPlan, card: ModelCard) -> dict[str, Any]:
    """What must not change between the sessions of one OUT, as plain JSON values.

    The model counts by the hash of its content, so a moved checkpoint is still the same one.
    """
    settings = plan.settings() | {"save_codes": plan.output.save_codes}
    settings |= {
        "format": plan.audio.format,
        "sample_rate": plan.audio.rate_of(card.sample_rate_hz),
        "loudness": plan.audio.loudness_lufs,
        "layout": plan.output.layout,
    }
    settings |= {"model_content_hash": card.content_hash}
    settings.pop("model", None)
    return json.loads(json.dumps(settings))  # type: ignore[no-any-return]


def settings_fingerprint(settings: Mapping[str, Any]) -> str:
    """A short hash of the settings, the same for any order of the names."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def content_key(utterance: Utterance, settings_fingerprint: str) -> str:
    """32 hex digits that change if, and only if, the audio of the row may."""
    u = utterance
    reference = None if u.ref_audio is None else file_hash(u.ref_audio)
    parts = [
        settings_fingerprint,
        u.text,
        u.spoken_text,
        u.voice,
        u.language,
        u.seed,
        u.instruct,
        reference,
        u.ref_text,
        _values(u.sampling),
        u.max_seconds,
        u.split,
    ]
    # ASCII JSON: one unambiguous spelling, lone surrogates included
    return hashlib.blake2b(json.dumps(parts).encode("ascii"), digest_size=16).hexdigest()


def file_hash(path: str) -> str:
    """The content hash of a file; read again only when its size or time changes."""
    try:
        stat = os.stat(path)
        return _file_hash(path, stat.st_size, stat.st_mtime_ns)
    except OSError:
        return f"unreadable {path}"  # the row fails where its reference is read, with a message


@functools.lru_cache(maxsize=4096)
def _file_hash(path: str, size_bytes: int, mtime_ns: int) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
