"""survey_corpus(): the first pass of a run alone, and an estimate of the second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ttsbatch.corpus.open import spooled_stdin
from ttsbatch.corpus.scan import scan
from ttsbatch.models import typical_speed
from ttsbatch.pipeline import is_kept, open_plan
from ttsbatch.plan import RunPlan
from ttsbatch.reasons import Reasons, Rejects
from ttsbatch.sinks.peek import peek
from ttsbatch.text.duration import expected_seconds
from ttsbatch.types import Failure

NUM_EXAMPLES = 5  # of each reason
BYTES_PER_ROW = 2_048  # manifest line, ledger entry, WAV header, slack of the last disk block


@dataclass(slots=True)
class Survey:
    """What a corpus holds."""

    model: str
    num_good: int = 0
    num_finished: int | None = None  # of those, made by an earlier session; None: OUT not looked at
    audio_s: float = 0.0  # estimated from the texts
    wall_s: float | None = None  # None: nothing is known of the model's speed
    disk_bytes: int = 0
    rejects: dict[str, Rejects] = field(default_factory=dict)  # by reason

    @property
    def num_rejected(self) -> int:
        """Rows that cannot be made."""
        return sum(r.count for r in self.rejects.values())

    @property
    def num_to_make(self) -> int:
        """Rows that a run would make."""
        return self.num_good - (self.num_finished or 0)

    @property
    def num_rows(self) -> int:
        """All rows."""
        return self.num_good + self.num_rejected

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        rejects = {
            reason: {
                "count": r.count,
                "examples": [
                    {"source": f.source, "line": f.line, "id": f.utterance_id, "message": f.message}
                    for f in r.examples
                ],
            }
            for reason, r in sorted(self.rejects.items())
        }
        rows = {"in": self.num_rows, "good": self.num_good, "rejected": self.num_rejected}
        if self.num_finished is not None:
            rows |= {"finished": self.num_finished, "to_make": self.num_to_make}
        return {
            "model": self.model,
            "rows": rows,
            "audio_seconds": round(self.audio_s, 3),
            "wall_seconds": None if self.wall_s is None else round(self.wall_s, 3),
            "disk_bytes": self.disk_bytes,
            "rejects": rejects,
        }


def survey_corpus(
    plan: RunPlan, warn: Callable[[str], None], out: Path | str | None = None
) -> Survey:
    """Check every row and reference as `synthesize` does, without a model and without output.

    Args:
        plan: the run to come.
        warn: told of what is odd but no fault.
        out: where it will go. What is finished there is not made again, and what would refuse the
            run is refused; nothing is written.

    Raises:
        TTSBatchError: as `synthesize`, for what ends a run before a model is loaded.
    """
    card = open_plan(plan)
    reasons = Reasons(NUM_EXAMPLES)
    found = Survey(card.name, rejects=reasons.by_reason)
    made = None if out is None else peek(out, plan, card)
    num_finished = num_to_make = 0
    with spooled_stdin(plan.corpus.sources) as stdin:
        for row in scan(plan.corpus, plan.rows, card, stdin=stdin, warn=warn):
            if isinstance(row, Failure):
                if made is not None and is_kept(row, made.has):
                    num_finished += 1
                else:
                    reasons.add(row)
            elif made is not None and made.is_finished(row):
                num_finished += 1
            else:
                num_to_make += 1
                seconds = expected_seconds(row.spoken_text, row.language)
                found.audio_s += min(seconds, row.max_seconds or seconds)
    found.num_good = num_finished + num_to_make
    found.num_finished = None if made is None else num_finished
    speed = typical_speed(card, plan.engine)
    found.wall_s = None if speed is None else found.audio_s / speed
    rate_hz = plan.audio.rate_of(card.sample_rate_hz)
    audio_bytes = plan.audio.file_format.estimate_bytes(found.audio_s, rate_hz)
    found.disk_bytes = round(audio_bytes) + found.num_to_make * BYTES_PER_ROW
    return found
