"""The slot table: random seatings and releases against plain sets."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.engine.fake import job, segment
from ttsbatch.engine.slots import Job, Owner, SlotTable
from ttsbatch.models.protocol import PAGE_SIZE

NUM_SLOTS, NUM_PAGES = 3, 9


def job_of(num_pages: int) -> Job:
    return job(segment("run", cap=num_pages * PAGE_SIZE - 3))


class Table(RuleBasedStateMachine):
    """Whatever is taken and given back, slots and pages have one owner each."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable(NUM_SLOTS, NUM_PAGES)
        self.seated: list[Owner] = []
        self.gone: list[Owner] = []

    @rule(num_pages=st.integers(1, NUM_PAGES + 1))
    def take(self, num_pages: int) -> None:
        wanted = job_of(num_pages)
        assert wanted.num_pages == num_pages
        used = sum(len(o.seat.pages) for o in self.seated)
        fits = len(self.seated) < NUM_SLOTS and used + num_pages <= NUM_PAGES - 1
        assert self.table.fits(wanted) == fits
        if fits:
            owner = self.table.take(wanted)
            assert owner.job is wanted
            assert owner.seat.prompt is wanted.prompt
            assert len(owner.seat.pages) == num_pages
            self.seated.append(owner)
        else:
            with pytest.raises(AssertionError):
                self.table.take(wanted)

    @precondition(lambda self: self.seated)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.seated))
        self.table.release(owner)
        self.seated.remove(owner)
        self.gone.append(owner)

    @rule(num_slots=st.integers(1, NUM_SLOTS))
    def compact(self, num_slots: int) -> None:
        if len(self.seated) > num_slots:
            with pytest.raises(AssertionError):
                self.table.compact(num_slots)
            return
        before = {o.generation: o for o in self.seated}
        moves = dict(self.table.compact(num_slots))
        self.seated = list(self.table.owners())
        assert self.table.num_spanned <= num_slots
        assert {o.generation for o in self.seated} == set(before)
        for owner in self.seated:
            old = before[owner.generation]
            assert owner.seat.slot == moves.get(old.seat.slot, old.seat.slot)
            assert (owner.job, owner.seat.pages) == (old.job, old.seat.pages)
            if owner is not old:
                self.gone.append(old)  # flags that were launched for the old slot are not its

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def release_again_is_refused(self, data: st.DataObject) -> None:
        with pytest.raises(AssertionError):
            self.table.release(data.draw(st.sampled_from(self.gone)))

    @invariant()
    def nothing_is_given_twice(self) -> None:
        slots = [o.seat.slot for o in self.seated]
        pages = [p for o in self.seated for p in o.seat.pages]
        assert len(set(slots)) == len(slots)
        assert set(slots) <= set(range(NUM_SLOTS))
        assert len(set(pages)) == len(pages)
        assert set(pages) <= set(range(1, NUM_PAGES))

    @invariant()
    def owners_are_those_seated(self) -> None:
        assert set(map(id, self.table.owners())) == set(map(id, self.seated))
        assert self.table.num_busy == len(self.seated)
        assert self.table.num_spanned == 1 + max((o.seat.slot for o in self.seated), default=-1)
        assert all(self.table.holds(o) for o in self.seated)
        assert not any(self.table.holds(o) for o in self.gone)

    @invariant()
    def generations_are_never_used_again(self) -> None:
        jobs: dict[int, Job] = {}
        for owner in self.seated + self.gone:
            assert jobs.setdefault(owner.generation, owner.job) is owner.job


Table.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestTable = Table.TestCase


def test_every_page_but_page_0_is_usable() -> None:
    table = SlotTable(1, 5)
    assert not table.fits(job_of(5))
    assert sorted(table.take(job_of(4)).seat.pages) == [1, 2, 3, 4]


def test_the_lowest_free_slot_is_taken_first() -> None:
    table = SlotTable(4, 10)
    owners = [table.take(job_of(1)) for _ in range(4)]
    assert [o.seat.slot for o in owners] == [0, 1, 2, 3]
    for n in (3, 1, 2):
        table.release(owners[n])
    assert [table.take(job_of(1)).seat.slot for _ in range(3)] == [1, 2, 3]


def test_a_slot_taken_again_has_another_generation() -> None:
    table = SlotTable(1, 3)
    first = table.take(job_of(1))
    table.release(first)
    second = table.take(job_of(1))
    assert second.seat.slot == first.seat.slot
    assert second.generation != first.generation
    assert not table.holds(first)
    with pytest.raises(AssertionError):
        table.release(first)  # or it would take the slot from the second
    assert table.holds(second)


def test_pages_cover_prompt_and_cap() -> None:
    for positions in (1, 3, 15, 16, 17):
        for cap in (1, 12, 13, 14, 200):
            pages = job(segment("run", cap=cap, positions=positions)).num_pages
            assert (pages - 1) * PAGE_SIZE < positions + cap <= pages * PAGE_SIZE
