"""What several parity tests need."""

from __future__ import annotations

import pytest

from ttsbatch.engine import decode


@pytest.fixture
def small_frames(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of every size down to one slot, on a GPU two: rows change slots as others end."""
    fewest = 1 if request.node.get_closest_marker("gpu") is None else 2
    monkeypatch.setattr(decode, "FEWEST_SLOTS_CAPTURED", fewest)
