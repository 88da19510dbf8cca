"""How good does it sound? DNSMOS P.835: predicted mean opinion scores from 1 to 5.

Source: Reddy et al., "DNSMOS P.835", 2021; file `DNSMOS/dnsmos_local.py` of
github.com/microsoft/DNS-Challenge: windows of 9.01 s at 16 kHz, a second apart, short clips
repeated; raw scores mapped by one polynomial each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ttsbatch.errors import PlanError
from ttsbatch.quality.extras import RATE_HZ, Measured, at_16_khz
from ttsbatch.quality.onnx import open_onnx
from ttsbatch.types import ShardRecord

MODEL_FILE = "sig_bak_ovr.onnx"
WINDOW_SAMPLES = int(9.01 * RATE_HZ)
HOP_SAMPLES = RATE_HZ
NAMES = ("sig", "bak", "ovr")
# Highest power first, as published for the general (not personalised) model.
POLYNOMIALS = (
    (-0.08397278, 1.22083953, 0.0052439),
    (-0.13166888, 1.60915514, -0.39604546),
    (-0.06766283, 1.11546468, 0.04602535),
)

Score = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
"""[1, WINDOW_SAMPLES] f32 -> [1, 3] raw scores."""


def model_file(path: str) -> Path:
    """The model of `--check-dnsmos`: a file, or the folder that it is in."""
    return Path(path) / MODEL_FILE if Path(path).is_dir() else Path(path)


def load_dnsmos(path: str, min_mos: float) -> DnsmosCheck:
    """Open the model.

    Raises:
        PlanError: it cannot be opened, or has other inputs and outputs.
    """
    file = model_file(path)
    session = open_onnx("--check-dnsmos", file)
    inputs, outputs = session.get_inputs(), session.get_outputs()
    shape = inputs[0].shape
    if len(inputs) != 1 or len(shape) != 2 or shape[1] not in (WINDOW_SAMPLES, None):
        found = ", ".join(f"{x.name} {x.shape}" for x in inputs)
        raise PlanError(
            f"--check-dnsmos: {file} takes {found}; expected one input [1, {WINDOW_SAMPLES}], "
            f"as {MODEL_FILE} of the DNS Challenge has"
        )
    name, output = inputs[0].name, outputs[0].name

    def score(window: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        raw: npt.NDArray[np.float32] = session.run([output], {name: window})[0]
        return raw

    return DnsmosCheck(score, min_mos)


class DnsmosCheck:
    """Scores of signal, background and the whole; the whole decides."""

    name = "dnsmos"

    def __init__(self, score: Score, min_mos: float) -> None:
        self._score, self._min_mos = score, min_mos

    def measure(self, take: ShardRecord) -> Measured:
        """Score a take: the mean over its windows."""
        wave = at_16_khz(take.samples, take.sample_rate_hz)
        if not len(wave):
            return Measured({f"mos_{name}": None for name in NAMES})
        raw = np.concatenate([self._score(w[None]) for w in windows(wave)])  # [windows, 3]
        scores = [float(np.polyval(p, raw[:, i]).mean()) for i, p in enumerate(POLYNOMIALS)]
        values = {f"mos_{name}": round(s, 3) for name, s in zip(NAMES, scores, strict=True)}
        return Measured(values, ("low_mos",) if scores[-1] < self._min_mos else ())


def windows(wave: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
    """The [WINDOW_SAMPLES] pieces of a clip that are scored; a short one is doubled to fit."""
    while len(wave) < WINDOW_SAMPLES:
        wave = np.concatenate([wave, wave])
    count = int(len(wave) // RATE_HZ - WINDOW_SAMPLES / RATE_HZ) + 1
    starts = [i * HOP_SAMPLES for i in range(max(count, 1))]
    return [wave[s : s + WINDOW_SAMPLES] for s in starts if s + WINDOW_SAMPLES <= len(wave)]
