"""The set of ids."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from ttsbatch.corpus.idset import IdSet


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3)))
def test_an_id_is_new_once(ids: list[str]) -> None:
    found, seen = IdSet(), set()
    for row_id in ids:
        assert found.add(row_id) == (row_id not in seen)
        seen.add(row_id)
    assert len(found) == len(seen)


def test_every_id_is_found_again_after_the_table_has_grown() -> None:
    found = IdSet()
    assert all(found.add(f"row-{i}") for i in range(30_000))
    assert not any(found.add(f"row-{i}") for i in range(30_000))
    assert len(found) == 30_000


def test_an_id_takes_at_most_40_bytes() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = IdSet()
        for i in range(200_000):
            found.add(str(i))
        assert tracemalloc.get_traced_memory()[0] - before < 40 * len(found)
    finally:
        tracemalloc.stop()
