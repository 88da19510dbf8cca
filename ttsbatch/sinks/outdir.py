"""OUT itself: is it ours, does it hold this run, and run.json."""

from __future__ import annotations

import functools
import json
import os
import platform
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ttsbatch import __version__
from ttsbatch.errors import PlanError, SinkError
from ttsbatch.plan import RunPlan
from ttsbatch.sinks.durable import sink_error
from ttsbatch.sinks.jsonlines import dump_json
from ttsbatch.types import ModelCard

_PACKAGES = ("numpy", "torch", "triton", "soundfile", "hibari-tts", "onnxruntime", "tokenizers")


def claim_folder(out: Path, make: bool = True) -> Path:
    """Create OUT and its ledger folder, or find that they are ours; returns the ledger folder.

    Args:
        out: the folder.
        make: False: only see that they could be created.

    Raises:
        SinkError: a file, somebody else's folder, or not writable.
    """
    ledger = out / "ledger"
    try:
        if out.is_dir():
            ours = (out / "run.json").is_file() or (ledger / "lock").is_file()
            if ours:
                read_run(out)
            elif any(p != ledger or any(ledger.iterdir()) for p in out.iterdir()):
                raise SinkError(
                    f"{out}: holds files that no run of ttsbatch wrote; "
                    "expected an empty or new folder, or the output of an earlier run"
                )
        elif out.exists():
            raise SinkError(f"{out}: is a file; expected a folder, or a name that is free")
        if make:
            ledger.mkdir(parents=True, exist_ok=True)
        there = next(p for p in (out, *out.absolute().parents) if p.exists())
        if not there.is_dir():
            raise SinkError(f"{there}: is a file; expected a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise SinkError(f"{there}: is not writable")
    except OSError as e:
        raise sink_error(e, out) from e
    return ledger


def read_run(out: Path) -> dict[str, Any] | None:
    """run.json, or None where there is none yet.

    Raises:
        SinkError: there is one that cannot be read.
    """
    path = out / "run.json"
    try:
        run = json.loads(path.read_text("utf8"))
        if isinstance(run, dict) and isinstance(run.get("settings"), dict):
            return run
    except FileNotFoundError:
        return None
    except OSError as e:
        raise SinkError(f"{path}: cannot read: {e.strerror or e}") from e
    except ValueError as e:
        raise SinkError(f"{path}: is damaged ({e}); expected the JSON of an earlier run") from e
    raise SinkError(f'{path}: has no "settings"; expected the JSON of an earlier run')


def check_settings(
    out: str, run: Mapping[str, Any], settings: Mapping[str, Any], model: str
) -> None:
    """Refuse a run whose settings differ from those that OUT was begun with.

    Args:
        out: in the message.
        run: its run.json.
        settings: of this run.
        model: the name of this run's.

    Raises:
        PlanError: another model, and every changed setting, with the old and the new value.
    """
    old, new = _flat(run["settings"]), _flat(settings)
    was_content, content = (s.pop("model_content_hash", None) for s in (old, new))
    is_other_model = was_content != content
    audio = (run.get("plan") or {}).get("audio") or {}
    if is_other_model and audio.get("sample_rate_hz") is None:
        old["sample_rate"] = new["sample_rate"] = None  # the model's own, not an option's
    changes = []
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was != now:
            changes.append(f"{name.replace('_', '-')} was {_show(was)}, now {_show(now)}")
    remedies = ["the old values"] if changes else []
    if is_other_model:
        before = (run.get("model") or {}).get("name")
        option = (run.get("plan") or {}).get("model")
        if before == model:
            change = (
                f"the content of model {_show(before)} was {str(was_content)[:12]}, now "
                f"{str(content)[:12]}: other weights or configuration"
            )
            remedy = "that model as it was"
        else:
            change = f"model was {_show(before)}, now {_show(model)}"
            remedy = "no --model" if option is None else f"--model {option}"
        changes, remedies = [change, *changes], [remedy, *remedies]
    if changes:
        raise PlanError(
            f"{out}: begun with other settings: {'; '.join(changes)}. Run with "
            f"{' and '.join(remedies)} to resume, or write to another folder"
        )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value) if isinstance(value, Mapping) else {name: value}
    return flat


def _show(value: Any) -> str:
    return "not given" if value is None else json.dumps(value, ensure_ascii=False)


def plan_of(run: Mapping[str, Any]) -> RunPlan | None:
    """The plan of a run.json; None where this version cannot read it."""
    try:
        return RunPlan.from_json(run.get("plan"))
    except PlanError:
        return None


def run_json(
    plan: RunPlan, card: ModelCard, settings: Mapping[str, Any], created: str | None = None
) -> bytes:
    """The content of run.json: plan, settings, model and versions; `created`: None is now."""
    run = {
        "ttsbatch": __version__,
        "created": created or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "model": {
            "name": card.name,
            "family": card.family,
            "path": card.path,
            "content_hash": card.content_hash,
            "num_parameters": card.num_parameters,
            "sample_rate_hz": card.sample_rate_hz,
            "frame_rate_hz": card.frame_rate_hz,
            "licence": card.licence,
        },
        "settings": settings,
        "plan": plan.to_json(),
        "folder": os.getcwd(),  # what the plan's relative names are relative to
        "versions": _versions(),
    }
    return (dump_json(run, indent=2) + "\n").encode("utf8")


@functools.cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
