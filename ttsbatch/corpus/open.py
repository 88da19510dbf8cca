"""From the names on the command line to open streams: globs, URIs, compression, stdin.

Local files are opened by Python, everything behind a URI by `pyarrow.fs`. Every stream gives
plain bytes, already decompressed.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from ttsbatch.errors import CorpusError
from ttsbatch.uri import is_uri

Kind = Literal["jsonl", "parquet", "csv", "tsv", "txt"]
STDIN = "-"

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_EXPECTED = "expected .jsonl, .parquet, .csv, .tsv or .txt, each also with .gz or .zst"
_EXTENSIONS = re.compile(r"\.(?:jsonl|parquet|csv|tsv|txt)(?:\.(?:gz|zst))?$", re.IGNORECASE)
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """One file to read."""

    source: str  # as named, or as the glob found it; "-" for stdin
    path: str  # what to open: `source`, or where stdin was kept
    kind: Kind
    compression: str | None  # gzip, zstd

    @property
    def base(self) -> str:
        """The folder that relative reference paths start from."""
        if self.source == STDIN:
            return "."
        return self.source.rpartition("/")[0] if is_uri(self.source) else _folder(self.source)


def source_stem(source: str) -> str:
    """The name of a source without folder and extensions; "stdin" for "-"."""
    if source == STDIN:
        return "stdin"
    name = source.replace("\\", "/").rpartition("/")[2]
    return _EXTENSIONS.sub("", name)


def expand(sources: Sequence[str], stdin: Path | None = None) -> list[CorpusFile]:
    """Every file that the sources name, in their order, those of a glob sorted.

    Args:
        sources: paths, globs, URIs, "-".
        stdin: where `spooled_stdin` kept the standard input.

    Raises:
        CorpusError: a name that is no file, a glob that finds nothing, an unknown extension.
    """
    files: list[CorpusFile] = []
    for source in sources:
        if source == STDIN:
            if stdin is None:
                raise CorpusError("-: the standard input was not kept; it can be read only once")
            files.append(CorpusFile(STDIN, str(stdin), "jsonl", None))
            continue
        found = _find_uri(source) if is_uri(source) else _find_local(source)
        files += [CorpusFile(name, name, *_format(name)) for name in found]
    return files


@contextmanager
def spooled_stdin(sources: Sequence[str], stream: BinaryIO | None = None) -> Iterator[Path | None]:
    """Keep the standard input in a temporary file, since a run reads its corpus twice.

    Args:
        sources: the sources of the plan; without "-" among them nothing is read.
        stream: read in place of the standard input.

    Yields:
        The file, gone at the end; None where "-" is no source.
    """
    if STDIN not in sources:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="ttsbatch-") as folder:
        path = Path(folder) / "stdin.jsonl"
        try:
            with path.open("wb") as f:
                shutil.copyfileobj(stream or sys.stdin.buffer, f, 1 << 20)
        except OSError as e:
            raise CorpusError(f"-: cannot keep the standard input in {folder}: {e}") from e
        yield path


@contextmanager
def open_stream(file: CorpusFile) -> Iterator[Any]:
    """The decompressed bytes of a file: an object with `read(n)`.

    Raises:
        CorpusError: the file cannot be opened.
    """
    try:
        raw: Any
        if is_uri(file.path):
            filesystem, path = _filesystem(file.path)
            raw = filesystem.open_input_file(path)
        else:
            raw = Path(file.path).open("rb")  # noqa: SIM115 (closed below)
    except OSError as e:
        raise CorpusError(f"{file.source}: cannot be opened: {e.strerror or e}") from e
    with closing(raw):
        if file.compression is None:
            yield raw
            return
        import pyarrow as pa

        if not raw.read(1):  # which is how a failed copy looks, and unpacks to nothing in silence
            raise CorpusError(f"{file.source}: has no bytes at all; expected {file.compression}")
        raw.seek(0)
        with pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), file.compression) as stream:
            yield stream


@contextmanager
def open_seekable(file: CorpusFile) -> Iterator[Any]:
    """As `open_stream`, for formats that are read from the end: unpacks to a temporary file."""
    with open_stream(file) as stream:
        if file.compression is None:
            yield stream
            return
        with tempfile.TemporaryFile(prefix="ttsbatch-") as unpacked:
            while chunk := stream.read(1 << 20):
                unpacked.write(chunk)
            unpacked.seek(0)
            yield unpacked


def _format(name: str) -> tuple[Kind, str | None]:
    stem, ext = os.path.splitext(name)
    compression = _COMPRESSIONS.get(ext.lower())
    if compression:
        stem, ext = os.path.splitext(stem)
    kind = ext.lower().lstrip(".")
    for known in get_args(Kind):
        if kind == known:
            return known, compression
    shown = name[len(stem) :] or "no extension"
    raise CorpusError(f"{name}: unknown kind of corpus ({shown}); {_EXPECTED}")


def _folder(path: str) -> str:
    return os.path.dirname(path) or "."


def _find_local(source: str) -> list[str]:
    if os.path.isdir(source):
        inside = os.path.join(source, "*.jsonl")
        raise CorpusError(f"{source}: is a folder; expected a file, or a glob such as {inside}")
    if os.path.exists(source):
        return [source]
    if not _WILD.search(source):
        raise CorpusError(f"{source}: no such file")
    found = sorted(p for p in glob.glob(source, recursive=True) if os.path.isfile(p))
    if not found:
        raise CorpusError(f"{source}: no file matches")
    return found


def _filesystem(uri: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    try:
        return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]
    except (OSError, ValueError, pa.ArrowException) as e:
        raise CorpusError(f"{uri}: cannot be opened: {e}") from e


def _find_uri(source: str) -> list[str]:
    from pyarrow import fs

    wild = _WILD.search(source)
    # A wildcard is no legal character of a URI, so the file system is asked about what precedes it.
    top = source[: wild.start()].rpartition("/")[0] if wild else source
    filesystem, path = _filesystem(top)
    try:
        info = filesystem.get_file_info(path)
        if wild is None:
            if info.type == fs.FileType.File:
                return [source]
            what = "is a folder" if info.type == fs.FileType.Directory else "no such file"
            raise CorpusError(f"{source}: {what}; expected a file, or a glob")
        pattern = source[len(top) + 1 :].split("/")
        recursive = len(pattern) > 1
        selector = fs.FileSelector(path, recursive=recursive, allow_not_found=True)
        names = [
            i.path[len(path) :].lstrip("/")
            for i in filesystem.get_file_info(selector)
            if i.type == fs.FileType.File
        ]
    except OSError as e:
        raise CorpusError(f"{source}: cannot be listed: {e}") from e
    found = sorted(n for n in names if _matches(n.split("/"), pattern))
    if not found:
        raise CorpusError(f"{source}: no file matches")
    return [f"{top}/{n}" for n in found]


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """A path against a glob, folder by folder; `**` is any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
