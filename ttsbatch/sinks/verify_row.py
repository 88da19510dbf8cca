"""One manifest line against its files: header and size of the audio, shape of the codes.

Called on many threads; touches nothing but the files that the line names.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from ttsbatch.audio.measure import bytes_needed, measure_audio
from ttsbatch.counts import counted
from ttsbatch.sinks.npy_header import NpyHeader, read_npy_header
from ttsbatch.sinks.packed import split_packed
from ttsbatch.sinks.verify_shards import Member, ShardFiles

_BEGIN = re.compile(
    r'\{"id": ("(?:[^"\\]|\\.)*")(?:, "audio_filepath": ("(?:[^"\\]|\\.)*"))?', re.DOTALL
)
_NO_CODES = ("wrong_codes", "has no codes, though the run keeps them")
_TYPES = {"id": str, "audio_filepath": str, "source": str, "num_samples": int, "sample_rate": int}


@dataclass(slots=True)
class Checked:
    """A manifest line and what is wrong with it."""

    id: str | None = None  # None: not even that can be read
    source: str = ""
    paths: list[str] = field(default_factory=list)  # files that it names, below OUT
    num_samples: int = 0
    sample_rate_hz: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)  # (kind, message)


def parse_object(line: bytes) -> dict[str, Any]:
    """A line as a JSON object.

    Raises:
        ValueError: torn, not strict UTF-8, not strict JSON, or not an object.
    """
    if not line.endswith(b"\n"):
        raise ValueError("torn: it has no end")
    value = json.loads(line.decode("utf8"), parse_constant=_no_constant)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def check_line(files: ShardFiles, line: bytes, with_codes: bool) -> Checked:
    """Read a manifest line and look at its files.

    Args:
        files: of the output folder.
        line: with its line break, if it has one.
        with_codes: the run keeps codes, so that a line without them is wrong.
    """
    try:
        row = parse_object(line)
        for name, kind in _TYPES.items():
            if type(row.get(name)) is not kind:
                raise ValueError(f'"{name}" is {row.get(name)!r}, expected {kind.__name__}')
    except ValueError as e:
        return _salvage(line, str(e))
    rate_hz, num_samples = row["sample_rate"], row["num_samples"]
    checked = Checked(row["id"], row["source"], [row["audio_filepath"]], num_samples, rate_hz)
    _check_duration(row, checked)
    if packed := split_packed(row["audio_filepath"]):
        _check_packed(files, *packed, row, checked, with_codes)
        return checked
    _check_audio(files.out, row, checked)
    if "codes_filepath" in row:
        checked.paths.append(str(row["codes_filepath"]))
        _check_codes(files.out, row, checked)
    elif with_codes:
        checked.problems.append(_NO_CODES)
    return checked


def _salvage(line: bytes, problem: str) -> Checked:
    """What the beginning of a broken line still says."""
    checked = Checked(problems=[("manifest_line", problem)])
    if begin := _BEGIN.match(line.decode("utf8", "replace")):
        try:
            checked.id = json.loads(begin[1])
            checked.paths = [json.loads(begin[2])] if begin[2] else []
        except ValueError:
            checked.id = None
    return checked


def _check_duration(row: dict[str, Any], checked: Checked) -> None:
    duration, rate_hz, num_samples = row.get("duration"), row["sample_rate"], row["num_samples"]
    is_number = isinstance(duration, (int, float)) and math.isfinite(duration)
    if rate_hz <= 0 or not is_number or abs(duration * rate_hz - num_samples) > 0.5:
        message = (
            f"duration is {duration} s, with {counted(num_samples, 'sample')} at {rate_hz:,} Hz"
        )
        checked.problems.append(("wrong_samples", message))


def _check_audio(out: Path, row: dict[str, Any], checked: Checked) -> None:
    path = _inside(out, row["audio_filepath"], "audio", checked)
    if path is None:
        return
    name = row["audio_filepath"]
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(bytes_needed(path.suffix, size))
        measured = measure_audio(path.suffix, head, size)
        _compare_audio(measured, row, checked)
        said = row.get("num_bytes", size)
        if size != said and measured == (row["num_samples"], row["sample_rate"]):
            raise ValueError(f"{counted(size, 'byte')}; the manifest says {said}")
    except ValueError as e:
        checked.problems.append(("torn_file", f"{name}: {e}"))
    except OSError as e:
        checked.problems.append(_unreadable(name, e))


def _check_packed(
    files: ShardFiles,
    shard: str,
    member: str,
    row: dict[str, Any],
    checked: Checked,
    with_codes: bool,
) -> None:
    name = row["audio_filepath"]
    if "codes_filepath" in row:
        checked.paths.append(str(row["codes_filepath"]))
    try:
        content = files.content(shard)
    except OSError as e:
        checked.problems.append(_unreadable(shard, e))
        return
    found: Member | None = content.rows.get(member)
    if found is None and content.problem is not None:
        checked.problems.append(("torn_file", f"{name}: is not there; {shard}: {content.problem}"))
        return
    if found is None:
        checked.problems.append(("file_missing", f"{name}: is not there"))
        return
    if not found.is_published:
        checked.problems.append(("unpublished", f"{name}: waits in the ledger folder"))
    if isinstance(found.audio, str):
        checked.problems.append(("torn_file", f"{name}: {found.audio}"))
    else:
        _compare_audio(found.audio, row, checked)
    if isinstance(found.codes, str):
        checked.problems.append(("torn_file", f"{name}: codes: {found.codes}"))
    elif found.codes is not None:
        _compare_codes(found.codes, f"{name}: codes", row, checked)
    elif with_codes:
        checked.problems.append(_NO_CODES)


def _compare_audio(measured: tuple[int, int], row: dict[str, Any], checked: Checked) -> None:
    num_samples, rate_hz = measured
    if measured != (row["num_samples"], row["sample_rate"]):
        message = (
            f"{row['audio_filepath']}: {counted(num_samples, 'sample')} at {rate_hz:,} Hz; the "
            f"manifest says {row['num_samples']:,} at {row['sample_rate']:,} Hz"
        )
        checked.problems.append(("wrong_samples", message))


def _check_codes(out: Path, row: dict[str, Any], checked: Checked) -> None:
    path = _inside(out, row["codes_filepath"], "codes", checked)
    if path is None:
        return
    name = row["codes_filepath"]
    try:
        with path.open("rb") as file:
            found = read_npy_header(file, os.fstat(file.fileno()).st_size)
    except ValueError as e:
        checked.problems.append(("torn_file", f"{name}: {e}"))
    except OSError as e:
        checked.problems.append(_unreadable(name, e))
    else:
        _compare_codes(found, name, row, checked)


def _compare_codes(found: NpyHeader, name: str, row: dict[str, Any], checked: Checked) -> None:
    shape = found.shape
    if found.dtype != "int16" or len(shape) != 2 or shape[0] != row.get("num_frames"):
        message = (
            f"{name}: {found.dtype} of shape {list(shape)}, expected int16 with "
            f"{row.get('num_frames')} rows of codebooks"
        )
        checked.problems.append(("wrong_codes", message))


def _inside(out: Path, named: Any, top: str, checked: Checked) -> Path | None:
    """The file that a line names, if it is where such files belong."""
    path = named if isinstance(named, str) else ""
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[0] != top or ".." in parts or "\0" in path:
        checked.problems.append(("manifest_line", f"names {named!r}, expected a path in {top}/"))
        return None
    return out / path


def _unreadable(name: str, error: OSError) -> tuple[str, str]:
    if isinstance(error, FileNotFoundError):
        return "file_missing", f"{name}: is not there"
    return "torn_file", f"{name}: cannot be read: {error.strerror or error}"
