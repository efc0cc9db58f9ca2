"""Who starts next: never more than there are places, in order, and together where that is possible."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tsnb.experiments.running.engine import places_here
from tsnb.planners.queueing import Leaver, Places


def test_all_run_at_once_up_to_two_a_core() -> None:
    """Beyond that the rest waits."""
    assert [places_here(trials, 2) for trials in (1, 4, 5, 100)] == [1, 4, 4, 4]
    assert places_here(12, 8) == 12


def test_a_gpu_has_places_by_its_memory() -> None:
    """Two for each of sixteen cores would be 32 CUDA contexts on one GPU, whatever its memory."""
    gib = 1 << 30
    assert [places_here(100, 16, n * gib) for n in (0, 3, 8, 78, 139)] == [1, 1, 2, 19, 32]
    assert places_here(3, 16, 78 * gib) == 3


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


class Knowing(Places):
    """Places whose trials' ends are known."""

    def __init__(self, at_once: int) -> None:
        super().__init__(at_once, clock=lambda: self.now_s)
        self.now_s = 0.0
        self.known: list[Leaver] | None = []
        self.room = 100

    def _leavers(self) -> list[Leaver] | None:
        return self.known

    def _start_s(self, name: str) -> float:
        return min(self._starts_s, default=math.inf)

    def _fit(self, names: Sequence[str]) -> bool:
        return len(names) <= self.room


def test_the_next_is_started_early_for_each_that_is_about_to_end() -> None:
    """By twice the shortest start that was seen, and not so that it would be ready before a last epoch."""
    places = Knowing(2)
    places.add("abcdef")
    assert places.start() == ["a", "b"] and places.look_s == 0.0
    places.known = [Leaver("a", 1.0, 0.1), Leaver("b", 1.0, 0.1)]
    assert places.start_early() == [] and places.look_s == 0.5, "how long a start takes was not seen yet"
    places.now_s = 3.0
    places.attached("a")
    places.now_s = 9.0
    places.attached("b")
    places.known = [Leaver("a", 30.0, 0.3), Leaver("b", 6.1, 1.2)]
    assert places.start_early() == [] and places.look_s == 0.5
    places.known = [Leaver("a", 30.0, 0.3), Leaver("b", 5.9, 2.0)]
    assert places.start_early() == [], "a start of 2.1 s would be over before its last epoch"
    places.known = [Leaver("a", 30.0, 0.3), Leaver("b", 5.9, 59.0)]
    assert places.start_early() == [], "epochs of 0.1 s, and so much more before the last one"
    places.known = [Leaver("a", 30.0, 0.3), Leaver("b", 2.1, 21.0)]
    assert places.start_early() == ["c"] and places.free == 0 and places.look_s is not None
    places.check()
    places.known.append(Leaver("c", math.inf, math.inf))
    assert places.start_early() == [] == places.start()
    places.end("b")
    places.check()
    assert places.start() == [] and places.free == 0
    places.known = [Leaver("a", 2.0, 0.3), Leaver("c", 2.0, 0.3)]
    places.room = 1
    assert places.start_early() == ["d"], "there is room for one beside all that run"
    places.end("d")
    places.check()
    assert places.start_early() == ["e"], "it failed, and another one may be there in time"
    places.end("a")
    places.end("c")
    assert places.start() == ["f"]
    assert places.look_s is None


def test_what_is_not_known_yet_is_looked_for_soon_at_first_and_then_seldom() -> None:
    """An epoch may be as short as two seconds, and a training without an end goes on for days."""
    places = Knowing(1)
    places.add("ab")
    places.start()
    places.attached("a")
    places.known = [Leaver("a", math.inf, math.inf)]
    asked = []
    while places.now_s < 60:
        assert places.start_early() == [] and places.look_s is not None
        asked.append(places.look_s)
        places.now_s += places.look_s
    assert asked[:4] == [0.5] * 4 and asked[-1] == 2.0 and asked == sorted(asked)


def test_nobody_is_started_early_where_nothing_is_known_or_trials_are_being_stopped() -> None:
    """Then nobody asks again, until something happens."""
    places = Knowing(1)
    places.add("ab")
    places.start()
    places.attached("a")
    places.known = None
    assert places.start_early() == [] and places.look_s is None
    places.known = [Leaver("a", 0.0, 0.0)]
    places.leave("a")
    assert places.start_early() == []
    plain = Places(1)
    plain.add("ab")
    plain.start()
    assert plain.start_early() == [] and plain.look_s is None


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
