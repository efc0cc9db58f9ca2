"""Slow samples do not hold the line: simulated workers, the order unchanged, the memory of a plain DataLoader."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.uneven_simulated import by_line, in_turn, plain, searched
from tsnb.stream.decisions.slow_samples import SampleCosts, begun_next

SLOW, TIMES, BATCHES = 0.05, 20.0, 600


def made(batch: int, seed: int = 0) -> list[float]:
    """Seconds of each batch: one sample in twenty costs twenty times the others."""
    luck = random.Random(seed)
    return [sum(TIMES if luck.random() < SLOW else 1.0 for _ in range(batch)) for _ in range(BATCHES)]


def early(
    cost_s: list[float], workers: int, room: int, pace_s: float, told_s: list[float] | None = None
) -> tuple[list[float], list[int]]:
    """Seconds that a loop waits for each batch of a stream, and which batches were begun, in that order."""
    begun: list[int] = []

    def rule(
        given: int, busy: Collection[int], waiting: Mapping[int, float], pace_s: float, room: int
    ) -> int | None:
        k = begun_next(given, busy, waiting, pace_s, room)
        begun.extend(() if k is None else (k,))
        return k

    return by_line(cost_s, workers, room, workers, pace_s, rule, told_s), begun


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("batch", [4, 8, 16])
def test_a_loop_waits_a_third_at_most_of_what_it_waits_for_a_plain_loader(batch: int, workers: int) -> None:
    """At equal memory and with workers busy for 80 % of the time, once the first batch is there."""
    cost_s = made(batch)
    pace_s = sum(cost_s) / len(cost_s) / workers / 0.8
    waited_s, _ = early(cost_s, workers, 2 * workers, pace_s)
    assert sum(waited_s[1:]) <= sum(plain(cost_s, workers, 3 * workers, pace_s)[1:]) / 3


@pytest.mark.parametrize("workers", [2, 4])
def test_hardly_any_order_of_beginning_is_better(workers: int) -> None:
    """Of many that are tried with all costs known, none saves more than a tenth of a plain loader's wait."""
    cost_s = made(4)[:150]
    pace_s = sum(cost_s) / len(cost_s) / workers / 0.8
    best_s = searched(cost_s, workers, 2 * workers, workers, pace_s, tries=60)
    found_s = sum(early(cost_s, workers, 2 * workers, pace_s)[0])
    assert best_s <= found_s <= best_s + sum(plain(cost_s, workers, 3 * workers, pace_s)) / 10


def test_costs_that_are_off_do_less_good_and_no_harm() -> None:
    """Each foretold within a factor of two: half of a plain loader's wait at most. All alike: no more than its."""
    cost_s, luck = made(4), random.Random(1)
    pace_s = sum(cost_s) / len(cost_s) / 4 / 0.8
    before_s = sum(plain(cost_s, 4, 12, pace_s))
    off = [c * 2.0 ** luck.uniform(-1, 1) for c in cost_s]
    assert sum(early(cost_s, 4, 8, pace_s, off)[0]) <= before_s / 2
    assert sum(early(cost_s, 4, 8, pace_s, [1.0] * len(cost_s))[0]) <= before_s


@pytest.mark.parametrize("room", [1, 2, 3])
def test_the_batch_that_is_given_next_always_has_a_place(room: int) -> None:
    """However little room there is, and however slow the later ones are."""
    cost_s = [1.0, *[50.0] * 30, 1.0]
    assert sorted(early(cost_s, 2, room, 0.1)[1]) == list(range(32))


SECONDS = st.floats(0.0, 100.0)


@settings(deadline=None)
@given(
    st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=40),
    st.integers(1, 5),
    st.integers(1, 12),
    st.integers(1, 4),
    st.floats(0.0, 50.0),
)
def test_whatever_is_foretold_all_are_begun_once_and_given_in_their_order(
    batches: list[tuple[float, float]], workers: int, room: int, window: int, pace_s: float
) -> None:
    """Never a standstill, never more than there is room for (`by_line` asserts both), and an end for each loop."""
    cost_s, told_s = [cost for cost, _ in batches], [told for _, told in batches]
    waited_s = by_line(cost_s, workers, room, window, pace_s, told_s=told_s)
    assert len(waited_s) == len(batches)
    assert min(waited_s) >= 0.0
    assert sum(waited_s) <= sum(cost_s) * (1 + 1e-9) + 1e-6, (
        "at worst one worker does it all, and nothing else"
    )


@given(st.lists(st.floats(1.0, 2.0), min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 12))
def test_where_samples_are_even_batches_are_begun_in_their_order(
    cost_s: list[float], workers: int, room: int
) -> None:
    """Costs that differ by no more than a step of the loop change nothing."""
    pace_s = max(cost_s) - min(cost_s) + 1e-6
    waited_s, begun = early(cost_s, workers, room, pace_s)
    assert begun == list(range(len(cost_s)))
    assert waited_s == by_line(cost_s, workers, room, workers, pace_s, in_turn)


def test_batches_cost_what_their_samples_did_or_their_files_let_expect() -> None:
    """Measured where they were prepared before; else by bytes; else the mean. What is no index costs nothing."""
    costs = SampleCosts(4)
    assert costs.batch_s([0, 1]) == 0.0, "nothing is known"
    costs.note([0, 1], np.array([1.0, 3.0], np.float32))
    assert (costs.batch_s([0, 1]), costs.batch_s([2])) == (4.0, 2.0)
    costs.note(0, 2.0)
    assert costs.batch_s(0) == 1.5, "half of each measurement: one of them may be the machine's"
    sized = SampleCosts(3, {0: 10.0, 1: 30.0, 2: 200.0}.__getitem__)
    sized.note([0, 1], np.array([1.0, 3.0], np.float32))
    assert sized.batch_s([1, 2]) == 23.0
    assert costs.batch_s(["a"]) == costs.batch_s([9]) == costs.batch_s([-1]) == 0.0
    costs.note(["a", 5], 1.0)
    assert costs.measured == 2
