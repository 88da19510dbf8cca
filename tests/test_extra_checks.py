"""Checks with a model of their own, through the pipeline: measured, recorded, retried."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.test_pipeline import Bench
from ttsbatch.cli.app import app
from ttsbatch.errors import PlanError
from ttsbatch.plan import ChecksPlan
from ttsbatch.quality.asr import AsrCheck
from ttsbatch.quality.extras import ExtraCheck, Measured
from ttsbatch.stop import Stop
from ttsbatch.types import ShardRecord

Rows = Callable[..., Path]


class Listener:
    """Hears the text of a row from its `hears`-th attempt on; before, nothing."""

    def __init__(self, hears: dict[str, int], pause_s: float = 0.0) -> None:
        self.hears, self.pause_s = hears, pause_s
        self.heard: list[tuple[str, int]] = []

    name = "asr"

    def measure(self, take: ShardRecord) -> Measured:
        time.sleep(self.pause_s)
        row_id = take.utterance.id
        self.heard.append((row_id, take.attempts))
        text = take.utterance.spoken_text if take.attempts >= self.hears.get(row_id, 1) else ""
        return AsrCheck(lambda wave, language: text, 0.3).measure(take)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Listener], Bench]:
    def make(listener: Listener) -> Bench:
        def load(plan: ChecksPlan) -> list[ExtraCheck]:
            assert plan.asr == "whisper"
            return [listener]

        monkeypatch.setattr("ttsbatch.pipeline.check_extras", lambda plan: None)
        monkeypatch.setattr("ttsbatch.pipeline.load_extras", load)
        return Bench(tmp_path / "out")

    return make


def rows(count: int) -> list[dict[str, str]]:
    words = ["harbour", "morning", "ferry", "station", "letter", "garden", "winter", "bridge"]
    return [{"id": f"r{i}", "text": f"The {words[i % 8]} is a long way off"} for i in range(count)]


def test_what_was_heard_is_recorded_and_wrong_words_are_retried(
    bench: Callable[[Listener], Bench], write_rows: Rows
) -> None:
    listener = Listener({"r2": 2, "r5": 9}, pause_s=0.005)
    run = bench(listener)
    report = run.run(write_rows(*rows(8)), check_asr="whisper").values
    assert report["utterances"]["made"] == 8
    assert report["flags"] == {"wrong_words": 1}
    attempts = {m["id"]: m["attempts"] for m in run.lines("manifest.jsonl")}
    assert attempts == {f"r{i}": {2: 2, 5: 3}.get(i, 1) for i in range(8)}
    assert run.made["r2"]["checks"]["wer"] == 0
    assert run.made["r0"]["checks"]["transcript"] == "The harbour is a long way off"
    assert run.made["r5"]["checks"]["wer"] == 1
    assert run.made["r5"]["checks"]["verdict"] == "flag"


def test_a_take_that_the_cheap_checks_flag_is_not_listened_to_before_its_last_attempt(
    bench: Callable[[Listener], Bench], write_rows: Rows
) -> None:
    listener = Listener({})
    run = bench(listener)
    run.run(write_rows({"id": "a", "text": "mumble 9 word"}), check_asr="whisper", retries=2)
    assert listener.heard == [("a", 3)]
    assert run.made["a"]["checks"]["reasons"] == ["silent"]


def test_rows_that_are_being_heard_at_a_stop_are_kept(
    bench: Callable[[Listener], Bench], write_rows: Rows
) -> None:
    listener = Listener({}, pause_s=0.01)
    run = bench(listener)
    corpus = write_rows(*rows(12))
    run.run(corpus, {"on_spoken": lambda s: run.stop.request()}, check_asr="whisper")
    first = set(run.made)
    assert first
    run.stop = Stop()
    run.run(corpus, check_asr="whisper")
    assert set(run.made) == {f"r{i}" for i in range(12)}
    assert {row_id for row_id, _ in run.asked} == {f"r{i}" for i in range(12)} - first


def test_other_checks_than_before_are_refused(
    bench: Callable[[Listener], Bench], write_rows: Rows
) -> None:
    run = bench(Listener({}))
    corpus = write_rows(*rows(2))
    run.run(corpus, check_asr="whisper")
    with pytest.raises(PlanError, match=r"max-wer was 0\.3, now 0\.1"):
        run.run(corpus, check_asr="whisper", max_wer=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--check-dnsmos", "nowhere"], "no file nowhere"),
        (["--check-speaker", "encoder.onnx"], "clones no references"),
        (["--min-mos", "3"], "expected --check-dnsmos"),
    ],
)
def test_a_check_that_cannot_be_made_ends_with_2_before_anything_is_written(
    tmp_path: Path, write_rows: Rows, options: list[str], message: str
) -> None:
    out = tmp_path / "out"
    args = ["synth", str(write_rows(*rows(1))), "-o", str(out), "--quiet", *options]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not out.exists()
