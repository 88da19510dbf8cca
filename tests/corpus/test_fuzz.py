"""Thousands of broken lines: no crash, no hang, and the counts add up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fake_speaker import FakeSpeaker
from ttsbatch.pipeline import synthesize
from ttsbatch.plan import RowDefaults, make_plan
from ttsbatch.progress import make_progress
from ttsbatch.types import Failure, ModelCard, Segment, Waveform

from . import hostile
from .conftest import ALL_CARDS
from .fuzzing import num_rows_of, scan_all

MOST_S = 3.0  # for one row of at most 50,000 characters, of processor time


class ShortSpeaker(FakeSpeaker):
    """A tenth of a second for every text, however long; every hundredth is refused."""

    def speak(self, segments: Iterable[Segment]) -> Iterator[Waveform | tuple[Segment, Failure]]:
        rng = np.random.default_rng(0)
        for i, segment in enumerate(segments):
            u = segment.utterance
            if i % 100 == 99:
                yield segment, Failure(u.source, u.line, u.id, "engine", "engine_error", "refused")
            else:
                samples = rng.normal(0, 3_000, self.rate_hz // 10).astype(np.int16)
                yield Waveform(segment, samples, self.rate_hz, "stop", 0)


def synthesize_lines(lines: list[bytes], folder: Path) -> dict[str, int]:
    """`synth` of the lines with a fake speaker; the counts of its report, checked."""
    corpus, out = folder / "lines.jsonl", folder / "out"
    corpus.write_bytes(b"\n".join(lines))

    def load(card: ModelCard, plan: Any) -> FakeSpeaker:
        return ShortSpeaker(card)

    plan = make_plan({"corpus": [str(corpus)], "retries": 0})
    with open("/dev/null", "w") as null:
        report = synthesize(plan, out, make_progress(null, quiet=True), load=load)
    counts: dict[str, int] = report.values["utterances"]
    made = [json.loads(x) for x in (out / "manifest.jsonl").read_bytes().splitlines()]
    failed = [json.loads(x) for x in (out / "failures.jsonl").read_bytes().splitlines()]
    assert counts["in"] == num_rows_of(corpus.read_bytes())
    assert counts["in"] == counts["made"] + counts["rejected"] + counts["failed"]
    assert counts["made"] == len(made) == len({m["id"] for m in made})
    assert counts["rejected"] + counts["failed"] == len(failed)
    assert {m["line"] for m in made}.isdisjoint({f["line"] for f in failed})
    assert len({m["audio_filepath"].casefold() for m in made}) == len(made)
    assert all((out / m["audio_filepath"]).is_file() for m in made)
    return counts


@pytest.mark.parametrize("card", ALL_CARDS, ids=lambda c: c.name)
def test_every_broken_line_is_one_failure_and_every_good_one_an_utterance(
    tmp_path: Path, card: ModelCard
) -> None:
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(b"\n".join(hostile.lines(1_000, seed=ALL_CARDS.index(card), huge_chars=9_000)))
    found = scan_all([path], card, RowDefaults(voice=(*card.voices, None)[0]))
    assert found.num_rows == num_rows_of(path.read_bytes())
    assert found.num_good > 100 or card.needs_reference
    assert len(found.reasons) >= 8
    assert found.slowest_s < MOST_S, found.slowest


def test_a_run_over_broken_lines_makes_or_reports_each(tmp_path: Path) -> None:
    lines = list(hostile.lines(1_000, seed=9, huge_chars=3_000))
    counts = synthesize_lines(lines, tmp_path)
    assert counts["made"] > 100
    assert counts["failed"] > 0
