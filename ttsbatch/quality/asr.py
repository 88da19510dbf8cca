"""Was the text said? A Whisper model hears each take; too many wrong words are a flag.

Source: package faster-whisper 1.2, `WhisperModel.transcribe`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ttsbatch.errors import PlanError
from ttsbatch.quality.extras import Measured, at_16_khz, require
from ttsbatch.quality.words import num_errors, tokens
from ttsbatch.types import AUTO, ShardRecord

Transcribe = Callable[[npt.NDArray[np.float32], str], str | None]
"""([N] f32 at 16 kHz, language code or "auto") -> text; None: it does not know the language."""

FILES = ("model.bin", "config.json")  # of a CTranslate2 conversion
NUM_WORKERS = 4  # transcriptions at once


def check_folder(folder: str) -> None:
    """See that a model could be loaded.

    Raises:
        PlanError: the package or a file is missing.
    """
    require("--check-asr", "faster_whisper", "asr")
    missing = [name for name in FILES if not (Path(folder) / name).is_file()]
    if missing:
        raise PlanError(
            f"--check-asr is {folder!r}; no {' and no '.join(missing)} in it; expected the folder "
            "of a Whisper model converted for CTranslate2 (faster-whisper)"
        )


def load_asr(folder: str, max_wer: float) -> AsrCheck:
    """Load a faster-whisper model onto the CPU, in int8.

    Raises:
        PlanError: it cannot be loaded.
    """
    import faster_whisper

    try:
        model = faster_whisper.WhisperModel(
            folder, device="cpu", compute_type="int8", cpu_threads=1, num_workers=NUM_WORKERS
        )
    except Exception as e:  # whatever CTranslate2 makes of a damaged file
        raise PlanError(f"--check-asr is {folder!r}; it cannot be loaded: {e}") from e
    known = frozenset(model.supported_languages)

    def transcribe(wave: npt.NDArray[np.float32], language: str) -> str | None:
        if language != AUTO and language not in known:
            return None
        segments, _ = model.transcribe(
            wave,
            language=None if language == AUTO else language,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return "".join(s.text for s in segments).strip()

    return AsrCheck(transcribe, max_wer)


class AsrCheck:
    """Word error rate of the transcript against the spoken text.

    One wrong word is never a flag: in a text of two words it is as likely the listener's mistake.
    """

    name = "asr"

    def __init__(self, transcribe: Transcribe, max_wer: float) -> None:
        self._transcribe, self._max_wer = transcribe, max_wer

    def measure(self, take: ShardRecord) -> Measured:
        """Hear a take. `wer` is null where the model does not know the language."""
        language = take.utterance.language
        heard = self._transcribe(at_16_khz(take.samples, take.sample_rate_hz), language)
        if heard is None:
            return Measured({"wer": None, "transcript": None})
        expected = tokens(take.utterance.spoken_text, language)
        errors = num_errors(expected, tokens(heard, language))
        is_wrong = errors > max(1, self._max_wer * len(expected))
        values = {"wer": round(errors / max(len(expected), 1), 4), "transcript": heard}
        return Measured(values, ("wrong_words",) if is_wrong else ())
