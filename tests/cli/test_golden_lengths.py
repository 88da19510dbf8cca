"""`ttsbatch synth` on each tiny checkpoint, greedy: golden codes, audio of the golden length."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from tests.parity.qwen3 import FIXTURE, INDEX, goldens
from ttsbatch.cli.app import app

CASES = ["cv_b3", "cv_dialect_b4", "cv_instruct_b3", "vd_b3", "base_xvec_b3", "base_icl_b3"]


def corpus_rows(case: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of a golden case as a user would write them."""
    spec = INDEX[case]
    rows = []
    for n in range(spec["rows"]):
        own = {k: v[n] if isinstance(v, list) else v for k, v in spec["inputs"].items()}
        row = {"id": str(n), "text": own["text"], "voice": own.get("speaker")}
        row["language"] = None if own["language"] == "Auto" else own["language"]
        row["instruct"] = own.get("instruct") or None
        if "ref_audio" in own:
            clip = folder / f"{own['ref_audio']}.wav"
            soundfile.write(clip, goldens("waves")[own["ref_audio"]], 24000, subtype="FLOAT")
            row |= {"ref_audio": clip.name, "ref_text": own.get("ref_text")}
        rows.append({k: v for k, v in row.items() if v is not None})
    return rows


@pytest.mark.parametrize("case", CASES)
def test_synth_gives_the_golden_codes_and_audio_of_the_golden_length(
    case: str, tmp_path: Path, write_rows: Callable[..., Path]
) -> None:
    corpus = write_rows(*corpus_rows(case, tmp_path))
    out = tmp_path / "out"
    cap_s = (INDEX[case]["generate_kwargs"]["max_new_tokens"] - 1) / 12.5
    options = ["--model", str(FIXTURE / INDEX[case]["checkpoint"]), "--temperature", "0"]
    options += ["--max-seconds", str(cap_s), "--retries", "0", "--save-codes", "--quiet"]
    options += ["--no-normalize"]  # the goldens are of the texts as they are
    result = CliRunner().invoke(app, ["synth", str(corpus), "-o", str(out), *options])
    assert result.exit_code == 0, result.output
    lines = [json.loads(x) for x in (out / "manifest.jsonl").read_text("utf8").splitlines()]
    made = {x["id"]: x for x in lines}
    for n, golden in enumerate(INDEX[case]["row"]):
        line = made[str(n)]
        assert (line["num_frames"], line["num_samples"]) == (
            golden["frames"],
            golden["wav_samples"],
        )
        codes = np.load(out / line["codes_filepath"])
        np.testing.assert_array_equal(codes, goldens(case)[f"row{n}.codes"])
        assert soundfile.info(out / line["audio_filepath"]).frames == golden["wav_samples"]
        assert line["finish_reason"] == ("stop" if golden["ended_with_eos"] else "length")
