"""Where a loop stands: said by the producer once, by the loop from then on."""

from __future__ import annotations

import pytest

from tsnb.stream.consumer.place import Loop, Place


def test_the_producers_word_counts_only_at_the_beginning() -> None:
    """After a restart the loop may hold rows that it has not given; its own place must not jump over them."""
    loop = Loop(Place(2))
    loop.began(3, 0)
    assert loop.place == Place(3, 0, 0, begun=True)
    loop.place = Place(3, 5, 2, begun=True)
    loop.began(3, 9)
    assert loop.place == Place(3, 5, 2, begun=True)


def test_a_place_comes_back_from_its_state() -> None:
    """In the middle of a loader batch, at an epoch's start, and after its end."""
    for place in (Place(3, 5, 2, begun=True), Place(4)):
        assert Place.from_state(place.to_state("mnist", "seed 1")) == place
    assert Place(3, 5, 2, begun=True).next_epoch() == Place(4)


@pytest.mark.parametrize("state", [{}, {"tsnb": 1}, {"tsnb": 1, "epoch": -1, "batch": 0, "offset": 0}])
def test_what_is_no_state_is_refused(state: dict[str, int]) -> None:
    """Another loader's state, or half of one."""
    with pytest.raises(ValueError, match=r"not a state that Consumer\.state_dict"):
        Place.from_state(state)
