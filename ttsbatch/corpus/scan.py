"""scan(): a corpus as checked utterances, each id once.

A run scans its corpus twice, to report the rejects before the model loads and to produce; both
passes give the same rows, so long as the files stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ttsbatch.corpus.idset import IdSet
from ttsbatch.corpus.plainjson import plain_json
from ttsbatch.corpus.read import read_corpus
from ttsbatch.corpus.references import References
from ttsbatch.corpus.rows import RowChecker, Warn
from ttsbatch.plan import CorpusPlan, RowDefaults
from ttsbatch.types import Failure, ModelCard, Record, Utterance


def scan(
    plan: CorpusPlan,
    defaults: RowDefaults,
    card: ModelCard,
    *,
    stdin: Path | None = None,
    warn: Warn | None = None,
    references: References | None = None,
) -> Iterator[Utterance | Failure]:
    """Every row of the corpus, checked, in order; `plan.limit` counts the failed ones too.

    The first row of an id holds it, also where that row is rejected for something else.

    Args:
        plan: what to read.
        defaults: what a row gets where it says nothing itself.
        card: the model that is to speak.
        stdin: where `spooled_stdin` kept the standard input, where "-" is a source.
        warn: told once of each thing that is odd but no fault. None: nobody is told; meant for the
            second pass.
        references: handed to both passes, so that a clip is looked at once.

    Raises:
        PlanError: options that do not fit the model or the files; at once.
        CorpusError: a source that is not there (at once) or cannot be read (when it is reached).
    """
    checker = RowChecker(
        defaults,
        card,
        unsupported_language=plan.unsupported_language,
        warn=warn,
        references=references,
        mapping=plan.mapping,
    )
    return _scan(islice(read_corpus(plan, stdin), plan.limit), checker)


def _scan(rows: Iterator[Record | Failure], checker: RowChecker) -> Iterator[Utterance | Failure]:
    held = IdSet()
    for row in rows:
        checked = row if isinstance(row, Failure) else checker.resolve(row)
        row_id = checked.utterance_id if isinstance(checked, Failure) else checked.id
        if row_id is not None and not held.add(row_id):
            assert isinstance(row, Record)
            yield _duplicate(row, row_id)
        else:
            yield checked


def _duplicate(row: Record, row_id: str) -> Failure:
    message = f"id {row_id!r} is that of an earlier row; the first one counts"
    return Failure(
        row.source, row.line, row_id, "validate", "duplicate_id", message, plain_json(row.fields)
    )
