"""The model families that the tests of whole runs go through; a new one is an entry of `FAMILIES`.

Each entry is a checkpoint that is quick on a CPU, with what only it can do and what it refuses.
What is known from its card (options, voices, codes, frame rate) is read there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from typer.testing import CliRunner, Result

from ttsbatch import models
from ttsbatch.cli.app import app
from ttsbatch.corpus.rows import RowChecker
from ttsbatch.models.protocol import CodecLM
from ttsbatch.plan import RowDefaults
from ttsbatch.types import Demand, ModelCard, Record, Utterance

DATA = Path(__file__).parent / "data"
REFERENCE, PROMPT = (str(DATA / "voxcpm2_tiny" / "audio" / f"{n}.wav") for n in ("ref", "prompt"))
NO_AUDIO = str(DATA / "voxcpm2_tiny" / "config.json")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """A checkpoint and what to ask of it."""

    name: str
    model: str | None  # --model
    sample_rate_hz: int
    rows: tuple[Row, ...]
    """Every kind of row that it makes; `frames` stands for `max_seconds`.

    `short` is plain, `same` has its text and another seed, `one` is the shortest, and `long` has
    the most frames.
    """
    edits: Mapping[str, Row]  # name -> fields that make another row of `short`
    changes: tuple[tuple[str, ...], ...]  # options that make another run
    refused: Mapping[str, tuple[Row, str]]  # id -> a row that is not made, and the reason
    refused_options: tuple[tuple[str, ...], ...]  # exit 2
    tolerance_lsb: int = 0  # by which samples differ with what is spoken beside a row
    frame_atol: float = 0.0  # by which its frames do
    other_sampling: tuple[Row, ...] = field(default=())  # settings that are far from the defaults

    @property
    def card(self) -> ModelCard:
        """Of the checkpoint."""
        return _card(self.model)

    @property
    def model_option(self) -> tuple[str, ...]:
        """--model, where it needs one."""
        return () if self.model is None else ("--model", self.model)

    @property
    def has_codes(self) -> bool:
        """Whether it takes --save-codes."""
        return self.card.num_codebooks > 0

    @property
    def plain(self) -> Row:
        """What a row needs beside its text."""
        return {k: v for k, v in self.row("short").items() if k in ("voice", "ref_audio")}

    def row(self, name: str) -> Row:
        """One of `rows`, as it is written in a corpus."""
        return self.written(next(r for r in self.rows if r["id"] == name))

    def written(self, row: Row) -> Row:
        """A row with its frames as seconds."""
        row = dict(row)
        frames, rate_hz = row.pop("frames", None), self.card.frame_rate_hz
        return row if frames is None or rate_hz is None else row | {"max_seconds": frames / rate_hz}

    def corpus(self) -> list[Row]:
        """All `rows`, as they are written in a corpus."""
        return [self.written(r) for r in self.rows]

    def utterance(self, name: str, **fields: Any) -> Utterance:
        """One of `rows` with other fields, checked as those of a corpus are."""
        record = Record("rows.jsonl", 1, self.row(name) | fields, ".")
        found = RowChecker(RowDefaults(), self.card).resolve(record)
        assert isinstance(found, Utterance), found
        return found

    def load(self, device: str = "cpu") -> CodecLM:
        """The checkpoint in fp32, loaded once."""
        return _load(self.model, device)

    def synth(self, corpus: Path, out: Path, *options: str, exit_code: int = 0) -> Result:
        """`ttsbatch synth` on the checkpoint, without retries of flagged rows."""
        codes = ("--save-codes",) if self.has_codes else ()
        usual = ("--retries", "0", "--quiet", "--slots", "2")
        return call(
            "synth", str(corpus), "-o", str(out), *self.model_option, *codes, *usual, *options,
            exit_code=exit_code,
        )  # fmt: skip


@cache
def _card(model: str | None) -> ModelCard:
    return models.open_card(model)


@cache
def _load(model: str | None, device: str) -> CodecLM:
    load = models.FAMILIES[_card(model).family].load_codec_lm
    assert load is not None
    return load(_card(model), torch.device(device), torch.float32, Demand())


def call(*arguments: str | Path, exit_code: int | None = None) -> Result:
    """A command run in this process; checks how it ends."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert exit_code is None or result.exit_code == exit_code, result.output
    return result


def write_corpus(path: Path, rows: Sequence[Row]) -> Path:
    """A JSONL file of rows."""
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), "utf8")
    return path


def lines(path: Path) -> dict[str, dict[str, Any]]:
    """The lines of a manifest or a list of failures, by id."""
    found = [json.loads(x) for x in path.read_text("utf8").splitlines()]
    by_id = {line["id"]: line for line in found}
    assert len(by_id) == len(found), "an id is there twice"
    return by_id


def made_rows(out: Path) -> dict[str, dict[str, Any]]:
    """Manifest lines by id."""
    return lines(out / "manifest.jsonl")


def samples(out: Path) -> dict[str, np.ndarray]:
    """id -> [N] samples of its file, for an OUT of files."""
    found = {}
    for name, line in made_rows(out).items():
        read, rate_hz = soundfile.read(out / line["audio_filepath"], dtype="int16")
        assert (len(read), rate_hz) == (line["num_samples"], line["sample_rate"])
        found[name] = read.astype(int)
    return found


def differ(one: np.ndarray, other: np.ndarray, tolerance_lsb: int = 0) -> bool:
    """Whether two clips are not the same."""
    return len(one) != len(other) or bool(np.abs(one - other).max() > tolerance_lsb)


def unlike(one: Path, other: Path, family: Family) -> set[str]:
    """The ids of rows that two OUTs do not both have, the same but for float sums."""
    a, b = samples(one), samples(other)
    both = a.keys() & b.keys()
    different = {i for i in both if differ(a[i], b[i], family.tolerance_lsb)}
    return different | (a.keys() ^ b.keys()) | {i for i in both if codes(one, i) != codes(other, i)}


def codes(out: Path, name: str) -> bytes | None:
    """A row's codes, where they were kept."""
    path = made_rows(out)[name].get("codes_filepath")
    return None if path is None else (out / path).read_bytes()


ENDLESS: Row = {"text": "hello " * 20_000, "split": False}
"""More than the positions of any checkpoint that has them."""

HIBARI = Family(
    name="hibari",
    model=None,
    sample_rate_hz=24_000,
    rows=(
        {"id": "short", "text": "Yes."},
        {"id": "one", "text": "No."},
        {"id": "long", "text": "The boat leaves at nine, before the storm."},
        {"id": "same", "text": "Yes.", "seed": 5},
        {"id": "english", "text": "Good morning.", "language": "English", "voice": "Heart"},
        {"id": "digits", "text": "Call 555."},
    ),
    edits={"text": {"text": "No, no."}},
    changes=(("--seed", "5"), ("--sample-rate", "16000")),
    refused={
        "sampled": ({"temperature": 0.5}, "unsupported_option"),
        "guided": ({"guidance": 2.0}, "unsupported_option"),
        "cloned": ({"ref_audio": REFERENCE}, "unsupported_option"),
        "nobody": ({"voice": "nobody"}, "unknown_voice"),
        "german": ({"language": "de"}, "unsupported_language"),
    },
    refused_options=(("--top-k", "5"), ("--steps", "4"), ("--save-codes",), ("--voice", "nobody")),
)

_SAMPLED: dict[str, tuple[Row, str]] = {
    "cold": ({"temperature": -1}, "bad_value"),
    "wild": ({"top_p": 1.5}, "bad_value"),
    "guided": ({"guidance": 2.0}, "unsupported_option"),
    "solved": ({"steps": 4}, "unsupported_option"),
    "brief": ({"max_seconds": 0.07}, "bad_value"),
}
_WILD: Row = {"temperature": 3.0, "top_k": 5, "top_p": 0.5, "repetition_penalty": 2.0}

QWEN3_CUSTOM_VOICE = Family(
    name="qwen3-custom-voice",
    model=str(DATA / "qwen3_tts_tiny" / "custom-voice"),
    sample_rate_hz=24_000,
    rows=(
        {"id": "short", "text": "Hi.", "voice": "ryan", "language": "en", "seed": 11, "frames": 3},
        {"id": "one", "text": "Yes, one frame.", "voice": "serena", "seed": 12, "frames": 1},
        {
            "id": "long",
            "text": "A much longer line, of many more words than the others have.",
            "voice": "vivian",
            "language": "en",
            "seed": 13,
            "frames": 14,
        },
        {"id": "same", "text": "Hi.", "voice": "ryan", "language": "en", "seed": 16, "frames": 3},
        {"id": "german", "text": "Guten Morgen!", "voice": "ryan", "language": "de", "frames": 4},
        {"id": "chinese", "text": "你好，世界。", "voice": "eric", "language": "zh", "frames": 6},
        {"id": "dialect", "text": "吃了吗？", "voice": "dylan", "seed": 17, "frames": 2},
        {"id": "told", "text": "At 7:45.", "voice": "vivian", "instruct": "whisper", "frames": 8},
    ),
    edits={
        "text": {"text": "Hello."},
        "voice": {"voice": "serena"},
        "language": {"language": "de"},
        "instruct": {"instruct": "sad"},
        "seed": {"seed": 99},
        "temperature": {"temperature": 0.2},
    },
    changes=(("--seed", "5"), ("--temperature", "0.5"), ("--instruct", "sad")),
    refused={
        **_SAMPLED,
        "nobody": ({"voice": "nobody"}, "unknown_voice"),
        "cloned": ({"ref_audio": REFERENCE}, "unsupported_option"),
        "endless": (ENDLESS, "too_long"),
    },
    refused_options=(("--ref-audio", REFERENCE), ("--steps", "4"), ("--top-p", "0")),
    tolerance_lsb=1,
    other_sampling=(_WILD,),
)

QWEN3_BASE = Family(
    name="qwen3-base",
    model=str(DATA / "qwen3_tts_tiny" / "base"),
    sample_rate_hz=24_000,
    rows=(
        {"id": "short", "text": "Hi.", "ref_audio": REFERENCE, "seed": 11, "frames": 3},
        {"id": "one", "text": "Yes.", "ref_audio": PROMPT, "seed": 12, "frames": 1},
        {
            "id": "long",
            "text": "A longer line than the others have.",
            "ref_audio": PROMPT,
            "ref_text": "What is said there.",
            "seed": 13,
            "frames": 12,
        },
        {"id": "same", "text": "Hi.", "ref_audio": REFERENCE, "seed": 16, "frames": 3},
        {
            "id": "continued",
            "text": "你好。",
            "ref_audio": REFERENCE,
            "ref_text": "Yes.",
            "language": "zh",
            "frames": 5,
        },
    ),
    edits={
        "text": {"text": "Hello."},
        "reference": {"ref_audio": PROMPT},
        "in context": {"ref_text": "Yes."},
        "top_k": {"top_k": 2},
    },
    changes=(("--seed", "5"), ("--top-k", "3"), ("--ref-text", "No.", "--ref-audio", PROMPT)),
    refused={
        **_SAMPLED,
        "unvoiced": ({"ref_audio": None}, "ref_missing"),
        "missing": ({"ref_audio": "none.wav"}, "ref_missing"),
        "no audio": ({"ref_audio": NO_AUDIO}, "ref_unreadable"),
        "both": ({"voice": "ryan"}, "ref_and_voice"),
        "told": ({"instruct": "sad"}, "unsupported_option"),
        "endless": (ENDLESS, "too_long"),
    },
    refused_options=(
        ("--instruct", "sad"),
        ("--guidance", "2"),
        ("--voice", "ryan"),
        ("--ref-audio", "none.wav"),
        ("--ref-text", "Yes."),
    ),
    tolerance_lsb=1,
    other_sampling=(_WILD,),
)

VOXCPM2 = Family(
    name="voxcpm2",
    model=str(DATA / "voxcpm2_tiny"),
    sample_rate_hz=48_000,
    rows=(
        {"id": "short", "text": "hello.", "seed": 11, "frames": 3},
        {"id": "one", "text": "a", "seed": 12, "frames": 1},
        {"id": "long", "text": "hello world, hello world today.", "seed": 13, "frames": 14},
        {"id": "same", "text": "hello.", "seed": 16, "frames": 3},
        {"id": "chinese", "text": "你好世界.", "language": "zh", "guidance": 3.0, "frames": 6},
        {"id": "coarse", "text": "今天!", "seed": 15, "steps": 4, "frames": 5},
        {"id": "unguided", "text": "hello.", "seed": 11, "guidance": 1.0, "frames": 4},
        {"id": "told", "text": "hello.", "instruct": "soft", "seed": 2, "frames": 5},
        {"id": "voiced", "text": "hello 你好.", "ref_audio": REFERENCE, "seed": 3, "frames": 5},
        {
            "id": "continued",
            "text": "today!",
            "ref_audio": PROMPT,
            "ref_text": "今天 ",
            "seed": 4,
            "frames": 5,
        },
    ),
    edits={
        "text": {"text": "hello world."},
        "seed": {"seed": 99},
        "instruct": {"instruct": "soft"},
        "reference": {"ref_audio": REFERENCE},
        "in context": {"ref_audio": REFERENCE, "ref_text": "hello."},
        "guidance": {"guidance": 3.0},
        "steps": {"steps": 4},
    },
    changes=(("--seed", "5"), ("--guidance", "3"), ("--steps", "4"), ("--instruct", "soft")),
    refused={
        "sampled": ({"temperature": 0.5}, "unsupported_option"),
        "best": ({"top_k": 5}, "unsupported_option"),
        "penalty": ({"repetition_penalty": 1.1}, "unsupported_option"),
        "wild": ({"guidance": -1}, "bad_value"),
        "one step": ({"steps": 1}, "bad_value"),
        "many steps": ({"steps": 101}, "bad_value"),
        "half a step": ({"steps": 2.5}, "wrong_type"),
        "brief": ({"max_seconds": 0.15}, "bad_value"),
        "nobody": ({"voice": "Ryan"}, "unknown_voice"),
        "both": ({"ref_audio": REFERENCE, "voice": "Ryan"}, "ref_and_voice"),
        "missing": ({"ref_audio": "none.wav"}, "ref_missing"),
        "no audio": ({"ref_audio": NO_AUDIO}, "ref_unreadable"),
        "text only": ({"ref_text": "hello."}, "ref_missing"),
        "told in context": (
            {"ref_audio": REFERENCE, "ref_text": "hello.", "instruct": "soft"},
            "unsupported_option",
        ),
        "endless": (ENDLESS, "too_long"),
    },
    refused_options=(
        ("--save-codes",),
        ("--top-k", "5"),
        ("--voice", "Ryan"),
        ("--steps", "1"),
        ("--guidance", "-1"),
        ("--ref-text", "hello."),
        ("--instruct", "soft", "--ref-audio", REFERENCE, "--ref-text", "hello."),
    ),
    tolerance_lsb=2,
    frame_atol=1e-4,  # the fixture's own bound
    other_sampling=({"guidance": 6.0, "steps": 2}, {"guidance": 0.0}),
)

FAMILIES = (HIBARI, QWEN3_CUSTOM_VOICE, QWEN3_BASE, VOXCPM2)
CODEC_LMS = tuple(f for f in FAMILIES if f.model is not None)
CLONING = tuple(f for f in FAMILIES if "ref_audio" in f.card.options)
ONE_OF_EACH = tuple({f.card.family: f for f in reversed(CODEC_LMS)}.values())
"""The first checkpoint of each family: what is a matter of its steps, not of its prompts."""
