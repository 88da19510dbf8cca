"""CSV, TSV and TXT.

Quoting follows RFC 4180 (a quoted cell may hold delimiters, line ends and doubled quotes), with
two exceptions that corpora of speech need. Between `|` there is no quoting at all, as in the
metadata files of LJSpeech and its many followers. Between tabs a cell is quoted only where the
quotes are well formed within one line, so that speech which opens with a quotation mark stays.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator

from ttsbatch.corpus.fields import field_names, from_cell, has_lone_surrogate, require_text
from ttsbatch.corpus.lines import physical_lines
from ttsbatch.corpus.open import CorpusFile, open_stream
from ttsbatch.errors import CorpusError
from ttsbatch.plan import CorpusPlan
from ttsbatch.types import Failure, Record

_MAX_RECORD_LINES = 1000  # a quote that is open longer was never meant as one

_TAB_CELL = re.compile(r'"((?:[^"]|"")*)"(?=\t|\Z)|([^\t]*)')

Lines = Iterator[tuple[int, str]]
Row = tuple[int, list[str] | None, str]  # first line, cells (None: broken), the text it came from


def read_table(file: CorpusFile, plan: CorpusPlan) -> Iterator[Record | Failure]:
    """The rows of a CSV or TSV file, or of a TXT file with --delimiter.

    Cells of fields that are numbers or true/false are converted; an empty cell is None.

    Raises:
        CorpusError: the file cannot be read, has no header, or no text column.
    """
    delimiter = plan.delimiter or ("\t" if file.kind == "tsv" else ",")
    with open_stream(file) as stream:
        rows = _rows(_decoded(stream, file.source), delimiter)
        first = next(rows, None)
        if first is None:
            if plan.header:
                raise CorpusError(
                    f"{file.source}: is empty; expected a header line with a text column"
                )
            return
        if plan.header:
            columns = _header(file.source, first)
        else:
            columns = [str(i) for i in range(len(first[1] or ()))]
            rows = _chain(first, rows)
        require_text(file.source, columns, plan.mapping)
        make = _maker(file.source, file.base, columns, field_names(columns, plan.mapping))
        for row in rows:
            yield make(row)


def read_txt(file: CorpusFile) -> Iterator[Record | Failure]:
    """The lines of a text file, each the text of a row; blank lines are none."""
    base = file.base
    with open_stream(file) as stream:
        for number, line in physical_lines(stream, file.source):
            if not line.strip():
                continue
            text = line.decode("utf8", "surrogateescape")
            if has_lone_surrogate(text):
                yield _bad_unicode(file.source, number, text)
            else:
                yield Record(file.source, number, {"text": text}, base)


def _maker(
    source: str, base: str, columns: list[str], names: list[list[str]]
) -> Callable[[Row], Record | Failure]:
    def make(row: Row) -> Record | Failure:
        number, cells, raw = row
        if has_lone_surrogate(raw):
            return _bad_unicode(source, number, raw)
        if cells is None:
            message = "a quoted cell that is never closed"
            return Failure(source, number, None, "read", "bad_value", message, raw)
        if len(cells) > len(columns):
            message = f"{len(cells)} cells; expected {len(columns)}: {', '.join(columns)}"
            return Failure(source, number, None, "read", "bad_value", message, raw)
        fields = {
            name: from_cell(name, cell)
            for own, cell in zip(names, cells, strict=False)
            for name in own
        }
        return Record(source, number, fields, base)

    return make


def _bad_unicode(source: str, number: int, raw: str) -> Failure:
    shown = raw.encode("utf8", "surrogateescape").decode("utf8", "backslashreplace")
    return Failure(source, number, None, "read", "bad_unicode", "not UTF-8", shown)


def _header(source: str, row: Row) -> list[str]:
    number, cells, raw = row
    if cells is None or has_lone_surrogate(raw):
        raise CorpusError(f"{source}:{number}: the header cannot be read: {raw[:200]!r}")
    columns = [c.strip() or str(i) for i, c in enumerate(cells)]
    if twice := sorted({c for c in columns if columns.count(c) > 1}):
        raise CorpusError(f"{source}:{number}: the header names a column twice: {', '.join(twice)}")
    return columns


def _chain(first: Row, rows: Iterator[Row]) -> Iterator[Row]:
    yield first
    yield from rows


def _decoded(stream: object, source: str) -> Lines:
    for number, line in physical_lines(stream, source):
        # Bad bytes become lone surrogates: they spoil their own row, not the search for its end.
        yield number, line.decode("utf8", "surrogateescape")


def _rows(lines: Lines, delimiter: str) -> Iterator[Row]:
    if delimiter == "|":
        return ((n, line.split("|"), line) for n, line in lines if line.strip())
    if delimiter == "\t":
        return ((n, _split_tabs(line), line) for n, line in lines if line.strip(" \r"))
    return _quoted_rows(lines, lambda text: split_quoted(text, delimiter))


def _quoted_rows(lines: Lines, split: Callable[[str], list[str] | None]) -> Iterator[Row]:
    waiting: deque[tuple[int, str]] = deque()  # read ahead in search of a closing quote

    def following() -> Iterator[tuple[int, str]]:
        while True:
            if waiting:
                yield waiting.popleft()
            elif (line := next(lines, None)) is not None:
                yield line
            else:
                return

    for number, line in following():
        if not line.strip():
            continue
        cells = split(line)
        if cells is None:
            taken = [line]
            ahead: list[tuple[int, str]] = []
            for following_line in following():
                ahead.append(following_line)
                taken.append(following_line[1])
                if '"' in following_line[1] and (cells := split("\n".join(taken))) is not None:
                    break
                if len(ahead) >= _MAX_RECORD_LINES:
                    break
            if cells is None:
                waiting.extendleft(reversed(ahead))
            else:
                line = "\n".join(taken)
        yield number, cells, line


def split_quoted(text: str, delimiter: str) -> list[str] | None:
    """The cells of a record, or None where a quoted cell is still open at its end.

    A cell is quoted if it begins with `"`; what follows the closing quote is kept as it is.
    """
    if '"' not in text:
        return text.split(delimiter)
    cells = []
    at = 0
    while True:
        cell = ""
        if text.startswith('"', at):
            at += 1
            while True:
                end = text.find('"', at)
                if end < 0:
                    return None
                cell += text[at:end]
                at = end + 1
                if not text.startswith('"', at):
                    break
                cell += '"'
                at += 1
        end = text.find(delimiter, at)
        if end < 0:
            cells.append(cell + text[at:])
            return cells
        cells.append(cell + text[at:end])
        at = end + len(delimiter)


def _split_tabs(line: str) -> list[str]:
    if '"' not in line:
        return line.split("\t")
    cells = []
    at = 0
    while True:
        match = _TAB_CELL.match(line, at)
        assert match is not None  # the second branch matches anything
        quoted = match[1]
        cells.append(match[2] if quoted is None else quoted.replace('""', '"'))
        at = match.end() + 1
        if at > len(line):
            return cells
