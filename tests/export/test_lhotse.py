"""`export --to lhotse`, opened with lhotse: manifests, cuts and Shar."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.conftest import GOOD_IDS, ROWS, as_format, as_layout, export, samples

# Its readers leave files to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # audioread imports audioop
        import lhotse  # noqa: F401


def check(cuts: Any, expected: dict[str, Any]) -> None:
    """Each row once, in order, with the samples and numbers of OUT."""
    texts = {r["id"]: r["text"] for r in ROWS}
    ids = []
    for cut in cuts:
        (supervision,) = cut.supervisions
        ids.append(id := supervision.custom["utterance_id"])
        audio = cut.load_audio()
        assert audio.shape == (1, cut.num_samples) == (1, cut.recording.num_samples)
        assert np.array_equal(np.rint(audio[0] * 32768), expected[id])
        assert cut.duration == pytest.approx(len(expected[id]) / cut.sampling_rate)
        assert supervision.duration == cut.duration
        assert supervision.text == texts[id]
        assert supervision.speaker == "heart"
        assert supervision.language == ("en" if id == "Ünïcode" else None)
    assert ids == list(expected)


def test_cuts_and_manifests_open_in_lhotse_with_every_sample(out: Path) -> None:
    from lhotse import CutSet, RecordingSet, SupervisionSet
    from lhotse.qa import validate_recordings_and_supervisions

    path = export(out, "lhotse")
    cuts = CutSet.from_file(path / "cuts.jsonl.gz").with_recording_path_prefix(path)
    check(cuts, samples(out))
    recordings = RecordingSet.from_file(path / "recordings.jsonl.gz").with_path_prefix(path)
    supervisions = SupervisionSet.from_file(path / "supervisions.jsonl.gz")
    validate_recordings_and_supervisions(recordings, supervisions, read_data=True)
    made = CutSet.from_manifests(recordings=recordings, supervisions=supervisions)
    check(made, samples(out))


@pytest.mark.parametrize("layout", ["dir", "tar", "parquet"])
def test_shar_opens_in_lhotse_with_every_sample(out: Path, layout: str) -> None:
    from lhotse import CutSet

    expected = samples(out)
    if layout != "dir":
        as_layout(out, layout)
    path = export(out, "lhotse", "--shar", "--shard-size", "4")
    assert len(list(path.iterdir())) == 4
    check(CutSet.from_shar(in_dir=path), expected)


def test_flac_is_read_from_shar_as_it_is(out: Path) -> None:
    from lhotse import CutSet

    expected = samples(out)
    as_format(out, "flac")
    check(CutSet.from_shar(in_dir=export(out, "lhotse", "--shar")), expected)


def test_keys_are_the_ids_where_ids_can_be_names(out: Path) -> None:
    from lhotse import CutSet

    cuts = list(CutSet.from_shar(in_dir=export(out, "lhotse", "--shar")))
    same = [c.id for c in cuts if c.id == c.supervisions[0].custom["utterance_id"]]
    assert same == ["a_b.c", "Ünïcode", "2020-01-01"]
    assert len({c.id.casefold() for c in cuts}) == len(GOOD_IDS)
