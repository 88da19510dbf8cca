"""Taking replaced rows out of manifest and ledger, both at once.

The two new files are made durable first, then an intent says so; from there on the renames are
only finished, after a crash by the next run.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ttsbatch.sinks.durable import remove_files, replace_file, sync_path, write_file
from ttsbatch.sinks.ledger import MAGIC, Records, live_rows, seal
from ttsbatch.sinks.manifest import copy_lines, read_lines
from ttsbatch.sinks.mirror import Mirror
from ttsbatch.sinks.packed import drop_packed_rows, split_packed


def finish_compaction(manifest: Path, commits: Path) -> None:
    """Complete a compaction that a crash cut short; drop one that had not come to its intent."""
    new_manifest, new_commits, intent = _paths(commits)
    if intent.exists():
        if new_manifest.exists():
            os.replace(new_manifest, manifest)
            sync_path(manifest.parent)
        if new_commits.exists():
            os.replace(new_commits, commits)
        sync_path(commits.parent)
        intent.unlink()
        sync_path(commits.parent)
    for leftover in (new_manifest, new_commits):
        leftover.unlink(missing_ok=True)


def compact(
    out: Path,
    manifest: Path,
    commits: Path,
    temp_folder: Path,
    size_bytes: int,
    mirror: Mirror,
) -> None:
    """Remove the replaced rows of a ledger of `size_bytes`: files, manifest lines, records."""
    live, dead, sessions = live_rows(commits, size_bytes)
    gone = _replaced_files(manifest, live, dead)
    files = [path for path in gone if not split_packed(path)]
    remove_files([out / path for path in files], out)
    mirror.removed(files)
    packed = sorted((found[0], path) for path in gone if (found := split_packed(path)))
    for shard, rows in itertools.groupby(packed, key=lambda pair: pair[0]):
        with mirror.brought(shard):
            drop_packed_rows(out, [path for _, path in rows], temp_folder)
    new_manifest, new_commits, intent = _paths(commits)
    moved = copy_lines(manifest, live, new_manifest)
    write_file(new_commits, MAGIC + seal(np.concatenate([sessions, moved])))
    sync_path(new_commits)
    replace_file(intent, b"{}", temp_folder)
    finish_compaction(manifest, commits)


def whole_logs(out: Path) -> tuple[Path, Path, bool]:
    """Where manifest and ledger of an OUT are whole, without a change to it.

    Returns:
        Manifest, ledger, and whether a compaction was cut short: then the new pair is whole, and
        not all renamed yet.
    """
    manifest, commits = out / "manifest.jsonl", out / "ledger" / "commits.bin"
    new_manifest, new_commits, intent = _paths(commits)
    if not intent.exists():
        return manifest, commits, False
    manifest = new_manifest if new_manifest.exists() else manifest
    return manifest, new_commits if new_commits.exists() else commits, True


def _paths(commits: Path) -> tuple[Path, Path, Path]:
    folder = commits.parent
    return folder / "manifest.new", folder / "commits.new", folder / "compaction"


def _replaced_files(manifest: Path, live: Records, dead: Records) -> list[str]:
    """The files that only replaced rows name."""
    replaced = np.isin(live["id_hi"], dead["id_hi"])
    in_use = {
        path for line in read_lines(manifest, live[replaced]) for path in files_of(json.loads(line))
    }
    named = {path for line in read_lines(manifest, dead) for path in files_of(json.loads(line))}
    return sorted(named - in_use)


def files_of(row: Mapping[str, Any]) -> list[str]:
    """The files that a manifest line names, relative to OUT."""
    return [p for p in (row["audio_filepath"], row.get("codes_filepath")) if p]
