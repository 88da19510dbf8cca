"""A finished row on its way out: what the manifest says of it, and its audio, looked at."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ttsbatch.audio.wav import encode_wav
from ttsbatch.errors import SinkError
from ttsbatch.sinks.durable import write_file
from ttsbatch.sinks.stored import AudioReader, Record, split_audio_path
from ttsbatch.types import AUTO

_TAKEN = (
    "id",
    "text",
    "spoken_text",
    "duration",
    "num_samples",
    "sample_rate",
    "model",
    "voice",
    "language",
    "seed",
    "attempts",
    "finish_reason",
)
_EXACT = ("WAV", "FLAC")  # lossy headers may count what an encoder padded


@dataclass(frozen=True, slots=True)
class Clip:
    """One row of an export."""

    record: Record
    key: str  # the id as a file name, no other row's in the export
    path: str  # folder and file name, SHARD/NAME.wav; no other row's either
    audio: bytes | None  # the encoded file; None where `source` is linked
    source: Path | None  # the file to link; None where the bytes are copied
    is_pcm16: bool  # a WAV file of 16-bit samples

    @property
    def extension(self) -> str:
        """Of the audio file, with its dot."""
        return os.path.splitext(self.path)[1]

    @property
    def language(self) -> str | None:
        """Its language code; None where the model chose."""
        language = self.record.get("language")
        return None if language == AUTO else language

    @property
    def is_flagged(self) -> bool:
        """Whether its checks found something wrong."""
        return is_flagged(self.record)

    def data(self) -> bytes:
        """The encoded file."""
        if self.audio is not None:
            return self.audio
        assert self.source is not None
        return self.source.read_bytes()

    def put(self, target: Path) -> None:
        """Write or link the audio under a name, the file as it is.

        Raises:
            SinkError: the two are on different file systems, or links are not possible there.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.source is None:
            write_file(target, self.data())
            return
        try:
            os.link(self.source, target)
        except OSError as e:
            if e.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            raise SinkError(
                f"{self.source}: cannot be linked to {target.parent}: {e.strerror}; "
                "leave out --link"
            ) from e

    def wav(self) -> bytes:
        """The audio as a 16-bit mono WAV file, decoded if it is something else.

        Raises:
            SinkError: it is damaged.
        """
        import soundfile

        if self.is_pcm16:
            return self.data()
        try:
            samples, rate_hz = soundfile.read(io.BytesIO(self.data()), dtype="float32")
        except RuntimeError as e:  # LibsndfileError is one
            raise SinkError(
                f"row {self.record.get('id')!r}: {self.record['audio_filepath']}: is damaged; "
                "ttsbatch verify says more"
            ) from e
        return encode_wav(_int16(samples), rate_hz)

    def about(self) -> dict[str, Any]:
        """What goes along with the audio, as flat JSON values; `extra` is an object."""
        r = self.record
        checks = r.get("checks") or {}
        return {
            **{name: r.get(name) for name in _TAKEN},
            "verdict": checks.get("verdict"),
            "reasons": list(checks.get("reasons") or ()),
            "extra": r.get("extra") or {},
        }


def is_flagged(record: Record) -> bool:
    """Whether a row's checks found something wrong."""
    checks = record.get("checks")
    return isinstance(checks, Mapping) and checks.get("verdict") == "flag"


def clip_path(record: Record) -> str:
    """SHARD/NAME.wav of a row, whatever the layout.

    Raises:
        SinkError: not a path in OUT/audio.
    """
    shard, member = split_audio_path(record)
    return shard.split("/", 1)[1] if member is None else f"{Path(shard).stem}/{member}"


def open_clip(record: Record, key: str, out: Path, reader: AudioReader, link: bool) -> Clip:
    """Find a row's audio and compare it with what the manifest says.

    Raises:
        SinkError: missing, damaged, or of another length than the manifest says.
    """
    audio = source = None
    if link:
        source = out / str(record["audio_filepath"])
    else:
        audio = reader.read(record)
    is_pcm16 = _look(record, io.BytesIO(audio) if audio is not None else source)
    return Clip(record, key, clip_path(record), audio, source, is_pcm16)


def _look(record: Record, file: io.BytesIO | Path | None) -> bool:
    """Whether the audio is 16-bit mono WAV; SinkError if it is not the row's."""
    import soundfile

    where = f"row {record.get('id')!r}: {record['audio_filepath']}"
    if isinstance(file, Path) and not file.is_file():
        raise SinkError(f"{where}: is not there; ttsbatch verify says more")
    try:
        info = soundfile.info(file)
    except (OSError, RuntimeError) as e:  # LibsndfileError is a RuntimeError
        raise SinkError(f"{where}: is no audio file; ttsbatch verify says more") from e
    found, expected = (info.frames, info.samplerate), (record["num_samples"], record["sample_rate"])
    if info.format in _EXACT and found != expected:
        raise SinkError(
            f"{where}: {found[0]:,} samples at {found[1]:,} Hz; the manifest says "
            f"{expected[0]:,} at {expected[1]:,} Hz; ttsbatch verify says more"
        )
    return bool((info.format, info.subtype, info.channels) == ("WAV", "PCM_16", 1))


def _int16(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    scaled = np.rint(samples.astype(np.float64) * 32_768)
    return np.clip(scaled, -32_768, 32_767).astype(np.int16)
