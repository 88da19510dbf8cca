"""The tiny Qwen3-TTS checkpoints and their golden cases, as prompts and as rows of the loop."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.parity.loops import by_id, run_loop
from ttsbatch.engine.budget import make_job
from ttsbatch.engine.decode import FinishedFrames
from ttsbatch.models.protocol import PreparedPrompt
from ttsbatch.models.qwen3_tts.card import open_card
from ttsbatch.models.qwen3_tts.model import Qwen3TTS, load
from ttsbatch.models.qwen3_tts.prompt import Reference, Spoken
from ttsbatch.types import Sampling, Segment, Utterance

FIXTURE = Path(__file__).parent.parent / "data" / "qwen3_tts_tiny"
INDEX = json.loads((FIXTURE / "index.json").read_text("utf8"))["cases"]
GENERATIONS = [name for name, case in INDEX.items() if "generate_kwargs" in case]
CHECKPOINTS = ("custom-voice", "voice-design", "base")


@cache
def model(checkpoint: str, device: str = "cpu") -> Qwen3TTS:
    """A tiny checkpoint in fp32."""
    return load(open_card(str(FIXTURE / checkpoint)), torch.device(device), torch.float32)


@cache
def goldens(name: str) -> dict[str, np.ndarray]:
    """The arrays of a golden file."""
    with np.load(FIXTURE / "goldens" / f"{name}.npz") as f:
        return dict(f)


@dataclass(frozen=True)
class Row:
    """One row of a golden case."""

    case: str
    index: int
    checkpoint: str
    prompt: PreparedPrompt

    def golden(self, name: str) -> np.ndarray | None:
        """An array of this row, where the file has it."""
        return goldens(self.case).get(f"row{self.index}.{name}")


def rows(case: str, device: str = "cpu", temperature: float | None = 0.0) -> list[Row]:
    """The rows of a case as prompts; greedy, or at a temperature (None: the checkpoint's)."""
    spec = INDEX[case]
    inputs, options = spec["inputs"], spec["generate_kwargs"]
    m = model(spec["checkpoint"], device)
    out = []
    for i in range(spec["rows"]):

        def own(key: str, default: Any = None, i: int = i) -> Any:
            value = inputs.get(key, default)
            return value[i] if isinstance(value, list) else value

        frames = options["max_new_tokens"] - 1
        utterance = Utterance(
            id=f"{case}/{i}",
            text=own("text"),
            spoken_text=own("text"),
            source=case,
            line=i + 1,
            voice=own("speaker"),
            language=own("language"),
            seed=1000 * i + len(case),
            sampling=Sampling(temperature, None, None, options.get("repetition_penalty")),
            max_seconds=frames / m.spec.frame_rate_hz,
        )
        streaming = not own("non_streaming_mode", spec["api"] != "voice_clone")
        spoken = Spoken(
            text=own("text"),
            language=_language(own("language")),
            speaker=own("speaker", "").lower() or None,
            instruct=own("instruct"),
            reference=_reference(own("ref_audio"), m),
            reference_text=None if own("x_vector_only_mode", False) else own("ref_text"),
            streaming_text=streaming,
        )
        segment = Segment(utterance, 0, own("text"))
        out.append(Row(case, i, spec["checkpoint"], m.prompt(segment, spoken)))
    return out


def all_rows(checkpoint: str, device: str = "cpu", temperature: float | None = 0.0) -> list[Row]:
    """Every row of every case of a checkpoint."""
    names = [n for n in GENERATIONS if INDEX[n]["checkpoint"] == checkpoint]
    return [r for n in names for r in rows(n, device, temperature)]


def generate(
    prompts: list[Row], num_slots: int, device: str = "cpu", use_graphs: bool = True
) -> dict[str, FinishedFrames]:
    """Decode rows of one checkpoint in the order given; results by row id."""
    m = model(prompts[0].checkpoint, device)
    jobs = [make_job(r.prompt, m.spec) for r in prompts]
    return by_id(run_loop(m, jobs, num_slots, use_graphs, max_positions=256))


def check(row: Row, finished: FinishedFrames) -> None:
    """Codes, frame count and the way it ended are the golden ones."""
    golden = row.golden("codes")
    np.testing.assert_array_equal(finished.frames.cpu().numpy(), golden)
    ended = INDEX[row.case]["row"][row.index]["ended_with_eos"]
    assert finished.finish_reason == ("stop" if ended else "length")


def _language(name: str) -> str | None:
    return None if name.lower() == "auto" else name.lower()


def _reference(wave: str | None, m: Qwen3TTS) -> Reference | None:
    if wave is None:
        return None
    samples = goldens("waves")[wave]
    per_frame = m.config.codec.encoder.samples_per_frame
    return Reference(wave, samples, -(-len(samples) // per_frame))
