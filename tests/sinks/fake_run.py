"""A producer of rows whose samples depend on id and text alone, and a run of it into a sink."""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ttsbatch.plan import RunPlan, make_plan
from ttsbatch.sinks.names import AUDIO_EXTENSIONS
from ttsbatch.sinks.shards import ShardSink
from ttsbatch.types import Failure, ModelCard, SegmentNote, ShardRecord, Utterance

CARD = ModelCard(
    name="fake",
    family="fake",
    path=None,
    sample_rate_hz=8000,
    frame_rate_hz=12.5,
    num_codebooks=2,
    max_frames=100,
    languages=("en",),
    speaks_auto=True,
    voices=("one",),
    default_voice="one",
    options=frozenset(),
    needs_reference=False,
    licence="CC0-1.0",
    num_parameters=0,
    content_hash="0123",
)


def plan(**values: Any) -> RunPlan:
    return make_plan({"corpus": ["c.jsonl"], "shard_size": 3, **values})


def utterance(id: str, text: str | None = None, **fields: Any) -> Utterance:
    text = f"text of {id}" if text is None else text
    base = Utterance(id, text, text, "c.jsonl", 1, "one", "en", seed=7)
    return replace(base, **fields)


def record(sink: ShardSink, u: Utterance, codes: bool = False) -> ShardRecord:
    seed = zlib.crc32(repr((u.id, u.text)).encode("utf8", "replace"))
    rng = np.random.default_rng(seed)
    samples = rng.integers(-9000, 9000, 50 + seed % 50).astype(np.int16)
    return ShardRecord(
        utterance=u,
        key=sink.key_of(u),
        samples=samples,
        sample_rate_hz=8000,
        finish_reason="stop",
        num_frames=3,
        attempts=1,
        segments=(SegmentNote(u.spoken_text, "stop"),),
        checks={"verdict": "pass", "reasons": []},
        codes=rng.integers(0, 99, (3, 2)).astype(np.int16) if codes else None,
    )


def failure(line: int, reason: str = "empty_text", stage: Any = "validate") -> Failure:
    return Failure("c.jsonl", line, f"bad-{line}", stage, reason, "no letter", {"text": ""})


def run(
    out: Path,
    rows: Iterable[Utterance],
    rejects: Iterable[Failure] = (),
    codes: bool = False,
    group_rows: int = 2,
    failing: Collection[str] = (),
    **values: Any,
) -> list[str]:
    """One session, in which some ids fail; returns the ids that it made."""
    rows = list(rows)
    made = []
    run_plan = plan(save_codes=codes, **values)
    with ShardSink(out, run_plan, CARD, group_seconds=0.01, group_rows=group_rows) as sink:
        sink.find_lost()
        sink.reject(rejects)
        for u in rows:
            sink.names.note(u)
        for u in rows:
            if sink.is_finished(u):
                continue
            if u.id in failing:
                sink.fail(replace(failure(u.line, "engine_error", "engine"), utterance_id=u.id))
            else:
                sink.write(record(sink, u, codes))
                made.append(u.id)
    return made


def redo(
    out: Path, rows: Iterable[Utterance], codes: bool = False, seed: int = 1, **values: Any
) -> None:
    """Put other samples in the place of finished rows, under their own keys."""
    run_plan = plan(save_codes=codes, **values)
    with ShardSink(out, run_plan, CARD, keep_old=True, group_rows=2) as sink:
        for u in rows:
            made = record(sink, u, codes)
            sink.write(replace(made, samples=made.samples[::-1] + np.int16(seed)))


def manifest(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "manifest.jsonl").read_text("utf8").splitlines()]


def content(out: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of OUT: bytes and time."""
    return {
        p.relative_to(out).as_posix(): (p.read_bytes(), p.stat().st_mtime_ns)
        for p in sorted(out.rglob("*"))
        if p.is_file()
    }


def audio(out: Path) -> dict[str, bytes]:
    """id -> bytes of its audio file; checks that no other audio is there."""
    lines = manifest(out)
    there = {path: data for path, data in stored(out) if path.endswith(AUDIO_EXTENSIONS)}
    files = {m["id"]: there[m["audio_filepath"]] for m in lines}
    assert len(files) == len(lines), "an id is there twice"
    assert len(there) == len(lines), "audio that no line names"
    return files


def stored(out: Path) -> Iterator[tuple[str, bytes]]:
    """(manifest path, bytes) of everything below audio/, each path once."""
    seen = set()
    for path, data in _stored(out):
        assert path not in seen, f"{path} is there twice"
        seen.add(path)
        yield path, data


def _stored(out: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(p for p in (out / "audio").rglob("*") if p.is_file()):
        path = file.relative_to(out).as_posix()
        if file.suffix == ".tar":
            with tarfile.open(file) as tar:
                for info in tar:
                    yield f"{path}#{info.name}", tar.extractfile(info).read()
        elif file.suffix == ".parquet":
            for row in pq.read_table(file, use_threads=False).column("audio").to_pylist():
                yield f"{path}#{row['path']}", row["bytes"]
        else:
            yield path, file.read_bytes()
