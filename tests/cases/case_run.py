"""One run of a case: the command in a folder of its own, and what it left there."""

from __future__ import annotations

import json
import os
import shutil
import sys
import wave
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from ttsbatch.cli.app import app

DATA = Path(__file__).parent / "data"


def _expected() -> dict[str, Any]:
    """expected.json, and the runs of further families on the same files."""
    found, more = (
        json.loads((DATA / name).read_text("utf8")) for name in ("expected.json", "families.json")
    )
    found["models"] |= more["models"]
    for file, case in more["cases"].items():
        found["cases"][file]["runs"] += case["runs"]
    return found


EXPECTED = _expected()


@dataclass
class CaseRun:
    """`ttsbatch synth FILE -o OUT` of one run, in `work`."""

    file: str
    spec: dict[str, Any]
    work: Path
    out: str = "out"
    max_chars: int | None = None  # longer texts of a JSONL input are cut there
    exit_code: int = -1
    stderr: str = ""
    files_before: dict[str, bytes] = field(default_factory=dict)

    def prepare(self) -> None:
        """Put the input files into the work folder."""
        shutil.copy(DATA / self.file, self.work)
        if self.max_chars is not None:
            shorten(self.work / self.file, self.max_chars)
        shutil.copytree(DATA / "refs", self.work / "refs", dirs_exist_ok=True)
        for copy in EXPECTED["cases"][self.file].get("setup", []):
            shutil.copy(DATA / copy["copy"], self.work / copy["to"])

    def arguments(self, verb: str = "synth", out: str | None = None) -> list[str]:
        """The command line after `ttsbatch`."""
        model = EXPECTED["models"][self.spec["model"]]
        options = [] if model is None else ["--model", str((DATA / model).resolve())]
        if verb == "check":
            return ["check", self.file, *options]
        return [verb, self.file, "-o", out or self.out, *options, *self.spec["args"]]

    def invoke(self, arguments: list[str]) -> tuple[int, str]:
        """(exit code, stderr) of a command run in this process."""
        with chdir(self.work):
            result = CliRunner().invoke(app, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stderr

    def run(self) -> None:
        """The run itself."""
        self.prepare()
        self.files_before = contents(self.work)
        self.exit_code, self.stderr = self.invoke(self.arguments())

    def folder(self) -> Path:
        """OUT."""
        return self.work / self.out

    @cached_property
    def manifest(self) -> list[dict[str, Any]]:
        """Manifest lines in their order."""
        return read_lines(self.folder() / "manifest.jsonl")

    @cached_property
    def by_id(self) -> dict[str, dict[str, Any]]:
        """Manifest lines by id."""
        return {m["id"]: m for m in self.manifest}

    @cached_property
    def failures(self) -> list[dict[str, Any]]:
        """Lines of failures.jsonl."""
        return read_lines(self.folder() / "failures.jsonl")

    @cached_property
    def input_rows(self) -> dict[int, dict[str, Any]]:
        """Line -> row of a JSONL input; lines that are no object are left out."""
        if not self.file.endswith(".jsonl"):
            return {}
        rows: dict[int, dict[str, Any]] = {}
        text = (self.work / self.file).read_bytes().decode("utf-8-sig")
        for number, line in enumerate(text.split("\n"), start=1):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                rows[number] = row
        return rows

    def made_rows(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """(manifest line, input row) of every made row of a JSONL input."""
        for made in self.manifest:
            yield made, self.input_rows[made["line"]]

    def samples(self, row_id: str) -> np.ndarray:
        """[N] int16 of a made row."""
        return read_wav(self.folder() / self.by_id[row_id]["audio_filepath"])[0]


def shorten(corpus: Path, max_chars: int) -> None:
    """Cut the texts of a JSONL corpus."""
    rows = [json.loads(line) for line in corpus.read_text("utf8").splitlines()]
    rows = [row | {"text": row["text"][:max_chars]} for row in rows]
    corpus.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf8")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file, strict UTF-8; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().decode("utf8").split("\n") if line]


def read_wav(path: Path) -> tuple[np.ndarray, int]:
    """([N] int16, sample rate) of a complete 16-bit mono WAV file."""
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2), path
        data = file.readframes(file.getnframes())
        assert len(data) == 2 * file.getnframes(), f"{path}: torn"
        return np.frombuffer(data, "<i2"), file.getframerate()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by relative path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def console_command(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """(command, environment) of a run in a process of its own, to be killed."""
    return [sys.executable, "-m", "ttsbatch", *arguments], {**os.environ, "COLUMNS": "1000"}
