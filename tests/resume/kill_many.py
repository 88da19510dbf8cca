"""A run killed at random moments and started again, against an unbroken one.

    python -m tests.resume.kill_many CORPUS [--kills 30] [-- OPTIONS OF SYNTH]

prints a line a kill, and exits 1 unless the records are those of the unbroken run, each once, no
finished audio was touched, and every kill was one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ttsbatch.sinks import ledger

POLL_S = 0.01


@dataclass(frozen=True)
class Kill:
    """One session that was killed."""

    after_s: float  # since its process began
    num_before: int  # finished rows when it began
    num_after: int
    num_strays: int  # files under final names that it had not committed


@dataclass
class Outcome:
    """All sessions of an OUT up to the one that came to its end."""

    kills: list[Kill] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)  # finished files that a later session changed
    exit_code: int = -1


def command(corpus: Path, out: Path | str, options: list[str]) -> list[str]:
    """The `synth` command line."""
    synth = [sys.executable, "-m", "ttsbatch", "synth", str(corpus), "-o", str(out), "--quiet"]
    return [*synth, *options]


def num_finished(out: Path) -> int:
    """Rows that the ledger has."""
    commits, manifest = out / "ledger/commits.bin", out / "manifest.jsonl"
    if not commits.exists() or not manifest.exists():
        return 0
    return len(ledger.scan(commits, manifest.stat().st_size).finished)


def finished_files(out: Path) -> dict[str, tuple[int, int, int]]:
    """(inode, size, time) of each committed file of a stopped OUT."""
    found: dict[str, tuple[int, int, int]] = {}
    if not (out / "ledger/commits.bin").exists():
        return found
    scan = ledger.scan(out / "ledger/commits.bin", (out / "manifest.jsonl").stat().st_size)
    with (out / "manifest.jsonl").open("rb") as file:
        for line in file.read(scan.manifest_bytes).splitlines():
            row = json.loads(line)
            for path in (row["audio_filepath"], row.get("codes_filepath")):
                if path is not None:
                    stat = (out / path).stat()
                    found[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return found


def kill_until_done(
    corpus: Path, out: Path, options: list[str], moments: Iterator[Callable[[Path, float], bool]]
) -> Outcome:
    """Run, kill and run again until a session ends by itself.

    Args:
        corpus: what to make.
        out: the output.
        options: of `synth`.
        moments: one for each session: whether to kill it now, from OUT and the seconds that it has
            run. Used up: the session is left alone.
    """
    outcome = Outcome()
    before: dict[str, tuple[int, int, int]] = {}
    while True:
        moment = next(moments, None)
        num_before = num_finished(out)
        process = subprocess.Popen(command(corpus, out, options), stderr=subprocess.DEVNULL)
        started = time.monotonic()
        while process.poll() is None:
            elapsed = time.monotonic() - started
            if moment is not None and moment(out, elapsed):
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(POLL_S)
        code = process.wait()
        now = finished_files(out)
        outcome.touched += [path for path, stat in before.items() if now.get(path) != stat]
        before = now
        if code != -signal.SIGKILL:
            outcome.exit_code = code
            return outcome
        there = {p for p in (out / "audio").rglob("*.wav")}
        strays = len(there) - sum(p.endswith(".wav") for p in now)
        outcome.kills.append(Kill(elapsed, num_before, num_finished(out), strays))


def digests(out: Path) -> dict[str, list[str]]:
    """id -> hashes of the row's files.

    Raises:
        AssertionError: an id or a file is there twice, or a file is nobody's.
    """
    rows = [json.loads(line) for line in (out / "manifest.jsonl").read_bytes().splitlines()]
    files = {
        r["id"]: [p for p in (r["audio_filepath"], r.get("codes_filepath")) if p] for r in rows
    }
    assert len(files) == len(rows), "an id is there twice"
    named = [p for paths in files.values() for p in paths]
    there = [p for top in ("audio", "codes") for p in (out / top).rglob("*") if p.is_file()]
    assert sorted(named) == sorted(p.relative_to(out).as_posix() for p in there)
    return {
        row_id: [hashlib.sha256((out / p).read_bytes()).hexdigest() for p in paths]
        for row_id, paths in files.items()
    }


def main() -> int:
    """Run it by hand."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("options", nargs="*", help="of synth, after --")
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="ttsbatch-kills-") as folder:
        whole = Path(folder, "whole")
        started = time.monotonic()
        subprocess.run(command(given.corpus, whole, given.options), check=True)
        whole_s = time.monotonic() - started
        expected = digests(whole)
        print(f"unbroken: {len(expected)} rows in {whole_s:.1f} s")
        print("kill  after s  rows before  rows after  uncommitted files")
        kills, bad, rounds = 0, 0, 0
        while kills < given.kills:
            rounds += 1
            out = Path(folder, f"{rounds}")
            # Anywhere in a session's life, and so that a round takes about ten sessions.
            ends = [draw.uniform(0, 0.4 * whole_s) for _ in range(given.kills - kills)]
            moments = ((lambda _, elapsed, end=end: elapsed >= end) for end in ends)
            outcome = kill_until_done(given.corpus, out, given.options, moments)
            for kill in outcome.kills:
                kills += 1
                print(
                    f"{kills:4}  {kill.after_s:7.2f}  {kill.num_before:11}  {kill.num_after:10}"
                    f"  {kill.num_strays:17}"
                )
            same = digests(out) == expected
            made = [r for _, r in ledger.read_chunks(out / "ledger/commits.bin")]
            num_made = sum(int((r["kind"] == ledger.MADE).sum()) for r in made)
            bad += not same or outcome.exit_code != 0 or bool(outcome.touched)
            bad += num_made != len(expected)
            print(
                f"round {rounds}: exit {outcome.exit_code}, "
                f"{'same ids and bytes' if same else 'OTHER ids or bytes'}, "
                f"{num_made} rows committed, {len(outcome.touched)} finished files touched",
                flush=True,
            )
    print(f"{kills} kills, {rounds} rounds, {bad} of them wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
