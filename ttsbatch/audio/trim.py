"""The silence at the end of a segment, cut off in whole codec frames."""

from __future__ import annotations

from dataclasses import replace

from ttsbatch.types import Waveform

KEPT_S = 0.3  # quiet after the last sound: as much as speech ends with


def trim_tail(wave: Waveform, tail_s: float) -> tuple[Waveform, float]:
    """A segment without most of its silent tail, and the seconds that were cut off.

    Samples, number of frames and codes stay consistent: what is cut is a whole number of frames,
    and a segment keeps at least one. Models without frames are cut at a sample.

    Args:
        wave: any segment.
        tail_s: the silence at its end.
    """
    spare = int((tail_s - KEPT_S) * wave.sample_rate_hz)
    if spare <= 0:
        return wave, 0.0
    if wave.num_frames == 0:
        kept = replace(wave, samples=wave.samples[:-spare])
        return kept, spare / wave.sample_rate_hz
    frame = len(wave.samples) // wave.num_frames
    cut = min(spare // max(frame, 1), wave.num_frames - 1)
    if cut <= 0 or frame * wave.num_frames != len(wave.samples):
        return wave, 0.0
    kept = replace(
        wave,
        samples=wave.samples[: -cut * frame],
        num_frames=wave.num_frames - cut,
        codes=None if wave.codes is None else wave.codes[:-cut],
    )
    return kept, cut * frame / wave.sample_rate_hz
