"""Rows in = made + rejected + failed, after any stops and reruns, over any mix of rows."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fake_speaker import FakeSpeaker
from ttsbatch.pipeline import synthesize
from ttsbatch.plan import make_plan
from ttsbatch.progress import Quiet
from ttsbatch.report import RunReport
from ttsbatch.stop import Stop
from ttsbatch.types import Failure, ModelCard, Segment, Waveform

ROWS = st.lists(
    st.sampled_from(
        [
            *('{"text": "Good number %d."}', '{"id": "same", "text": "A repeated id, %d."}'),
            *('{"text": "refuse %d"}', '{"text": "mumble %d times."}', '{"text": ""}', "broken"),
            *(
                '{"text": 1}',
                '{"text": "x", "voice": "nobody"}',
                "",
                '{"id": "%d", "text": "Word."}',
            ),
        ]
    ),
    min_size=1,
    max_size=12,
)


class Brief(FakeSpeaker):
    """Speaks a fifth of a second."""

    def _speak(self, segment: Segment) -> Waveform | tuple[Segment, Failure]:
        spoken = super()._speak(segment)
        if not isinstance(spoken, Waveform):
            return spoken
        samples = np.ascontiguousarray(spoken.samples[: self.rate_hz // 5])
        return Waveform(segment, samples, self.rate_hz, "stop", 0)


def run(corpus: Path, out: Path, stop_after: int | None) -> RunReport:
    stop, left = Stop(), [stop_after]

    def on_spoken(segment: Segment) -> None:
        if left[0] is not None:
            left[0] -= 1
            if left[0] <= 0:
                stop.request()

    def load(card: ModelCard, plan: Any) -> FakeSpeaker:
        return Brief(card, on_spoken=on_spoken)

    plan = make_plan({"corpus": [str(corpus)], "retries": 1})
    with open("/dev/null", "w") as null:
        return synthesize(plan, out, Quiet(null), stop, load)


@given(ROWS, st.lists(st.integers(1, 6), max_size=3))
@settings(max_examples=15)
def test_rows_in_are_rows_made_rejected_and_failed(lines: list[str], stops: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus, out = Path(folder) / "c.jsonl", Path(folder) / "out"
        rows = [line % i if "%d" in line else line for i, line in enumerate(lines)]
        corpus.write_text('{"text": "The first row is good."}\n' + "\n".join(rows))
        num_rows = 1 + sum(1 for row in rows if row)
        for stop_after in (*stops, None):
            counts = run(corpus, out, stop_after).values["utterances"]
            assert counts["in"] == num_rows
            assert counts["made"] + counts["rejected"] + counts["failed"] <= num_rows
        assert counts["made"] + counts["rejected"] + counts["failed"] == num_rows
        made, failed = (
            [json.loads(x) for x in (out / name).read_text("utf8").splitlines()]
            for name in ("manifest.jsonl", "failures.jsonl")
        )
        in_file = {i for i, row in enumerate(rows, 2) if row} | {1}
        assert sorted([m["line"] for m in made] + [f["line"] for f in failed]) == sorted(in_file)
        assert len({m["id"] for m in made}) == len(made)
