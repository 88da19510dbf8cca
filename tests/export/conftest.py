"""A small finished OUT with odd ids and texts, and the same in every layout and format."""

from __future__ import annotations

import gc
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from typer.testing import CliRunner, Result

from tests.fake_speaker import FakeSpeaker
from ttsbatch.cli.app import app
from ttsbatch.pipeline import synthesize
from ttsbatch.plan import make_plan
from ttsbatch.progress import make_progress
from ttsbatch.sinks import ledger
from ttsbatch.stop import Stop
from ttsbatch.types import ModelCard

ROWS: list[dict[str, Any]] = [
    {"id": "one", "text": "A first row."},
    {"id": "a/b.c", "text": "Two | pipes\nand a line."},
    {"id": "a_b.c", "text": "A plain id with a dot."},
    {"id": "Ünïcode", "text": "Grüße, Ωμέγα!", "language": "en"},
    {"id": "bad", "text": "mumble 9 times"},
    {"id": "ONE", "text": "An id in capitals.", "kind": {"deep": [1, None]}},
    {"id": "2020-01-01", "text": "2020-01-01", "file_name": "sub/day"},
    {"id": "last|one", "text": '"Quoted" at the start.'},
]
GOOD_IDS = [r["id"] for r in ROWS if r["id"] != "bad"]

Samples = np.ndarray[Any, np.dtype[np.int16]]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Runs the pipeline with a fake speaker into `out`, three rows to a shard."""

    def make(rows: Iterable[dict[str, Any]] = ROWS, stop_after: int | None = None) -> Path:
        corpus, out = tmp_path / "rows.jsonl", tmp_path / "out"
        corpus.write_text("".join(json.dumps(r) + "\n" for r in rows), "utf8")
        stop = Stop()
        spoken: list[object] = []

        def on_spoken(segment: object) -> None:
            spoken.append(segment)
            if len(spoken) == stop_after:
                stop.request()

        def load(card: ModelCard, plan: object) -> FakeSpeaker:
            return FakeSpeaker(card, on_spoken=on_spoken)

        with open(os.devnull, "w") as quiet:
            plan = make_plan({"corpus": [str(corpus)], "shard_size": 3, "retries": 0})
            synthesize(plan, out, make_progress(quiet, True), stop, load)
        return out

    return make


@pytest.fixture
def out(make: Callable[..., Path]) -> Path:
    return make()


@pytest.fixture
def collected() -> Iterator[None]:
    """Has what a library left open collected in the test that opened it, with its filters."""
    yield
    gc.collect()


def call(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def export(out: Path, to: str, *more: str, exit_code: int = 0) -> Path:
    """Export to a new folder; returns it."""
    path = out.parent / f"export of {to}{''.join(more)}"
    result = call("export", out, "--to", to, "-o", path, *more)
    assert result.exit_code == exit_code, result.stdout + result.stderr
    return path


def manifest(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "manifest.jsonl").read_text("utf8").splitlines()]


def samples(out: Path) -> dict[str, Samples]:
    """id -> the samples of each unflagged row of an OUT of files, in the order of the manifest."""
    return {
        m["id"]: soundfile.read(out / m["audio_filepath"], dtype="int16")[0]
        for m in manifest(out)
        if m["checks"]["verdict"] == "pass"
    }


def decoded(audio: bytes) -> tuple[Samples, int]:
    """(samples, sample rate) of an encoded file."""
    found, rate_hz = soundfile.read(io.BytesIO(audio), dtype="int16")
    return found, rate_hz


def rewrite(out: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change every manifest line, and point the ledger to the new ones."""
    commits = out / "ledger/commits.bin"
    records = np.frombuffer(commits.read_bytes()[len(ledger.MAGIC) :], ledger.RECORD).copy()
    made = records["kind"] == ledger.MADE
    lines = [(json.dumps(change(m)) + "\n").encode() for m in manifest(out)]
    lengths = np.array([len(line) for line in lines])
    records["length"][made] = lengths
    records["offset"][made] = np.cumsum(lengths) - lengths
    (out / "manifest.jsonl").write_bytes(b"".join(lines))
    commits.write_bytes(ledger.MAGIC + ledger.seal(records))


def as_layout(out: Path, layout: str) -> None:
    """Pack the audio of an OUT of files into a tar or a Parquet file a shard."""
    shards: dict[str, list[tuple[str, bytes]]] = {}

    def pack(m: dict[str, Any]) -> dict[str, Any]:
        audio, shard, name = m["audio_filepath"].split("/", 2)
        shards.setdefault(shard, []).append((name, (out / m["audio_filepath"]).read_bytes()))
        (out / m["audio_filepath"]).unlink()
        return m | {"audio_filepath": f"{audio}/{shard}.{layout}#{name}"}

    rewrite(out, pack)
    for shard, members in shards.items():
        path = out / f"audio/{shard}.{layout}"
        if layout == "tar":
            with tarfile.open(path, "w") as tar:
                for name, data in members:
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        else:
            cells = [{"bytes": data, "path": name} for name, data in members]
            pq.write_table(pa.table({"audio": cells}), path, row_group_size=2)


def as_format(out: Path, extension: str, **options: Any) -> None:
    """Encode the audio of an OUT of WAV files anew."""

    def encode(m: dict[str, Any]) -> dict[str, Any]:
        path = out / m["audio_filepath"]
        lossless = "subtype" not in options
        data, rate_hz = soundfile.read(path, dtype="int16" if lossless else "float32")
        path.unlink()
        soundfile.write(path.with_suffix(f".{extension}"), data, rate_hz, **options)
        name = m["audio_filepath"].removesuffix(".wav")
        return m | {"audio_filepath": f"{name}.{extension}"}

    rewrite(out, encode)
