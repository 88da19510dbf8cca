"""End to end: the `synth` command itself, in a process of its own, on a generated corpus.

Audio seconds are summed over the headers of the WAV files, the wall is the report's: from the first
prompt to the last fsync. `verify` must find nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ttsbatch
from ttsbatch.audio.wav_header import measure_wav
from ttsbatch.bench.timing import Timing
from ttsbatch.errors import EngineError, SinkError
from ttsbatch.report import load_report
from ttsbatch.verify import verify_run

CORPUS, OUT = "bench.jsonl", "out"


def bench_end_to_end(
    folder: Path, rows: list[dict[str, Any]], options: dict[str, str], timeline: Path | None = None
) -> Timing:
    """Run `ttsbatch synth` on the rows and read what it made.

    Args:
        folder: gets corpus and output; must have neither.
        rows: the corpus.
        options: of `synth`, by their flags; `--retries 0` is added.
        timeline: gets the run's timeline.

    Raises:
        EngineError: the command failed, or did not make every row.
        SinkError: `verify` finds something.
    """
    (folder / CORPUS).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf8")
    flags = [part for option in options.items() for part in option]
    arguments = ["synth", CORPUS, "-o", OUT, *flags, "--retries", "0", "--quiet"]
    command = shlex.join(["ttsbatch", *arguments])
    if timeline is not None:
        arguments += ["--timeline", str(timeline.resolve())]
    started = time.perf_counter()
    _run(arguments, folder)
    process_s = time.perf_counter() - started
    out = folder / OUT
    report = load_report(out).values
    found = verify_run(out)
    if found.num_damaged or found.num_unfinished or report["utterances"]["made"] != len(rows):
        raise SinkError(f"{command}: verify finds {json.dumps(found.to_json())}")
    return Timing(
        "e2e",
        report["slots"]["count"],
        report["wall_seconds"],
        audio_seconds(out),
        {
            "load_s": report["load_seconds"],
            "warmup_s": report["warmup_seconds"],
            "process_s": process_s,
            "busy": report["slots"]["busy_share"],
            "flagged": report["utterances"]["flagged"],
        },
        {
            "eager_steps": report["eager_steps"],
            "codec_graph_misses": report["codec_graphs"]["misses"],
            **{f"without kernels: {k}": n for k, n in report["kernel_fallbacks"].items()},
        },
        command,
        report,
    )


def audio_seconds(out: Path) -> float:
    """The sum over the headers of an output's WAV files."""
    measured = [measure_wav(path) for path in (out / "audio").rglob("*.wav")]
    return sum(num_samples / rate_hz for num_samples, rate_hz in measured)


def _run(arguments: list[str], folder: Path) -> None:
    package = str(Path(ttsbatch.__file__).parent.parent)
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "ttsbatch", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-5:]
        raise EngineError(f"synth ended with exit code {done.returncode}: {' | '.join(last)}")
