"""find_rows(): some rows of a corpus by their ids, quicker than by checking all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ttsbatch.corpus.read import read_corpus
from ttsbatch.corpus.references import References
from ttsbatch.corpus.rows import RowChecker
from ttsbatch.corpus.scan import scan
from ttsbatch.plan import RunPlan
from ttsbatch.types import Failure, ModelCard, Record, Utterance

Place = tuple[str, int]  # source, line


def find_rows(
    plan: RunPlan,
    card: ModelCard,
    wanted: Mapping[str, Place | None],
    is_known: Callable[[Utterance], bool],
) -> dict[str, Utterance | Failure]:
    """The rows of some ids, checked as `scan` does it; ids that no row has are left out.

    A row is looked for where it was, without a check of the others; if what is there is another
    row by now, or says something else, the whole corpus is scanned, limit or no limit.

    Args:
        plan: of the run.
        card: of its model.
        wanted: the ids, with their places where known.
        is_known: whether a row is as it was; then it needs no scan.

    Raises:
        PlanError: the options do not fit the model.
        CorpusError: a source is missing or cannot be read.
    """
    corpus = replace(plan.corpus, limit=None)
    ids = {place: row_id for row_id, place in wanted.items() if place is not None}
    checker = RowChecker(
        plan.rows,
        card,
        unsupported_language=corpus.unsupported_language,
        references=References(),
    )
    found: dict[str, Utterance | Failure] = {}
    for record in read_corpus(corpus) if ids else ():
        row_id = ids.pop((record.source, record.line), None)
        if row_id is not None and isinstance(record, Record):
            row = checker.resolve(record)
            if isinstance(row, Utterance) and row.id == row_id and is_known(row):
                found[row_id] = row
        if not ids:
            break
    left = wanted.keys() - found.keys()
    for row in scan(corpus, plan.rows, card) if left else ():
        row_id = row.utterance_id if isinstance(row, Failure) else row.id
        if row_id in left:
            found[row_id] = row
            left.discard(row_id)
            if not left:
                break
    return found
