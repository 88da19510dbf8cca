"""Parquet shards that Hugging Face `datasets` reads as audio: a row has its file's bytes in it.

Source: the `Audio` feature of datasets, a struct of `bytes` and `path`, and the features that its
readers take from the `huggingface` key of the schema.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ttsbatch.errors import SinkError
from ttsbatch.sinks import tar
from ttsbatch.sinks.durable import NewFile
from ttsbatch.sinks.jsonlines import dump_json
from ttsbatch.sinks.packed import CODES

GROUP_ROWS, GROUP_BYTES = 100, 32 << 20  # of a row group, at most; a reader holds one in memory
_JSON = ("segments", "checks", "extra")  # of no fixed shape: as JSON text
_COLUMNS: dict[str, str] = {
    "id": "string",
    "text": "string",
    "spoken_text": "string",
    "duration": "float64",
    "num_samples": "int64",
    "sample_rate": "int32",
    "model": "string",
    "voice": "string",
    "language": "string",
    "seed": "int64",
    "attempts": "int32",
    "finish_reason": "string",
    "num_frames": "int64",
    "file_name": "string",
    "verdict": "string",
    "segments": "string",
    "checks": "string",
    "source": "string",
    "line": "int64",
    "extra": "string",
}
"""Columns beside `audio` (and `codes`), and their types in Arrow and datasets."""

_AUDIO = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_CODES = pa.list_(pa.list_(pa.int16()))


def shard_schema(sample_rate_hz: int, with_codes: bool) -> pa.Schema:
    """The schema of a shard, with the features of `datasets`."""
    types = {name: pa.type_for_alias(kind) for name, kind in _COLUMNS.items()}
    fields = [("audio", _AUDIO), *types.items()]
    features: dict[str, Any] = {"audio": {"sampling_rate": sample_rate_hz, "_type": "Audio"}}
    features |= {name: {"dtype": kind, "_type": "Value"} for name, kind in _COLUMNS.items()}
    if with_codes:
        fields.append(("codes", _CODES))
        frame = {"feature": {"dtype": "int16", "_type": "Value"}, "_type": "Sequence"}
        features["codes"] = {"feature": frame, "_type": "Sequence"}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.schema(fields, metadata=metadata)


class ParquetShards:
    """Rows with their audio in Parquet files."""

    suffix = ".parquet"
    holds_codes_as_files = False
    spool_is_shard = False

    def __init__(self, sample_rate_hz: int | None = None, with_codes: bool = False) -> None:
        """The rate and the codes of new shards; for changing old ones they are not needed."""
        self._sample_rate_hz, self._with_codes = sample_rate_hz, with_codes

    def keys(self, path: Path) -> tuple[list[str], bool]:
        """The rows of a file, and whether it is whole; a torn one cannot be read at all."""
        try:
            with pq.ParquetFile(path) as file:
                table = file.read(columns=["audio.path"], use_threads=False)
            names = [row["path"] for row in table.column("audio").to_pylist()]
        except (pa.ArrowException, OSError):
            return [], False
        return [tar.split_member(name)[0] for name in names], True

    def merge(self, to: Path, old: Path | None, spool: Path | None, drop: Collection[str]) -> int:
        """Write rows to a new file."""
        if old is not None and not self.keys(old)[1]:
            old = None
        new = tar.last_of_each(tar.read_index(spool).rows) if spool else []
        gone = {*drop, *(row.key for row in new)}
        num_rows = 0
        schema = self._schema(old)

        def rows() -> Iterator[dict[str, Any]]:
            if old is not None:
                for row in _stored(old):
                    if tar.split_member(row["audio"]["path"])[0] not in gone:
                        yield row
            if spool is not None:
                with spool.open("rb") as file:
                    for waiting in new:
                        yield _row(file, waiting)

        with NewFile(to) as out, pq.ParquetWriter(out, schema, **_options(schema)) as writer:
            for group in _groups(rows()):
                writer.write_table(pa.Table.from_pylist(group, schema), row_group_size=len(group))
                num_rows += len(group)
        return num_rows

    def _schema(self, old: Path | None) -> pa.Schema:
        if self._sample_rate_hz is not None:
            return shard_schema(self._sample_rate_hz, self._with_codes)
        if old is None:
            return shard_schema(0, False)  # for a file of no rows, that is not kept
        found = pq.read_schema(old)
        features = json.loads(found.metadata[b"huggingface"])["info"]["features"]
        return shard_schema(features["audio"]["sampling_rate"], "codes" in found.names)


def _options(schema: pa.Schema) -> dict[str, Any]:
    """No second compression and no statistics of audio; a checksum on every page."""
    names = [name for name in schema.names if name not in ("audio", "codes")]
    return {
        "compression": {"audio.bytes": "NONE", "audio.path": "SNAPPY"}
        | dict.fromkeys(names, "SNAPPY")
        | ({"codes.list.element.list.element": "SNAPPY"} if "codes" in schema.names else {}),
        "use_dictionary": ["model", "voice", "language", "finish_reason", "verdict", "source"],
        "write_statistics": names,
        "write_page_checksum": True,
    }


def _stored(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group, use_threads=False).to_pylist()
    except (pa.ArrowException, OSError) as e:
        raise SinkError(
            f"{path}: damaged ({e}); restore it, or delete it to have its rows made again"
        ) from e


def _row(file: Any, waiting: tar.TarRow) -> dict[str, Any]:
    """A row that waits, as columns."""
    data = {}
    for extension, (offset, size) in waiting.members.items():
        file.seek(offset)
        data[extension] = file.read(size)
    line = json.loads(data.pop(".json"))
    codes = data.pop(CODES, None)
    data.pop(".txt")  # the line has it
    ((extension, audio),) = data.items()
    row = {name: line.get(name) for name in _COLUMNS}
    row |= {name: dump_json(line[name]) for name in _JSON}
    row["audio"] = {"bytes": audio, "path": waiting.key + extension}
    row["verdict"] = line["checks"].get("verdict")
    if codes is not None:
        row["codes"] = np.load(io.BytesIO(codes), allow_pickle=False).tolist()
    return row


def _groups(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    num_bytes = 0
    for row in rows:
        group.append(row)
        num_bytes += len(row["audio"]["bytes"])
        if len(group) == GROUP_ROWS or num_bytes >= GROUP_BYTES:
            yield group
            group, num_bytes = [], 0
    if group:
        yield group
