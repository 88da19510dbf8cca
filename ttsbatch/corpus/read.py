"""read_corpus(): the files of a plan as one stream of rows, none of them checked yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ttsbatch.corpus.fields import check_mapping
from ttsbatch.corpus.jsonl import read_jsonl
from ttsbatch.corpus.open import CorpusFile, expand
from ttsbatch.corpus.parquet import read_parquet
from ttsbatch.corpus.table import read_table, read_txt
from ttsbatch.errors import CorpusError, PlanError
from ttsbatch.plan import CorpusPlan
from ttsbatch.types import Failure, Record


def read_corpus(plan: CorpusPlan, stdin: Path | None = None) -> Iterator[Record | Failure]:
    """Every row of the corpus, file by file, and a failure for each that is no row.

    The sources are looked up by the call itself; the files are read as the iterator goes. A batch
    or a line is in memory at a time, never a file.

    Args:
        plan: sources, mapping, delimiter, header. The limit and the row rules are `scan`'s.
        stdin: where `spooled_stdin` kept the standard input, where "-" is a source.

    Raises:
        PlanError: a mapping of no field of ours; table options without a table.
        CorpusError: a source that is missing, of an unknown kind or unreadable, or one without a
            text column; the latter two when the iterator gets there.
    """
    check_mapping(plan.mapping)
    files = expand(plan.sources, stdin)
    tables = ("csv", "tsv") if plan.delimiter is None else ("csv", "tsv", "txt")
    if not any(f.kind in tables for f in files):
        if plan.delimiter is not None:
            raise PlanError("--delimiter is for .csv, .tsv and .txt files; there is none")
        if not plan.header:
            raise PlanError("--no-header is for .csv and .tsv files; there is none")
    return _read(files, plan)


def _read(files: list[CorpusFile], plan: CorpusPlan) -> Iterator[Record | Failure]:
    for file in files:
        try:
            yield from _reader(file, plan)
        except (OSError, EOFError) as e:
            raise CorpusError(f"{file.source}: cannot be read to its end: {e}") from e


def _reader(file: CorpusFile, plan: CorpusPlan) -> Iterator[Record | Failure]:
    if file.kind == "jsonl":
        return read_jsonl(file, plan)
    if file.kind == "parquet":
        return read_parquet(file, plan)
    if file.kind == "txt" and plan.delimiter is None:
        return read_txt(file)
    return read_table(file, plan)
