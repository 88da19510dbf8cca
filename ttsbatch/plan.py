"""RunPlan: recipe and flags, one validated frozen object.

Built once by `make_plan` from the values of a recipe (`recipe.py`) and of flags, which win. The
resolved plan is written to OUT/run.json by the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ttsbatch.audio.formats import FORMATS, AudioFormat
from ttsbatch.errors import PlanError
from ttsbatch.types import FEWEST_STEPS, MOST_STEPS, Sampling

Layout = Literal["dir", "tar", "parquet"]
LAYOUTS: tuple[Layout, ...] = ("dir", "tar", "parquet")
LOUDNESS_LUFS = (-50.0, -5.0)  # beyond, no speech can be brought
DEFAULT_RETRIES = 2
DEFAULT_SHARD_SIZE = 1000  # rows; a folder of 1,000 files lists quickly on any file system


@dataclass(frozen=True, slots=True)
class CorpusPlan:
    """Where rows come from and how they are read."""

    sources: tuple[str, ...]  # paths, globs, URIs, "-"
    mapping: Mapping[str, str] = field(default_factory=dict)  # our field -> column
    delimiter: str | None = None  # CSV/TSV; None: by the file's extension
    header: bool = True
    limit: int | None = None  # stop after this many rows
    unsupported_language: Literal["reject", "warn"] = "reject"


@dataclass(frozen=True, slots=True)
class RowDefaults:
    """What a row gets where it says nothing itself."""

    voice: str | None = None
    language: str | None = None  # None: auto
    instruct: str | None = None
    ref_audio: str | None = None  # relative to the working folder
    ref_text: str | None = None
    seed: int = 0  # rows without a seed derive theirs from this and their id
    sampling: Sampling = field(default_factory=Sampling)
    max_seconds: float | None = None
    normalize: bool = True  # markup out, numbers in words; False: clean-up alone
    split: bool = True  # whether a long row is spoken in pieces


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """How the model runs; none of it changes what is said."""

    device: str = "auto"  # auto, cpu, cuda, cuda:0,1
    dtype: str = "auto"  # auto (bfloat16 on cuda, float32 on cpu), float32, bfloat16
    slots: int | None = None  # None: auto


@dataclass(frozen=True, slots=True)
class AudioPlan:
    """What the audio files are."""

    format: str = "wav"  # a name of audio.formats.FORMATS
    sample_rate_hz: int | None = None  # None: the model's own
    loudness_lufs: float | None = None  # integrated, to aim at; None: as it was spoken

    @property
    def file_format(self) -> AudioFormat:
        """The format that `format` names."""
        return FORMATS[self.format]

    def rate_of(self, model_rate_hz: int) -> int:
        """The sample rate of the files, for a model of that rate."""
        return self.sample_rate_hz or model_rate_hz


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """What is written."""

    layout: Layout = "dir"
    shard_size: int = DEFAULT_SHARD_SIZE
    save_codes: bool = False
    retries: int = DEFAULT_RETRIES  # further attempts of a flagged row
    fail_fast: bool = False


@dataclass(frozen=True, slots=True)
class ChecksPlan:
    """The checks that need a model of their own, each off without one."""

    asr: str | None = None  # folder of a faster-whisper model
    max_wer: float = 0.3  # word error rate; a wrong ending here and there passes
    speaker: str | None = None  # ONNX file of a speaker encoder
    min_similarity: float = 0.5  # cosine; encoders differ, so look at yours first
    dnsmos: str | None = None  # sig_bak_ovr.onnx, or its folder
    min_mos: float = 2.5  # of the whole, 1 to 5

    def settings(self) -> dict[str, Any]:
        """What decides a verdict; a model counts by its name, wherever it lies."""
        rules = {
            "check_asr": (self.asr, "max_wer", self.max_wer),
            "check_speaker": (self.speaker, "min_similarity", self.min_similarity),
            "check_dnsmos": (self.dnsmos, "min_mos", self.min_mos),
        }
        used: dict[str, Any] = {}
        for name, (model, limit, value) in rules.items():
            if model is not None:
                used |= {name: Path(model).name, limit: value}
        return used


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run, resolved."""

    model: str | None  # None: the embedded default
    corpus: CorpusPlan
    rows: RowDefaults
    engine: EnginePlan
    output: OutputPlan
    audio: AudioPlan = AudioPlan()
    checks: ChecksPlan = field(default_factory=ChecksPlan)

    def settings(self) -> dict[str, Any]:
        """The part that decides what the audio is: a changed value here refuses a resume.

        Device, slots, shard size, and whatever only says which rows to read are not in it.
        """
        rows = asdict(self.rows)
        checks = self.checks.settings()
        return {"model": self.model, **rows, "retries": self.output.retries, **checks}

    def to_json(self) -> dict[str, Any]:
        """The whole plan as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> RunPlan:
        """The plan that `to_json` gave.

        Raises:
            PlanError: a plan of another version.
        """
        try:
            corpus, rows = values["corpus"], values["rows"]
            return cls(
                model=values["model"],
                corpus=CorpusPlan(**(corpus | {"sources": tuple(corpus["sources"])})),
                rows=RowDefaults(**(rows | {"sampling": Sampling(**rows["sampling"])})),
                engine=EnginePlan(**values["engine"]),
                output=OutputPlan(**values["output"]),
                audio=AudioPlan(**values["audio"]),
                checks=ChecksPlan(**values["checks"]),
            )
        except (KeyError, TypeError) as e:
            message = f"run.json: its plan is not one that this version reads: {e}"
            raise PlanError(message) from e


def make_plan(values: Mapping[str, Any]) -> RunPlan:
    """Check the merged values of recipe and flags (names of `recipe.FIELDS`) and build the plan.

    Raises:
        PlanError: a value out of range, with the name of the option and what was expected.
    """
    v = {k: x for k, x in values.items() if x is not None}
    sources = v.get("corpus", ())
    sources = (sources,) if isinstance(sources, str) else tuple(sources)
    if not sources:
        raise PlanError("no corpus given; expected at least one file, glob, URI or -")
    _choice(v, "unsupported_language", ("reject", "warn"))
    _choice(v, "layout", LAYOUTS)
    _at_least(v, "limit", 1)
    _at_least(v, "retries", 0)
    _at_least(v, "shard_size", 1)
    for name, problem in sampling_problems(v).items():
        raise PlanError(f"--{name.replace('_', '-')} is {v[name]!r}; expected {problem}")
    if "seed" in v and not 0 <= v["seed"] < 2**63:
        raise PlanError(f"--seed is {v['seed']}; expected 0 <= seed < 2**63")
    return RunPlan(
        model=v.get("model"),
        corpus=CorpusPlan(
            sources=sources,
            mapping=_mapping(v.get("map", ())),
            delimiter=_delimiter(v.get("delimiter")),
            header=v.get("header", True),
            limit=v.get("limit"),
            unsupported_language=v.get("unsupported_language", "reject"),
        ),
        rows=RowDefaults(
            **{
                k: v[k]
                for k in ("voice", "language", "instruct", "ref_audio", "ref_text")
                if k in v
            },
            seed=v.get("seed", 0),
            sampling=Sampling(**{f.name: v.get(f.name) for f in fields(Sampling)}),
            max_seconds=v.get("max_seconds"),
            normalize=v.get("normalize", True),
            split=v.get("split", True),
        ),
        engine=make_engine_plan(v),
        audio=_audio(v),
        output=OutputPlan(
            layout=v.get("layout", "dir"),
            shard_size=v.get("shard_size", DEFAULT_SHARD_SIZE),
            save_codes=v.get("save_codes", False),
            retries=v.get("retries", DEFAULT_RETRIES),
            fail_fast=v.get("fail_fast", False),
        ),
        checks=_checks(v),
    )


def make_engine_plan(values: Mapping[str, Any]) -> EnginePlan:
    """Device, dtype and slots, checked.

    Raises:
        PlanError: not a dtype, or not a number of slots.
    """
    v = {k: x for k, x in values.items() if x is not None}
    _choice(v, "dtype", ("auto", "float32", "bfloat16"))
    gpu_numbers(v.get("device", "auto"))
    return EnginePlan(
        device=v.get("device", "auto"),
        dtype=v.get("dtype", "auto"),
        slots=_slots(v.get("slots")),
    )


def gpu_numbers(device: str) -> list[int]:
    """The GPUs that a device name asks for; none for `auto` and `cpu`. Whether they're there is not
    looked at.

    Raises:
        PlanError: not a device name, or a GPU twice.
    """
    if device in ("auto", "cpu"):
        return []
    numbers = device.removeprefix("cuda:").split(",") if device != "cuda" else ["0"]
    is_named = device == "cuda" or device.startswith("cuda:")
    if is_named and all(n.isascii() and n.isdigit() for n in numbers):
        found = [int(n) for n in numbers]
        if len(set(found)) == len(found):
            return found
    raise PlanError(
        f"--device is {device!r}; expected auto, cpu, cuda, cuda:N or cuda:N,M, each number once"
    )


def check_rate(audio: AudioPlan, sample_rate_hz: int, whose: str) -> None:
    """Refuse a sample rate that the file format does not take.

    Args:
        audio: has the format.
        sample_rate_hz: of the files.
        whose: where the rate comes from, for the message.

    Raises:
        PlanError: with the rates that it takes.
    """
    if not audio.file_format.takes(sample_rate_hz):
        raise PlanError(
            f"{whose} is {sample_rate_hz}; expected {audio.file_format.expected_rates} "
            f"with --format {audio.format}"
        )


def _audio(v: Mapping[str, Any]) -> AudioPlan:
    _choice(v, "format", tuple(FORMATS))
    loudness = v.get("loudness")
    low, high = LOUDNESS_LUFS
    if loudness is not None and not low <= loudness <= high:
        raise PlanError(f"--loudness is {loudness}; expected {low:g} to {high:g} LUFS")
    audio = AudioPlan(
        format=v.get("format", "wav"),
        sample_rate_hz=v.get("sample_rate"),
        loudness_lufs=None if loudness is None else float(loudness),
    )
    if audio.sample_rate_hz is not None:
        check_rate(audio, audio.sample_rate_hz, "--sample-rate")
    return audio


def sampling_problems(values: Mapping[str, Any]) -> dict[str, str]:
    """Which of the sampling fields and `max_seconds` are out of range, and what was expected.

    Shared by plan and rows: a row's bad value is a rejected row, an option's a PlanError.
    """
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "temperature": (lambda x: 0 <= x <= 100, "a number from 0 (greedy) to 100"),
        "top_k": (lambda x: x >= 0, "a whole number, 0 (off) or more"),
        "top_p": (lambda x: 0 < x <= 1, "a number above 0, at most 1 (off)"),
        "repetition_penalty": (lambda x: 0 < x <= 100, "a number above 0, at most 100; 1 is off"),
        "guidance": (lambda x: 0 <= x <= 100, "a number from 0 to 100; 1 is off"),
        "steps": (
            lambda x: FEWEST_STEPS <= x <= MOST_STEPS,
            f"a whole number from {FEWEST_STEPS} to {MOST_STEPS}",
        ),
        "max_seconds": (lambda x: 0 < x < float("inf"), "a number of seconds above 0"),
    }
    return {
        name: expected
        for name, (good, expected) in rules.items()
        if values.get(name) is not None and not good(values[name])
    }


def _choice(v: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> None:
    if name in v and v[name] not in choices:
        raise PlanError(
            f"--{name.replace('_', '-')} is {v[name]!r}; expected one of {', '.join(choices)}"
        )


def _at_least(v: Mapping[str, Any], name: str, least: int) -> None:
    if name in v and v[name] < least:
        raise PlanError(f"--{name.replace('_', '-')} is {v[name]}; expected {least} or more")


def _checks(v: Mapping[str, Any]) -> ChecksPlan:
    limits = {
        "max_wer": ("check_asr", 0.0, 10.0),
        "min_similarity": ("check_speaker", -1.0, 1.0),
        "min_mos": ("check_dnsmos", 1.0, 5.0),
    }
    for name, (check, least, most) in limits.items():
        option = f"--{name.replace('_', '-')}"
        if name in v and check not in v:
            raise PlanError(f"{option} is given; expected --{check.replace('_', '-')} with it")
        if name in v and not least <= v[name] <= most:
            raise PlanError(f"{option} is {v[name]}; expected a number from {least:g} to {most:g}")
    given: dict[str, Any] = {k: float(v[k]) for k in limits if k in v}
    given |= {k.removeprefix("check_"): v[k] for k, _, _ in limits.values() if k in v}
    return ChecksPlan(**given)


def _mapping(pairs: Any) -> dict[str, str]:
    if isinstance(pairs, dict):
        pairs = [f"{k}={x}" for k, x in pairs.items()]
    out: dict[str, str] = {}
    for pair in pairs:
        name, eq, column = pair.partition("=")
        if not eq or not name.strip() or not column:
            raise PlanError(f"--map is {pair!r}; expected field=column, such as text=sentence")
        if name.strip() in out:
            raise PlanError(f"--map names the field {name.strip()!r} twice")
        out[name.strip()] = column
    return out


def _delimiter(value: str | None) -> str | None:
    if value is None:
        return None
    value = {"\\t": "\t", "tab": "\t"}.get(value, value)
    if len(value) != 1:
        raise PlanError(f"--delimiter is {value!r}; expected one character, or tab")
    return value


def _slots(value: Any) -> int | None:
    if value is None or value == "auto":
        return None
    try:
        slots = int(value)
    except ValueError:
        slots = 0
    if slots < 1:
        raise PlanError(f"--slots is {value!r}; expected auto, or a whole number, 1 or more")
    return slots
