"""RunPlan: what run.json keeps of it is all of it."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from ttsbatch.errors import PlanError
from ttsbatch.plan import RunPlan, make_plan

EVERYTHING = {
    "corpus": ["a.jsonl", "b.csv"],
    "model": "hibari",
    "voice": "heart",
    "language": "en",
    "instruct": "calm",
    "ref_audio": "a.wav",
    "ref_text": "hi",
    "seed": 3,
    "temperature": 0.5,
    "top_k": 7,
    "top_p": 0.9,
    "repetition_penalty": 1.2,
    "guidance": 1.5,
    "steps": 7,
    "max_seconds": 9.5,
    "normalize": False,
    "split": False,
    "device": "cpu",
    "dtype": "float32",
    "slots": 3,
    "format": "flac",
    "sample_rate": 16_000,
    "loudness": -23.0,
    "layout": "tar",
    "shard_size": 77,
    "map": {"text": "sentence"},
    "limit": 5,
    "retries": 1,
    "unsupported_language": "warn",
    "delimiter": ";",
    "header": False,
    "save_codes": True,
    "fail_fast": True,
    "check_asr": "whisper",
    "max_wer": 0.2,
    "check_speaker": "speaker.onnx",
    "min_similarity": 0.4,
    "check_dnsmos": "dnsmos.onnx",
    "min_mos": 2.0,
}


def leaves(plan: Any, name: str = "") -> dict[str, Any]:
    """Every value below a plan, by its dotted name."""
    if not is_dataclass(plan):
        return {name: plan}
    out: dict[str, Any] = {}
    for f in fields(plan):
        out |= leaves(getattr(plan, f.name), f"{name}.{f.name}")
    return out


def test_a_plan_survives_run_json_with_every_setting() -> None:
    plan = make_plan(EVERYTHING)
    default = leaves(make_plan({"corpus": "other.jsonl"}))
    changed = [n for n, v in leaves(plan).items() if v != default[n]]
    assert sorted(set(default) - set(changed)) == [], "each value differs from its default"
    assert RunPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_of_another_version_is_refused() -> None:
    values = make_plan(EVERYTHING).to_json()
    del values["audio"]
    with pytest.raises(PlanError, match="not one that this version reads"):
        RunPlan.from_json(values)
