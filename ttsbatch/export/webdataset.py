"""WebDataset: tars in which the files of a row have its key and follow each other.

Source: the WebDataset format (a sample is all members of equal name up to the first dot of the
last path part; the rest is the field).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ttsbatch.export.clips import Clip
from ttsbatch.export.lines import shards
from ttsbatch.export.target import Setting
from ttsbatch.export.tars import add_member, new_tar
from ttsbatch.sinks.jsonlines import dump_json


def write_webdataset(clips: Iterable[Clip], folder: Path, setting: Setting) -> None:
    """Write shard-000000.tar and so on: KEY.wav, KEY.txt (the text), KEY.json (all of the row)."""
    for number, group in enumerate(shards(clips, setting.shard_size)):
        with new_tar(folder / f"shard-{number:06d}.tar") as tar:
            for clip in group:
                about = clip.about()
                add_member(tar, clip.key + clip.extension, clip.data())
                add_member(tar, f"{clip.key}.txt", str(about["text"]).encode("utf8"))
                add_member(tar, f"{clip.key}.json", dump_json(about).encode("utf8"))
