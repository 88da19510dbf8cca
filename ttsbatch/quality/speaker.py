"""Is it the voice of the reference? Cosine of two speaker embeddings, by a model that a user names.

Two kinds of ONNX encoder are understood, told apart by their input: samples [B, N] at 16 kHz, or
Kaldi filter banks [B, F, 80], their mean over time taken off, as WeSpeaker and 3D-Speaker export
theirs. Source: github.com/wenet-e2e/wespeaker, `wespeaker/bin/infer_onnx.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ttsbatch.errors import PlanError
from ttsbatch.quality.extras import RATE_HZ, Measured, at_16_khz
from ttsbatch.quality.fbank import NUM_BANDS, fbank
from ttsbatch.quality.onnx import open_onnx
from ttsbatch.types import ShardRecord

MIN_SAMPLES = RATE_HZ // 4  # less has no voice to speak of
REFERENCES_KEPT = 10_000

_Floats = npt.NDArray[np.float32]
Embed = Callable[[_Floats], _Floats]
"""[N] f32 at 16 kHz -> [E] voice vector, of any length."""


def load_speaker_check(path: Path, min_similarity: float) -> SpeakerCheck:
    """Open an encoder.

    Raises:
        PlanError: it cannot be opened, or takes neither samples nor filter banks.
    """
    session = open_onnx("--check-speaker", path)
    inputs, output = session.get_inputs(), session.get_outputs()[0].name
    shape = inputs[0].shape
    takes_samples = len(shape) == 2 and not isinstance(shape[1], int)
    takes_bands = len(shape) == 3 and shape[2] == NUM_BANDS and not isinstance(shape[1], int)
    if len(inputs) != 1 or not (takes_samples or takes_bands):
        found = ", ".join(f"{x.name} {x.shape}" for x in inputs)
        raise PlanError(
            f"--check-speaker: {path} takes {found}; expected one input, samples [B, N] at 16 kHz "
            f"or filter banks [B, F, {NUM_BANDS}], of any length"
        )
    name = inputs[0].name

    def embed(wave: _Floats) -> _Floats:
        if takes_bands:
            bands = fbank(wave)
            wave = bands - bands.mean(axis=0)
        vector: _Floats = session.run([output], {name: wave[None]})[0]
        return vector.reshape(-1)

    return SpeakerCheck(embed, min_similarity)


class SpeakerCheck:
    """Likeness of each take to its row's reference; rows without one are not measured."""

    name = "speaker"

    def __init__(self, embed: Embed, min_similarity: float) -> None:
        self._embed, self._min_similarity = embed, min_similarity
        self._reference = lru_cache(maxsize=REFERENCES_KEPT)(self._embed_reference)

    def measure(self, take: ShardRecord) -> Measured:
        """Compare a take with its reference."""
        reference = take.utterance.ref_audio
        if reference is None:
            return Measured({})
        wave = at_16_khz(take.samples, take.sample_rate_hz)
        if len(wave) < MIN_SAMPLES:
            return Measured({"speaker_similarity": None})
        a, b = self._embed(wave), self._reference(reference)
        similarity = float(np.dot(a, b) / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-9))
        is_other = similarity < self._min_similarity
        values = {"speaker_similarity": round(similarity, 4)}
        return Measured(values, ("other_voice",) if is_other else ())

    def _embed_reference(self, path: str) -> _Floats:
        import soundfile

        samples, rate_hz = soundfile.read(path, dtype="int16", always_2d=True)
        mono = samples.mean(axis=1).astype(np.int16)
        wave = at_16_khz(mono, rate_hz)
        if len(wave) < MIN_SAMPLES:
            wave = np.resize(wave, MIN_SAMPLES)
        return self._embed(wave)
