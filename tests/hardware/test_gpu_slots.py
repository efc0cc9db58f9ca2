"""Which batch lies where on a device: decisions alone, in every order that Hypothesis thinks of."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tsnb.hardware.gpu_slots import Place, Shelf


def test_a_batch_is_copied_once_for_all_on_the_device() -> None:
    """The second consumer gets the first one's place, also when the first has let go of it."""
    shelf = Shelf(2)
    assert shelf.place(7, member=1, lease=1) == Place(0, copy=True)
    assert shelf.place(7, member=2, lease=1) == Place(0, copy=False)
    shelf.release(1, 1)
    shelf.release(2, 1)
    assert shelf.place(7, member=3, lease=1) == Place(0, copy=False)


def test_a_place_is_written_anew_after_all_who_have_read_it() -> None:
    """Their leases are over, their kernels may not be; of one who has gone nothing is awaited."""
    shelf = Shelf(1)
    for member in (1, 2, 3):
        shelf.place(7, member, lease=1)
        shelf.release(member, 1)
    shelf.leave(2)
    assert shelf.place(8, 1, 2) == Place(0, copy=True, after=(1, 3))
    shelf.release(1, 2)
    assert shelf.place(9, 3, 2) == Place(0, copy=True, after=(1,)), "what was read before that is over"


def test_where_nothing_is_free_nobody_waits() -> None:
    """The batch goes through the host's arena; a held place stays as it is."""
    shelf = Shelf(1)
    shelf.place(7, 1, 1)
    assert shelf.place(8, 1, 2) is None
    shelf.leave(1)
    assert shelf.place(8, 2, 1) == Place(0, copy=True)


def test_what_is_of_no_use_goes_first_then_the_oldest() -> None:
    """A slow consumer finds the batches that the fast one has had, as far as there is room."""
    shelf = Shelf(3)
    for batch in (1, 2, 3):
        shelf.place(batch, 1, batch)
        shelf.release(1, batch)
    shelf.forget(2)
    assert shelf.place(4, 1, 4) == Place(1, copy=True, after=(1,))
    assert shelf.place(5, 1, 5) == Place(0, copy=True, after=(1,))
    assert shelf.place(3, 2, 1) == Place(2, copy=False)


def test_a_slot_that_holds_another_batch_is_copied_again() -> None:
    """Its number alone says nothing; whoever reads the old one keeps it."""
    shelf = Shelf(2)
    shelf.place(7, 1, 1)
    shelf.forget(7)
    assert shelf.place(7, 1, 2) == Place(1, copy=True)
    assert shelf.place(7, 2, 1) == Place(1, copy=False)


def test_what_got_lost_on_its_way_is_free() -> None:
    """A consumer that asks says what it has."""
    shelf = Shelf(1)
    shelf.place(7, 1, 1)
    shelf.keep(1, frozenset())
    assert shelf.place(8, 1, 2) == Place(0, copy=True, after=(1,))


class Shelves(RuleBasedStateMachine):
    """A shelf against a plain account of who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf(3)
        self.holds: dict[
            tuple[int, int], tuple[int, int]
        ] = {}  # what each lease was given: place and content
        self.content: dict[int, int] = {}  # of each place
        self.version: dict[int, int] = {}  # of each host slot
        self.lease = 0

    @rule(batch=st.integers(0, 4), member=st.integers(0, 2))
    def grant(self, batch: int, member: int) -> None:
        self.lease += 1
        place = self.shelf.place(batch, member, self.lease)
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
            self.shelf.release(*key)

    @rule(batch=st.integers(0, 4))
    def rewrite(self, batch: int) -> None:
        self.version[batch] = self.version.get(batch, 0) + 1
        self.shelf.forget(batch)

    @rule(member=st.integers(0, 2))
    def leave(self, member: int) -> None:
        self.holds = {key: held for key, held in self.holds.items() if key[0] != member}
        self.shelf.leave(member)

    @invariant()
    def whole(self) -> None:
        self.shelf.check()
        for place, inside in self.holds.values():
            assert self.content[place] == inside


TestShelves = Shelves.TestCase
TestShelves.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
