"""Numbers in messages agree with what they count."""

from __future__ import annotations

import pytest

from ttsbatch.counts import counted


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (12_345, "12,345 rows")]
)
def test_one_of_a_thing_has_no_s(number: int, said: str) -> None:
    assert counted(number, "row") == said
