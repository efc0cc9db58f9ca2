"""The climb to a good number of workers, on simulated loaders: no process, no clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from tsnb.planners.tuning import Seen, Tuner

MOST = 8


class Loader:
    """Gives batches at a pace that depends on its workers; models take no more than `wanted` a second."""

    def __init__(
        self,
        pace: Callable[[int], float],
        wanted: float = 1e9,
        worker_bytes: float = 1.0,
        budget_bytes: float = math.inf,
    ) -> None:
        self.pace, self.wanted, self.worker_bytes, self.budget_bytes = (
            pace,
            wanted,
            worker_bytes,
            budget_bytes,
        )
        self.former, self.former_s = 0, 0.0
        self.workers, self.time_s, self.batches, self.loading_s = 1, 0.0, 0.0, 0.0
        self.luck = random.Random(0)
        self.most_bytes = 0.0
        self.numbers: list[int] = []

    def run(self, tuner: Tuner, seconds: float) -> None:
        for _ in range(int(seconds / 0.25)):
            gives = self.pace(self.workers) * self.luck.uniform(0.98, 1.02)
            got = min(gives, self.wanted)
            self.time_s += 0.25
            self.batches += 0.25 * got
            self.loading_s += 0.25 * (
                1.0 if gives <= self.wanted else max(0.0, 0.1 - 0.1 * gives / self.wanted)
            )
            former = self.former if self.time_s < self.former_s else 0
            memory = (self.workers + former) * self.worker_bytes
            self.most_bytes = max(self.most_bytes, memory)
            told = tuner.step(
                Seen(self.time_s, int(self.batches), self.loading_s, self.workers, memory, self.budget_bytes)
            )
            if told is not None:
                self.former, self.former_s = self.workers, self.time_s + 0.9
                self.workers = told
                self.numbers.append(told)


PIPELINES: dict[str, Callable[[int], float]] = {
    "scales": lambda n: 20.0 * n,
    "two cores": lambda n: 20.0 * min(n, 2) * (1 - 0.03 * max(0, n - 2)),
    "a disk": lambda n: min(15.0 * n, 48.0),
    "worse with more": lambda n: 30.0 / n,
}


@pytest.mark.parametrize("name", PIPELINES)
def test_it_finds_nearly_the_best_in_few_probes(name: str) -> None:
    """At least 95 % of the best of the whole grid, in 8 probes or fewer, and it rests then."""
    pace = PIPELINES[name]
    loader, tuner = Loader(pace), Tuner(MOST)
    loader.run(tuner, 45)
    assert pace(loader.workers) >= 0.95 * max(pace(n) for n in range(1, MOST + 1))
    assert len(tuner.probes) <= 8
    rested = len(loader.numbers)
    loader.run(tuner, 120)
    assert len(loader.numbers) == rested


def test_workers_that_nobody_needs_go() -> None:
    """Where the models limit, the fewest that keep the pace."""
    loader, tuner = Loader(lambda n: 20.0 * n, wanted=30.0), Tuner(MOST)
    loader.workers = 6
    loader.run(tuner, 60)
    assert loader.workers == 2
    assert [probe.workers for probe in tuner.probes if not probe.kept] in ([], [1])


def test_the_memory_is_never_passed_by_a_probe() -> None:
    """Not by the new workers beside the former ones either; workers that grow past it become fewer at once."""
    loader, tuner = Loader(lambda n: 20.0 * n, worker_bytes=1.0, budget_bytes=5.5), Tuner(MOST)
    loader.run(tuner, 60)
    assert loader.workers == 3 and loader.most_bytes <= 5.5
    loader.worker_bytes = 1.9
    loader.run(tuner, 0.5)
    assert loader.workers == 2


def test_a_change_starts_the_climb_again() -> None:
    """Fewer cores, then more: it follows both."""
    loader, tuner = Loader(lambda n: 20.0 * min(n, 6)), Tuner(MOST)
    loader.run(tuner, 60)
    assert loader.workers == 6
    loader.pace = lambda n: 5.0 * min(n, 8)
    loader.run(tuner, 60)
    assert loader.workers == 8
