"""Slow samples do not hold the line: simulated workers, the order unchanged, the memory of a plain DataLoader."""

from __future__ import annotations

import heapq
import random
from collections import deque

import numpy as np
import pytest

from tsnb.planners.slow_samples import SampleCosts, begun_next

SLOW, TIMES, BATCHES = 0.05, 20.0, 600


def made(batch: int, seed: int = 0) -> list[float]:
    """Seconds of each batch: one sample in twenty costs twenty times the others."""
    luck = random.Random(seed)
    return [sum(TIMES if luck.random() < SLOW else 1.0 for _ in range(batch)) for _ in range(BATCHES)]


def plain(cost_s: list[float], workers: int, room: int, pace_s: float) -> float:
    """Seconds that a loop waits for torch's DataLoader: batch k is worker k mod n's, begun when k - room was taken."""
    free_s, taken_s, waited_s = [0.0] * workers, [0.0] * len(cost_s), 0.0
    for k, cost in enumerate(cost_s):
        worker = k % workers
        free_s[worker] = max(taken_s[k - room] if k >= room else 0.0, free_s[worker]) + cost
        wanted_s = taken_s[k - 1] + pace_s if k else 0.0
        taken_s[k] = max(wanted_s, free_s[worker])
        waited_s += taken_s[k] - wanted_s
    return waited_s


def early(
    cost_s: list[float], workers: int, room: int, pace_s: float, told_s: list[float] | None = None
) -> tuple[float, list[int]]:
    """The same with batches begun as `begun_next` says; the order in which they were given, too.

    What is ordered waits in one line; a batch is ordered when another was given, whatever the workers are doing.
    """
    told_s = told_s or cost_s
    now_s, wanted_s, waited_s, given, free = 0.0, 0.0, 0.0, 0, workers
    begun: set[int] = set()
    line: deque[int] = deque()
    at_work: list[tuple[float, int]] = []
    ready: set[int] = set()
    order: list[int] = []
    while given < len(cost_s):
        while True:
            ahead = range(given, min(len(cost_s), given + 4 * room))
            k = begun_next(given, begun, {k: told_s[k] for k in ahead if k not in begun}, pace_s, room)
            if k is None:
                break
            begun.add(k)
            line.append(k)
            assert len(begun) <= room
        while free and line:
            free -= 1
            heapq.heappush(at_work, (now_s + cost_s[line[0]], line.popleft()))
        taken_s = max(wanted_s, now_s) if given in ready else float("inf")
        ended_s = at_work[0][0] if at_work else float("inf")
        assert min(taken_s, ended_s) < float("inf"), "it stands still"
        if taken_s <= ended_s:
            now_s = taken_s
            waited_s += now_s - wanted_s
            ready.remove(given)
            begun.remove(given)
            order.append(given)
            given, wanted_s = given + 1, now_s + pace_s
        else:
            now_s, k = heapq.heappop(at_work)
            free += 1
            ready.add(k)
    return waited_s, order


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("batch", [4, 8, 16])
def test_a_loop_waits_a_third_at_most_of_what_it_waits_for_a_plain_loader(batch: int, workers: int) -> None:
    """At equal memory and with workers busy for 80 % of the time; every batch once, in its order."""
    cost_s = made(batch)
    pace_s = sum(cost_s) / len(cost_s) / workers / 0.8
    waited_s, order = early(cost_s, workers, 2 * workers, pace_s)
    assert order == list(range(BATCHES))
    assert waited_s <= plain(cost_s, workers, 2 * workers, pace_s) / 3


def test_costs_that_are_off_do_less_good_and_no_harm() -> None:
    """Each foretold within a factor of two: half of a plain loader's wait at most. All alike: no more than its."""
    cost_s, luck = made(4), random.Random(1)
    pace_s = sum(cost_s) / len(cost_s) / 4 / 0.8
    before_s = plain(cost_s, 4, 8, pace_s)
    off = [c * 2.0 ** luck.uniform(-1, 1) for c in cost_s]
    assert early(cost_s, 4, 8, pace_s, off)[0] <= before_s / 2
    assert early(cost_s, 4, 8, pace_s, [1.0] * len(cost_s))[0] <= before_s


@pytest.mark.parametrize("room", [1, 2, 3])
def test_the_batch_that_is_given_next_always_has_a_place(room: int) -> None:
    """However little room there is, and however slow the later ones are."""
    cost_s = [1.0, *[50.0] * 30, 1.0]
    assert early(cost_s, 2, room, 0.1)[1] == list(range(32))


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
