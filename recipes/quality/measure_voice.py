"""The profile of each voice of a run: what `ModelCard.profiles` holds of a measured voice.

    python recipes/quality/measure_voice.py OUT

Reads the manifest and the WAV files of a run; rows of 2 to 12 s that passed the gates count, and a
voice needs 100 of them. Prints a `VoiceProfile` per language and voice, to be put into the card of
the model's family.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import soundfile

from ttsbatch.quality.spectrum import measure_spectrum
from ttsbatch.quality.voice import mean_spectrum

MIN_ROWS = 100


def main(out: Path) -> None:
    paces: dict[tuple[str, str], list[float]] = defaultdict(list)
    spectra: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    with (out / "manifest.jsonl").open(encoding="utf8") as lines:
        for line in lines:
            row = json.loads(line)
            checks = row["checks"]
            if checks["verdict"] != "pass" or not 2 <= checks["expected_s"] <= 12:
                continue
            samples, rate_hz = soundfile.read(out / row["audio_filepath"], dtype="int16")
            mean = mean_spectrum(measure_spectrum(samples, rate_hz))
            if mean is not None:
                key = (row["language"], row["voice"] or "-")
                paces[key].append(checks["duration_s"] / checks["expected_s"])
                spectra[key].append(mean)
    for key, found in sorted(paces.items()):
        if len(found) < MIN_ROWS:
            print(f"{' '.join(key)}: {len(found)} rows, expected {MIN_ROWS} or more")
            continue
        spectrum = tuple(round(float(x), 1) for x in np.mean(spectra[key], axis=0))
        pace = round(float(np.median(found)), 2)
        print(f"{' '.join(key)}: VoiceProfile(pace={pace}, spectrum_db={spectrum})")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
