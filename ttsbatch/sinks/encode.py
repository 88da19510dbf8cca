"""Finished rows to the bytes of their files, several at once where that takes long."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from ttsbatch.audio.finish import finish
from ttsbatch.audio.formats import encode_audio
from ttsbatch.plan import AudioPlan
from ttsbatch.types import ShardRecord

_MAX_THREADS = 16


@dataclass(frozen=True, slots=True)
class Encoded:
    """A row and its files."""

    record: ShardRecord  # samples, rate and checks are those of the file
    audio: bytes
    codes: bytes | None  # an .npy file; only with --save-codes


class Encoder:
    """Resamples, levels and encodes; the libraries below let other threads run meanwhile."""

    def __init__(self, plan: AudioPlan) -> None:
        self._plan = plan
        is_quick = plan.format == "wav" and plan.loudness_lufs is None
        self._num_threads = 1 if is_quick else min(_MAX_THREADS, os.cpu_count() or 1)
        self._pool: ThreadPoolExecutor | None = None

    def encode(self, records: Sequence[ShardRecord]) -> list[Encoded]:
        """The rows in their order; what is made of one does not depend on the others."""
        if self._num_threads == 1 or len(records) == 1:
            return [self._encode(record) for record in records]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._num_threads, "ttsbatch-encode")
        return list(self._pool.map(self._encode, records))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _encode(self, record: ShardRecord) -> Encoded:
        plan = self._plan
        done = finish(
            record.samples, record.sample_rate_hz, plan.sample_rate_hz, plan.loudness_lufs
        )
        written = replace(
            record,
            samples=done.samples,
            sample_rate_hz=done.sample_rate_hz,
            checks={**record.checks, **done.checks},
        )
        data = encode_audio(done.samples, done.sample_rate_hz, plan.file_format)
        return Encoded(written, data, None if record.codes is None else _npy(record.codes))


def _npy(codes: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(codes, np.int16), allow_pickle=False)
    return buffer.getvalue()
