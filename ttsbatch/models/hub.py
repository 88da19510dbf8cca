"""Checkpoint folders, local or from the model hub; `huggingface_hub` is imported where used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ttsbatch.errors import ModelError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
SMALL_FILES = ["*.json", "*.txt"]  # configs, vocabulary, merges; also in subfolders
WEIGHT_FILES = [*SMALL_FILES, "*.safetensors", "*.pth"]


def is_hub_id(name: str) -> bool:
    """Whether a name has the form `org/name`."""
    return _HUB_ID.fullmatch(name) is not None


def fetch_config(repo: str) -> Path:
    """The folder with the small files of a hub id; its name is the commit.

    Raises:
        ModelError: no such repository, or it cannot be reached and is not in the cache.
    """
    return _snapshot(repo, allow_patterns=SMALL_FILES)


def fetch_weights(repo: str, commit: str) -> Path:
    """The same folder with the weights in it.

    Raises:
        ModelError: as `fetch_config`.
    """
    return _snapshot(repo, revision=commit, allow_patterns=WEIGHT_FILES)


def read_model_type(folder: Path) -> str:
    """The `model_type` of a checkpoint's config.json, or the `architecture` where there is none.

    Raises:
        ModelError: no such file, not JSON, neither of them.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf8"))
    except FileNotFoundError:
        raise ModelError(f"{folder}: no config.json; expected the folder of a checkpoint") from None
    except (OSError, ValueError) as e:
        raise ModelError(f"{path}: cannot be read as JSON: {e}") from e
    keys = config if isinstance(config, dict) else {}
    model_type = keys.get("model_type", keys.get("architecture"))
    if not isinstance(model_type, str):
        raise ModelError(f"{path}: model_type is {model_type!r}, expected a name")
    return model_type


def _snapshot(repo: str, **options: Any) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repo, **options))
    except LocalEntryNotFoundError as e:
        raise ModelError(
            f"{repo}: no such folder here, and the model hub cannot be reached; "
            "expected a connection, or a folder that holds the checkpoint"
        ) from e
    except (HfHubHTTPError, OSError, ValueError) as e:
        reason = str(e).strip().splitlines() or [type(e).__name__]
        raise ModelError(f"{repo}: cannot be downloaded from the model hub: {reason[0]}") from e
