"""Lhotse: recordings, supervisions and cuts as manifests, or cuts and audio as Shar.

Written without lhotse: both are JSON lines of flat objects, and Shar puts a tar beside them.
Source: lhotse 1.33, `Recording`, `SupervisionSegment`, `MonoCut` and their `to_dict`; the layout
of `lhotse.shar` (`cuts.000000.jsonl.gz`; `recording.000000.tar`, an audio file and its recording
as JSON in turn, named by the cut's id).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ttsbatch.export.clips import Clip
from ttsbatch.export.lines import JsonLines, shards
from ttsbatch.export.target import Setting
from ttsbatch.export.tars import add_member, new_tar
from ttsbatch.sinks.jsonlines import dump_json


def write_lhotse(clips: Iterable[Clip], folder: Path, setting: Setting) -> None:
    """Write the three manifests and audio/SHARD/NAME.wav; paths are relative to the folder."""
    with (
        JsonLines(folder / "recordings.jsonl.gz") as recordings,
        JsonLines(folder / "supervisions.jsonl.gz") as supervisions,
        JsonLines(folder / "cuts.jsonl.gz") as cuts,
    ):
        for clip in clips:
            path = f"audio/{clip.path}"
            clip.put(folder / path)
            recording, supervision = _recording(clip, "file", path), _supervision(clip)
            recordings.add(recording)
            supervisions.add(supervision)
            cuts.add(_cut(clip, recording, supervision))


def write_shar(clips: Iterable[Clip], folder: Path, setting: Setting) -> None:
    """Write cuts.NNNNNN.jsonl.gz and recording.NNNNNN.tar, and nothing else.

    Any other file would be taken for a field of the data.
    """
    for number, group in enumerate(shards(clips, setting.shard_size)):
        with (
            JsonLines(folder / f"cuts.{number:06d}.jsonl.gz") as cuts,
            new_tar(folder / f"recording.{number:06d}.tar") as tar,
        ):
            for clip in group:
                recording = _recording(clip, "shar", "")
                add_member(tar, clip.key + clip.extension, clip.data())
                add_member(tar, f"{clip.key}.json", dump_json(recording).encode("utf8"))
                cuts.add(_cut(clip, recording, _supervision(clip)))


def _recording(clip: Clip, kind: str, source: str) -> dict[str, Any]:
    r = clip.record
    return {
        "id": clip.key,
        "sources": [{"type": kind, "channels": [0], "source": source}],
        "sampling_rate": r["sample_rate"],
        "num_samples": r["num_samples"],
        "duration": r["num_samples"] / r["sample_rate"],
        "channel_ids": [0],
    }


def _supervision(clip: Clip) -> dict[str, Any]:
    about = clip.about()
    line = {
        "id": clip.key,
        "recording_id": clip.key,
        "start": 0.0,
        "duration": about.pop("duration"),
        "channel": 0,
        "text": about.pop("text"),
    }
    about["utterance_id"] = about.pop("id")  # as given; the key may be another
    voice, _ = about.pop("voice"), about.pop("language")
    if clip.language is not None:
        line["language"] = clip.language
    if voice is not None:
        line["speaker"] = voice
    for known in ("num_samples", "sample_rate"):
        del about[known]
    return line | {"custom": about}


def _cut(clip: Clip, recording: dict[str, Any], supervision: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": clip.key,
        "start": 0.0,
        "duration": recording["duration"],
        "channel": 0,
        "supervisions": [supervision],
        "recording": recording,
        "type": "MonoCut",
    }
