"""Hugging Face `datasets`: Parquet with the `Audio` struct, or an audiofolder.

Source: the `datasets` documentation, "Audio" (a struct of `bytes` and `path`; the features as
JSON in the schema's metadata under `huggingface`), "AudioFolder" (metadata.jsonl with
`file_name`) and "Dataset cards" (`configs`, `dataset_info`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttsbatch.export.clips import Clip
from ttsbatch.export.hf_card import Card, card
from ttsbatch.export.lines import JsonLines, shards
from ttsbatch.export.target import Setting
from ttsbatch.sinks.jsonlines import dump_json

if TYPE_CHECKING:
    import pyarrow as pa

FEATURES = {
    "id": "string",
    "text": "string",
    "spoken_text": "string",
    "duration": "float64",
    "num_samples": "int64",
    "sample_rate": "int64",
    "model": "string",
    "voice": "string",
    "language": "string",
    "seed": "int64",
    "attempts": "int64",
    "finish_reason": "string",
    "verdict": "string",
    "reasons": "string",  # joined by commas
    "extra": "string",  # JSON: rows may carry different things
}
"""Columns beside the audio, and their types."""

_ROW_GROUP_ROWS = 100  # what `datasets` itself writes: a viewer reads one group to show one row


def write_parquet(clips: Iterable[Clip], folder: Path, setting: Setting) -> None:
    """Write data/train-00000-of-000NN.parquet and so on, and README.md."""
    from pyarrow import parquet

    (folder / "data").mkdir()
    about = Card(setting.name)
    num_shards = -(-setting.num_rows // setting.shard_size)
    for number, group in enumerate(shards(clips, setting.shard_size)):
        path = folder / "data" / f"train-{number:05d}-of-{num_shards:05d}.parquet"
        with parquet.ParquetWriter(path, _schema(), use_dictionary=False) as file:
            for table in _tables(group, about):
                file.write_table(table)
    types = [("audio", "audio"), *FEATURES.items()]
    (folder / "README.md").write_text(card(about, "data/train-*", types), "utf8")


def write_audiofolder(clips: Iterable[Clip], folder: Path, setting: Setting) -> None:
    """Write audio/SHARD/NAME.wav, metadata.jsonl and README.md."""
    about = Card(setting.name)
    with JsonLines(folder / "metadata.jsonl") as metadata:
        for clip in clips:
            path = f"audio/{clip.path}"
            clip.put(folder / path)
            # Types are guessed from the first rows, so that no column may begin with nulls.
            line = {name: "" if v is None else v for name, v in columns(clip).items()}
            metadata.add({"file_name": path, **line})
            about.add(clip)
    (folder / "README.md").write_text(card(about, None, []), "utf8")


def columns(clip: Clip) -> dict[str, Any]:
    """The values of FEATURES."""
    about = clip.about()
    about["reasons"] = ",".join(about["reasons"])
    about["extra"] = dump_json(about["extra"])
    return about


def _tables(clips: Iterable[Clip], about: Card) -> Iterator[pa.Table]:
    import pyarrow as pa

    for group in shards(clips, _ROW_GROUP_ROWS):
        rows = []
        for clip in group:
            about.add(clip)
            audio = {"bytes": clip.data(), "path": clip.key + clip.extension}
            rows.append({"audio": audio, **columns(clip)})
        yield pa.Table.from_pylist(rows, schema=_schema())


def _schema() -> pa.Schema:
    import pyarrow as pa

    audio = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features: dict[str, Any] = {"audio": {"_type": "Audio"}}
    fields = [pa.field("audio", audio)]
    for name, kind in FEATURES.items():
        fields.append(pa.field(name, pa.type_for_alias(kind)))
        features[name] = {"dtype": kind, "_type": "Value"}
    known = json.dumps({"info": {"features": features}})
    return pa.schema(fields, metadata={"huggingface": known})
