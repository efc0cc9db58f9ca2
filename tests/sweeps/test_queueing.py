"""Who starts next: never more than there are places, in order, and together where that is possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tsnb.experiments.engine import places_here
from tsnb.sweeps.queueing import Places


def test_all_run_at_once_up_to_two_a_core() -> None:
    """Beyond that the rest waits."""
    assert [places_here(trials, 2) for trials in (1, 4, 5, 100)] == [1, 4, 4, 4]
    assert places_here(12, 8) == 12


def test_a_free_place_goes_to_the_next_in_line() -> None:
    """In the order in which they came."""
    places = Places(2)
    places.add("abcd")
    assert places.start() == ["a", "b"]
    assert places.start() == []
    places.end("b")
    assert places.start() == ["c"]
    assert places.waiting == ("d",)


def test_places_of_those_who_are_stopped_together_are_filled_together() -> None:
    """The first to be gone waits for the last, so that two new ones start with each other."""
    places = Places(3)
    places.add("abcde")
    places.start()
    places.leave("ab")
    places.end("a")
    assert places.start() == []
    places.end("b")
    assert places.start() == ["d", "e"]


def test_a_stopped_sweep_starts_nobody() -> None:
    """Who waited is sent away, who runs runs, and then it is over."""
    places = Places(1)
    places.add("ab")
    places.start()
    assert places.clear() == ["b"]
    assert not places.over
    places.end("a")
    assert places.over and places.start() == []


@given(st.integers(1, 4), st.lists(st.sampled_from(["start", "end", "leave", "add", "clear"]), max_size=60))
def test_the_places_hold_whatever_happens(at_once: int, events: list[str]) -> None:
    """Nobody starts twice, nobody is forgotten, and no more run than there are places."""
    places, made, running, sent = Places(at_once), 0, [], []
    started: list[str] = []
    for event in events:
        if event == "add":
            places.add([str(made)])
            made += 1
        elif event == "start":
            now = places.start()
            started += now
            running += now
        elif event == "leave" and running:
            places.leave(running[:2])
        elif event == "end" and running:
            places.end(running.pop(0))
        elif event == "clear":
            sent += places.clear()
        places.check()
    assert sorted([*started, *sent, *places.waiting], key=int) == [str(number) for number in range(made)]
    assert len(running) <= at_once
