"""Which batch lies where on a device: decisions alone, in every order that Hypothesis thinks of."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tsnb.device_sharing.gpu_slots import GpuPlace, GpuSlots


def test_a_batch_is_copied_once_for_all_on_the_device() -> None:
    """The second consumer gets the first one's place, also when the first has let go of it."""
    slots = GpuSlots(2)
    assert slots.place(7, member=1, lease=1) == GpuPlace(0, copy=True)
    assert slots.place(7, member=2, lease=1) == GpuPlace(0, copy=False)
    slots.release(1, 1)
    slots.release(2, 1)
    assert slots.place(7, member=3, lease=1) == GpuPlace(0, copy=False)


def test_a_place_is_written_anew_when_all_who_read_it_have_let_go() -> None:
    """A lease ends with its kernels, so nothing else is waited for."""
    slots = GpuSlots(1)
    for member in (1, 2):
        slots.place(7, member, lease=1)
    slots.release(1, 1)
    assert slots.place(8, 1, 2) is None
    slots.release(2, 1)
    assert slots.place(8, 1, 2) == GpuPlace(0, copy=True)


def test_where_nothing_is_free_nobody_waits() -> None:
    """The batch goes through the host's arena; a held place stays as it is."""
    slots = GpuSlots(1)
    slots.place(7, 1, 1)
    assert slots.place(8, 1, 2) is None
    slots.leave(1)
    assert slots.place(8, 2, 1) == GpuPlace(0, copy=True)


def test_what_is_of_no_use_goes_first_then_the_oldest() -> None:
    """A slow consumer finds the batches that the fast one has had, as far as there is room."""
    slots = GpuSlots(3)
    for batch in (1, 2, 3):
        slots.place(batch, 1, batch)
        slots.release(1, batch)
    slots.forget(2)
    assert slots.place(4, 1, 4) == GpuPlace(1, copy=True)
    assert slots.place(5, 1, 5) == GpuPlace(0, copy=True)
    assert slots.place(3, 2, 1) == GpuPlace(2, copy=False)


def test_a_slot_that_holds_another_batch_is_copied_again() -> None:
    """Its number alone says nothing; whoever reads the old one keeps it."""
    slots = GpuSlots(2)
    slots.place(7, 1, 1)
    slots.forget(7)
    assert slots.place(7, 1, 2) == GpuPlace(1, copy=True)
    assert slots.place(7, 2, 1) == GpuPlace(1, copy=False)


def test_what_got_lost_on_its_way_is_free() -> None:
    """A consumer that asks says what it has."""
    slots = GpuSlots(1)
    slots.place(7, 1, 1)
    slots.keep(1, frozenset())
    assert slots.place(8, 1, 2) == GpuPlace(0, copy=True)


class Shelves(RuleBasedStateMachine):
    """The slots against a plain account of who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.gpu_slots = GpuSlots(3)
        self.holds: dict[
            tuple[int, int], tuple[int, int]
        ] = {}  # what each lease was given: place and content
        self.content: dict[int, int] = {}  # of each place
        self.version: dict[int, int] = {}  # of each host slot
        self.lease = 0

    @rule(batch=st.integers(0, 4), member=st.integers(0, 2))
    def grant(self, batch: int, member: int) -> None:
        self.lease += 1
        place = self.gpu_slots.place(batch, member, self.lease)
        inside = batch * 1000 + self.version.get(batch, 0)
        if place is None:
            assert len({held for held, _ in self.holds.values()}) == 3
            return
        if place.copy:
            assert place.slot not in {held for held, _ in self.holds.values()}, "overwritten while it is read"
            self.content[place.slot] = inside
        assert self.content[place.slot] == inside, "another batch than was granted"
        self.holds[member, self.lease] = (place.slot, inside)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.holds:
            key = data.draw(st.sampled_from(sorted(self.holds)))
            del self.holds[key]
            self.gpu_slots.release(*key)

    @rule(batch=st.integers(0, 4))
    def rewrite(self, batch: int) -> None:
        self.version[batch] = self.version.get(batch, 0) + 1
        self.gpu_slots.forget(batch)

    @rule(member=st.integers(0, 2))
    def leave(self, member: int) -> None:
        self.holds = {key: held for key, held in self.holds.items() if key[0] != member}
        self.gpu_slots.leave(member)

    @invariant()
    def whole(self) -> None:
        self.gpu_slots.check()
        for place, inside in self.holds.values():
            assert self.content[place] == inside


TestShelves = Shelves.TestCase
TestShelves.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
