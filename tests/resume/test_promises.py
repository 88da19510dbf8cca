"""What a rerun does to rows edited, rejected, lost or left: each id stays in one place."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from tests.families import CLONING, Family
from tests.test_pipeline import Bench, rows
from ttsbatch.cli.app import app
from ttsbatch.errors import SinkError
from ttsbatch.verify import verify_run

Rows = Callable[..., Path]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "out")


def found(bench: Bench) -> dict[str, int]:
    """What `verify` finds, by kind."""
    findings = verify_run(bench.out).findings
    return {kind: f.count for kind, f in findings.by_kind.items()}


def ids(bench: Bench, name: str) -> list[str]:
    return [row["id"] for row in bench.lines(name)]


def state(out: Path) -> dict[str, tuple[bytes, int]]:
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in out.rglob("*") if p.is_file()}


def test_row_edited_into_an_invalid_one_leaves_the_manifest_and_its_audio_goes(
    bench: Bench, write_rows: Rows
) -> None:
    bench.run(write_rows(*rows("one", "two", "three")))
    report = bench.run(write_rows(*rows("one", "", "three")))
    assert ids(bench, "manifest.jsonl") == ["r0", "r2"]
    assert ids(bench, "failures.jsonl") == ["r1"]
    assert not (bench.out / "audio/shard-00000/r1.wav").exists()
    assert found(bench) == {}
    counts = report.values["utterances"]
    assert (counts["in"], counts["made"], counts["rejected"]) == (3, 2, 1)
    assert sum(part["utterances"] for part in report.values["length_buckets"].values()) == 2
    before = state(bench.out)
    bench.run(write_rows(*rows("one", "", "three")))
    assert state(bench.out) == before


def test_row_edited_and_back_is_made_again(bench: Bench, write_rows: Rows) -> None:
    bench.run(write_rows(*rows("one", "two")))
    bench.run(write_rows(*rows("one", "")))
    bench.run(write_rows(*rows("one", "two")))
    assert ids(bench, "manifest.jsonl") == ["r0", "r1"]
    assert bench.lines("failures.jsonl") == []
    assert found(bench) == {}


def test_edited_row_that_fails_takes_its_old_version_out(bench: Bench, write_rows: Rows) -> None:
    bench.run(write_rows(*rows("one", "two")))
    report = bench.run(write_rows(*rows("one", "refuse")))
    assert ids(bench, "manifest.jsonl") == ["r0"]
    assert ids(bench, "failures.jsonl") == ["r1"]
    assert found(bench) == {}
    assert sum(part["utterances"] for part in report.values["length_buckets"].values()) == 1


def test_later_duplicate_of_a_finished_row_takes_nothing_out(
    bench: Bench, write_rows: Rows
) -> None:
    bench.run(write_rows(*rows("one", "two")))
    bench.run(write_rows(*rows("one", "two"), {"id": "r1", "text": "three"}))
    assert ids(bench, "manifest.jsonl") == ["r0", "r1"]
    assert found(bench) == {}


each_cloning = pytest.mark.parametrize("family", CLONING, ids=lambda f: f.name)


@each_cloning
@pytest.mark.parametrize("broken", [None, b"not audio"])
def test_finished_row_whose_reference_is_away_is_kept_and_said(
    bench: Bench, write_rows: Rows, tmp_path: Path, family: Family, broken: bytes | None
) -> None:
    clip = tmp_path / "clip.wav"
    soundfile.write(clip, np.random.default_rng(0).normal(0, 0.1, 24_000), 24_000)
    corpus = write_rows({"id": "a", "text": "one", "ref_audio": "clip.wav"})
    bench.run(corpus, model=family.model)
    before = state(bench.out)
    shutil.move(clip, tmp_path / "away.wav")
    if broken is not None:
        clip.write_bytes(broken)
    report = bench.run(corpus, model=family.model)
    assert state(bench.out) == before
    assert bench.speaker is None
    assert report.values["utterances"]["made"] == 1
    assert any("kept as it was made" in m for m in bench.watcher.messages)
    assert found(bench) == {"changed": 1}  # said, and no damage
    said = CliRunner().invoke(app, ["verify", str(bench.out)]).stdout
    assert re.search(r"^changed: 1 \(.* or whose reference changed or is away\)$", said, re.M)
    shutil.move(tmp_path / "away.wav", clip)
    bench.run(corpus, model=family.model)
    assert bench.speaker is None
    assert found(bench) == {}


@each_cloning
def test_new_row_without_its_reference_is_rejected(
    bench: Bench, write_rows: Rows, family: Family
) -> None:
    corpus = write_rows({"id": "a", "text": "one", "ref_audio": "no.wav"})
    bench.run(corpus, model=family.model)
    assert [f["reason"] for f in bench.lines("failures.jsonl")] == ["ref_missing"]


@pytest.mark.parametrize("size", [None, 0, 43, 1000])
def test_lost_or_torn_audio_is_made_again_byte_for_byte_and_said(
    bench: Bench, write_rows: Rows, size: int | None
) -> None:
    corpus = write_rows(*rows("one", "two", "three"))
    bench.run(corpus)
    before = {p.name: p.read_bytes() for p in bench.out.rglob("*.wav")}
    path = bench.out / "audio/shard-00000/r1.wav"
    if size is None:
        path.unlink()
    else:
        os.truncate(path, size)
    report = bench.run(corpus)
    assert bench.asked == [("r1", 0)]
    assert {p.name: p.read_bytes() for p in bench.out.rglob("*.wav")} == before
    assert "made again, since gone or cut short: audio/shard-00000/r1.wav" in bench.watcher.messages
    assert report.values["utterances"]["made"] == 3
    assert found(bench) == {}


def test_several_lost_files_are_counted_in_one_line(bench: Bench, write_rows: Rows) -> None:
    corpus = write_rows(*rows("one", "two", "three"))
    bench.run(corpus)
    shutil.rmtree(bench.out / "audio")
    bench.run(corpus)
    (message,) = [m for m in bench.watcher.messages if "made again" in m]
    assert message.endswith(".wav and 2 more")
    assert found(bench) == {}


def test_names_that_json_escapes_are_found_whole(bench: Bench, write_rows: Rows) -> None:
    names = ['a"b', "täst", "a\\b", "\u2028x", "日本", "x" * 300, "p%q"]
    corpus = write_rows(*({"id": n, "text": f"word {i}"} for i, n in enumerate(names)))
    bench.run(corpus)
    bench.run(corpus)
    assert bench.speaker is None


def test_lost_row_that_left_the_corpus_is_named_by_verify(bench: Bench, write_rows: Rows) -> None:
    bench.run(write_rows(*rows("one", "two")))
    (bench.out / "audio/shard-00000/r1.wav").unlink()
    bench.run(write_rows(*rows("one")))
    assert found(bench) == {"file_missing": 1, "not_in_input": 1}


def test_row_taken_from_the_corpus_stays_and_verify_has_a_word_for_it(
    bench: Bench, write_rows: Rows
) -> None:
    bench.run(write_rows(*rows("one", "two")))
    report = bench.run(write_rows(*rows("one")))
    assert ids(bench, "manifest.jsonl") == ["r0", "r1"]
    assert (report.values["utterances"]["in"], report.values["utterances"]["made"]) == (1, 1)
    assert found(bench) == {"not_in_input": 1}


def test_order_in_which_rows_fail_changes_no_byte(bench: Bench, write_rows: Rows) -> None:
    failing = [f"refuse {'very ' * i}much" for i in range(6)]
    corpus = write_rows(*rows("one", *failing), "not json")
    bench.run(corpus)
    before = state(bench.out)
    bench.run(corpus, {"backwards": True})
    assert len(bench.asked) == 6
    assert state(bench.out) == before


def test_failed_row_that_is_made_later_leaves_the_failures(bench: Bench, write_rows: Rows) -> None:
    corpus = write_rows(*rows("one", "refuse a", "refuse b", "refuse c"))
    bench.run(corpus)
    bench.run(corpus, {"forgives": "refuse b"})
    assert ids(bench, "failures.jsonl") == ["r1", "r3"]
    assert ids(bench, "manifest.jsonl") == ["r0", "r2"]
    assert found(bench) == {}


def test_rejected_rows_are_not_asked_of_the_model_again(bench: Bench, write_rows: Rows) -> None:
    corpus = write_rows(*rows("one", "", "refuse"))
    bench.run(corpus)
    bench.run(corpus)
    assert bench.asked == [("r2", 0)]


def test_manifest_changed_by_hand_is_refused_before_a_row_is_judged(
    bench: Bench, write_rows: Rows
) -> None:
    corpus = write_rows(*rows(*[f"word {i}" for i in range(5)]))
    bench.run(corpus, shard_size=2)
    path = bench.out / "manifest.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0], lines[1] = lines[0][:-3], lines[0][-3:] + lines[1]
    path.write_bytes(b"".join(lines))
    lines[0], lines[1] = b" " + lines[0], lines[1][1:]
    path.write_bytes(b"".join(lines))
    with pytest.raises(SinkError, match="changed since it was written"):
        bench.run(corpus, shard_size=2)
