"""Files of every format: what is decoded, what is measured, and the same bytes again."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from ttsbatch.audio.formats import FORMATS, encode_audio
from ttsbatch.audio.measure import bytes_needed, measure_audio
from ttsbatch.audio.ogg import pages, with_serial

RATES = [(f, r) for f in FORMATS.values() for r in f.rates_hz or (8_000, 22_050, 24_000, 96_000)]


def speechlike(num_samples: int) -> np.ndarray:
    rng = np.random.default_rng(num_samples)
    wave = np.convolve(rng.normal(0, 2_000, num_samples + 40), np.hanning(40), "valid")
    return np.clip(wave[:num_samples], -30_000, 30_000).astype(np.int16)


def measure(extension: str, data: bytes) -> tuple[int, int]:
    return measure_audio(extension, data[: bytes_needed(extension, len(data))], len(data))


@pytest.mark.parametrize(("kind", "rate_hz"), RATES, ids=lambda v: getattr(v, "name", v))
def test_decoded_and_measured_length_is_exact(kind, rate_hz: int) -> None:
    for num_samples in (1, 575, 576, 577, 1152, 12_345):
        data = encode_audio(speechlike(num_samples), rate_hz, kind)
        decoded, found_hz = soundfile.read(io.BytesIO(data), dtype="int16")
        assert (len(decoded), found_hz, decoded.ndim) == (num_samples, rate_hz, 1)
        assert measure(kind.extension, data) == (num_samples, rate_hz)


@pytest.mark.parametrize("name", ["wav", "flac"])
def test_lossless_formats_keep_every_sample(name: str) -> None:
    samples = speechlike(20_000)
    data = encode_audio(samples, 24_000, FORMATS[name])
    assert np.array_equal(soundfile.read(io.BytesIO(data), dtype="int16")[0], samples)


@pytest.mark.parametrize("kind", FORMATS.values(), ids=lambda f: f.name)
def test_same_samples_give_the_same_bytes(kind) -> None:
    samples = speechlike(30_000)
    assert encode_audio(samples, 24_000, kind) == encode_audio(samples.copy(), 24_000, kind)


@pytest.mark.parametrize("kind", FORMATS.values(), ids=lambda f: f.name)
def test_file_cut_anywhere_is_not_whole(kind) -> None:
    data = encode_audio(speechlike(30_000), 24_000, kind)
    for size in (0, 3, 40, 150, len(data) // 3, len(data) - 100, len(data) - 2, len(data) - 1):
        with pytest.raises(ValueError, match=r"cut|without|page|expected"):
            measure(kind.extension, data[:size])


@pytest.mark.parametrize("name", ["wav", "opus", "mp3"])
def test_bytes_behind_the_end_are_seen(name: str) -> None:
    data = encode_audio(speechlike(30_000), 24_000, FORMATS[name])
    with pytest.raises(ValueError, match=r"expected|page"):
        measure(f".{name}", data + b"\0\0")


def test_flipped_bit_in_opus_is_seen() -> None:
    data = bytearray(encode_audio(speechlike(30_000), 24_000, FORMATS["opus"]))
    data[len(data) // 2] ^= 1
    with pytest.raises(ValueError, match="damaged in the page at byte"):
        measure(".opus", bytes(data))


def test_file_of_another_kind_is_refused() -> None:
    wav = encode_audio(speechlike(3_000), 24_000, FORMATS["wav"])
    for extension in (".flac", ".opus", ".mp3", ".txt"):
        with pytest.raises(ValueError, match=r"cut|without|page|no audio"):
            measure(extension, wav)
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros((500, 2), np.int16), 24_000, format="FLAC")
    with pytest.raises(ValueError, match="2 channels, expected mono"):
        measure(".flac", buffer.getvalue())


def test_serial_of_an_ogg_file_is_changed_in_every_page() -> None:
    data = encode_audio(speechlike(200_000), 24_000, FORMATS["opus"])
    other = with_serial(data, 77)
    serials = {other[p.start + 14 : p.start + 18] for p in pages(other)}  # checks the checksums
    assert serials == {(77).to_bytes(4, "little")}
    assert len(list(pages(other))) > 3
    assert with_serial(other, 1) == data
