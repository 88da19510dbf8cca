"""What must hold of any corpus, however broken: every row is a good utterance or a good failure."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ttsbatch.corpus.plainjson import plain_json
from ttsbatch.corpus.scan import scan
from ttsbatch.plan import CorpusPlan, RowDefaults
from ttsbatch.production import cut
from ttsbatch.sinks.failures import failure_line
from ttsbatch.sinks.jsonlines import encode_line
from ttsbatch.sinks.keys import content_key
from ttsbatch.sinks.names import safe_path
from ttsbatch.text.clean import has_speech
from ttsbatch.types import Failure, ModelCard, Utterance

REASONS = frozenset(
    (
        *("invalid_json", "not_an_object", "missing_text", "empty_text", "wrong_type", "bad_value"),
        *("bad_unicode", "duplicate_id", "unknown_voice", "unknown_language", "ref_missing"),
        *("unsupported_language", "ref_unreadable", "ref_silent", "ref_too_short", "ref_too_long"),
        *("ref_and_voice", "unsupported_option", "too_long"),
    )
)


@dataclass
class Found:
    """What a scan gave."""

    num_good: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    slowest: tuple[str, int] = ("", 0)  # source, line

    @property
    def num_rows(self) -> int:
        return self.num_good + self.reasons.total()


def num_rows_of(data: bytes) -> int:
    """Lines that are not blank: what a JSONL corpus has to give rows for."""
    return sum(1 for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip())


def scan_all(
    paths: Iterable[Path], card: ModelCard, defaults: RowDefaults, **plan: object
) -> Found:
    """Scan files, look at every row that comes, and count."""
    found, ids = Found(), set()
    corpus = CorpusPlan(tuple(map(str, paths)), **plan)  # type: ignore[arg-type]
    rows = scan(corpus, defaults, card)
    while True:
        started = time.process_time()
        row = next(rows, None)
        if isinstance(row, Utterance):
            check_utterance(row, card)
            assert row.id not in ids
            ids.add(row.id)
            found.num_good += 1
        elif isinstance(row, Failure):
            check_failure(row)
            found.reasons[row.reason] += 1
        else:
            return found
        elapsed = time.process_time() - started
        if elapsed > found.slowest_s:
            found.slowest_s, found.slowest = elapsed, (row.source, row.line)


def check_utterance(u: Utterance, card: ModelCard) -> None:
    """All that the rest of a run relies on."""
    assert u.id
    assert has_speech(u.spoken_text)
    assert u.spoken_text.isprintable()
    assert 0 <= u.seed < 2**63
    assert u.voice is None or u.voice in card.voices
    assert u.language in (*card.languages, "auto")
    assert u.line >= 1
    assert u.max_seconds is None or 0 < u.max_seconds < float("inf")
    json.loads(encode_line(plain_json(u.given)).decode("utf8"), parse_constant=_refuse)
    content_key(u, "settings")
    path = safe_path(u.id, u.file_name)
    assert "\0" not in path
    path.encode("utf8")
    pieces = [s.text for s in cut(u)]
    assert "".join("".join(pieces).split()) == "".join(u.spoken_text.split())
    assert all(has_speech(p) for p in pieces)


def check_failure(failure: Failure) -> None:
    """A line of failures.jsonl that any JSON reader takes, and a reason of the known ones."""
    assert failure.reason in REASONS
    assert failure.message
    line = failure_line(failure).decode("utf8")
    assert line.count("\n") == 1
    json.loads(line, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in an output file")
