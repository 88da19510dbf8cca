"""A recipe: TOML with the flags' own names (`max-seconds` or `max_seconds`)."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

from ttsbatch.errors import PlanError

FIELDS: dict[str, tuple[type, ...]] = {
    "corpus": (list, str),
    "out": (str,),
    "model": (str,),
    "voice": (str,),
    "language": (str,),
    "instruct": (str,),
    "ref_audio": (str,),
    "ref_text": (str,),
    "seed": (int,),
    "temperature": (float, int),
    "top_k": (int,),
    "top_p": (float, int),
    "repetition_penalty": (float, int),
    "guidance": (float, int),
    "steps": (int,),
    "max_seconds": (float, int),
    "normalize": (bool,),
    "split": (bool,),
    "device": (str,),
    "dtype": (str,),
    "slots": (int, str),
    "format": (str,),
    "sample_rate": (int,),
    "loudness": (float, int),
    "layout": (str,),
    "shard_size": (int,),
    "map": (dict, list),
    "limit": (int,),
    "retries": (int,),
    "unsupported_language": (str,),
    "delimiter": (str,),
    "header": (bool,),
    "save_codes": (bool,),
    "fail_fast": (bool,),
    "check_asr": (str,),
    "max_wer": (float, int),
    "check_speaker": (str,),
    "min_similarity": (float, int),
    "check_dnsmos": (str,),
    "min_mos": (float, int),
}
"""Every name that a recipe may hold, with the TOML types it may have."""


def read_recipe(path: Path) -> dict[str, Any]:
    """The values of a recipe file, by field name.

    Raises:
        PlanError: unreadable, not TOML, an unknown key (the nearest is suggested), a wrong type.
    """
    try:
        raw = tomllib.loads(path.read_text("utf8"))
    except OSError as e:
        raise PlanError(f"{path}: cannot read the recipe: {e.strerror or e}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise PlanError(f"{path}: not TOML: {e}") from e
    values: dict[str, Any] = {}
    for key, value in raw.items():
        name = key.replace("-", "_")
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise PlanError(f"{path}: unknown key {key!r}{hint}")
        allowed = FIELDS[name]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            want = " or ".join(t.__name__ for t in allowed)
            raise PlanError(f"{path}: {key} is {value!r}, expected {want}")
        values[name] = value
    return values
