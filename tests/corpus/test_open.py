"""Sources: paths, globs, URIs, compression, stdin."""

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pytest

from ttsbatch.corpus.open import expand, open_stream, source_stem, spooled_stdin
from ttsbatch.corpus.read import read_corpus
from ttsbatch.errors import CorpusError
from ttsbatch.plan import CorpusPlan
from ttsbatch.types import Record

from .conftest import scanned

LINES = b'{"id": "a", "text": "One."}\n{"id": "b", "text": "Two."}\n'


def zst(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(content)
    return sink.getvalue().to_pybytes()


def test_a_glob_gives_its_files_sorted(in_tmp: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.txt"):
        (in_tmp / name).write_bytes(b"")
    assert [f.source for f in expand(["*.jsonl", "c.txt"])] == ["a.jsonl", "b.jsonl", "c.txt"]


def test_a_double_star_reaches_into_folders(in_tmp: Path) -> None:
    (in_tmp / "x" / "y").mkdir(parents=True)
    (in_tmp / "x" / "y" / "a.jsonl").write_bytes(LINES)
    assert [f.source for f in expand(["x/**/*.jsonl"])] == ["x/y/a.jsonl"]
    uri = in_tmp.as_uri()
    assert [f.source for f in expand([f"{uri}/x/**/*.jsonl"])] == [f"{uri}/x/y/a.jsonl"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(in_tmp: Path) -> None:
    (in_tmp / "a[1].jsonl").write_bytes(LINES)
    assert [f.source for f in expand(["a[1].jsonl"])] == ["a[1].jsonl"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.jsonl", "no such file"),
        ("*.jsonl", "no file matches"),
        ("folder", "is a folder"),
        ("notes.md", r"unknown kind of corpus \(.md\)"),
        ("bare", "no extension"),
        ("notes.md.gz", r"unknown kind of corpus \(.md.gz\)"),
        ("-", "not kept"),
        ("file:///nowhere/at/all.jsonl", "no such file"),
        ("file:///nowhere/at/*.jsonl", "no file matches"),
        ("what://is/this.jsonl", "cannot be opened"),
    ],
)
def test_a_source_that_is_no_corpus_is_an_error(in_tmp: Path, source: str, message: str) -> None:
    (in_tmp / "folder").mkdir()
    for name in ("notes.md", "bare", "notes.md.gz"):
        (in_tmp / name).write_bytes(b"")
    with pytest.raises(CorpusError, match=message):
        expand([source])


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "A.JSONL.GZ"])
def test_compressed_files_read_like_plain_ones(in_tmp: Path, name: str) -> None:
    pack = {"gz": gzip.compress, "zst": zst}.get(name.lower().rpartition(".")[2], lambda x: x)
    (in_tmp / name).write_bytes(pack(LINES))
    for source in (name, (in_tmp / name).as_uri()):
        made, failed = scanned(source)
        assert list(made) == ["a", "b"]
        assert not failed
        assert made["a"].source == source


def test_gzip_files_that_were_joined_are_read_to_the_end(in_tmp: Path) -> None:
    first, second = LINES.splitlines(keepends=True)
    (in_tmp / "a.jsonl.gz").write_bytes(gzip.compress(first) + gzip.compress(second))
    assert list(scanned("a.jsonl.gz")[0]) == ["a", "b"]


@pytest.mark.parametrize("content", [zst(LINES)[:-6], b"not compressed at all"])
def test_a_damaged_archive_is_an_error(in_tmp: Path, content: bytes) -> None:
    (in_tmp / "a.jsonl.zst").write_bytes(content)
    with pytest.raises(CorpusError, match=r"a\.jsonl\.zst: cannot be read"):
        scanned("a.jsonl.zst")


def test_stdin_is_kept_and_can_be_read_twice(in_tmp: Path) -> None:
    plan = CorpusPlan(("-",))
    with spooled_stdin(plan.sources, io.BytesIO(LINES)) as path:
        assert path is not None
        first, second = (list(read_corpus(plan, path)) for _ in range(2))
    assert first == second
    assert [(r.source, r.line) for r in first] == [("-", 1), ("-", 2)]
    assert all(isinstance(r, Record) and r.base == "." for r in first)
    assert not path.exists()


def test_stdin_is_left_alone_where_it_is_no_source() -> None:
    stream = io.BytesIO(LINES)
    with spooled_stdin(("a.jsonl",), stream) as path:
        assert path is None
    assert stream.tell() == 0


def test_a_file_that_cannot_be_opened_is_an_error(in_tmp: Path) -> None:
    (in_tmp / "a.jsonl").write_bytes(LINES)
    (file,) = expand(["a.jsonl"])
    (in_tmp / "a.jsonl").unlink()
    with pytest.raises(CorpusError, match=r"a\.jsonl: cannot be opened"), open_stream(file):
        pass


@pytest.mark.parametrize(
    ("source", "stem"),
    [("x/a.b.jsonl", "a.b"), ("a.csv.gz", "a"), ("s3://bucket/c.PARQUET", "c"), ("-", "stdin")],
)
def test_the_stem_is_the_name_without_folder_and_extensions(source: str, stem: str) -> None:
    assert source_stem(source) == stem
