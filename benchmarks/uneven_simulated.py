"""The loop of benchmarks.uneven, simulated: how much of its waiting could another rule still save?

Workers, one line of tickets, room and a loop at a steady pace, with that benchmark's own samples in the orders that its
streams draw. Handing over costs nothing here, and the wait for an epoch's first batch counts: else the best rule would
be to let the loop begin later. Each is the mean over the orders, in seconds of an epoch:

    plain     torch's DataLoader, with as much memory
    in turn   by one line that all workers take from, in the order of the epoch: nothing is known of any sample
    tsnb      by the same line, as `decisions.slow_samples.begun_next` says
    best      the best of many orders that are tried, each with all costs known: what a better rule could reach
    split     as tsnb, if the samples of a batch went to all workers. They cannot: the generators are seeded for each
              batch, so what a sample draws depends on those before it
    warmed    as tsnb, from a start at which no sample is slow: the rest is the start, where nothing lies ready yet
    first     the wait for the first batch, which is in each of those but the last; benchmarks.uneven leaves it out

    python -m benchmarks.uneven_simulated [--workers 2 4 8] [--batch 4 8] [--orders 3] [--tries 300]
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch

from benchmarks.uneven import PREFETCH, SEED, Uneven
from tsnb.stream.decisions.slow_samples import begun_next
from tsnb.stream.loader.tickets import mix
from tsnb.text.words import text_table

__all__ = ["by_line", "in_turn", "plain", "searched"]

Rule = Callable[[int, Collection[int], Mapping[int, float], float, int], "int | None"]
"""As `begun_next`: which batch is begun next."""
AHEAD = 4
"""Batches that are looked at, in times the room: as `stream.loader.crew`."""
WARM = 40
"""Batches."""


def plain(cost_s: Sequence[float], workers: int, room: int, pace_s: float) -> list[float]:
    """Seconds that a loop waits for each batch of a DataLoader: k is worker k mod n's, begun when k - room was taken.

    Args:
        cost_s: Of each batch.
        workers: How many.
        room: Batches that are begun or ready.
        pace_s: Seconds that the loop works on a batch.
    """
    free_s, taken_s, waited_s = [0.0] * workers, [0.0] * len(cost_s), []
    for k, cost in enumerate(cost_s):
        worker = k % workers
        free_s[worker] = max(taken_s[k - room] if k >= room else 0.0, free_s[worker]) + cost
        wanted_s = taken_s[k - 1] + pace_s if k else 0.0
        taken_s[k] = max(wanted_s, free_s[worker])
        waited_s.append(taken_s[k] - wanted_s)
    return waited_s


def in_turn(
    _given: int, begun: Collection[int], waiting: Mapping[int, float], _pace_s: float, room: int
) -> int | None:
    """A rule: in the order of the epoch."""
    return next(iter(waiting)) if waiting and len(begun) < room else None


def by_line(
    tasks_s: Iterable[float | Sequence[float]],
    workers: int,
    room: int,
    window: int,
    pace_s: float,
    rule: Rule = begun_next,
    told_s: Sequence[float] | None = None,
) -> list[float]:
    """Seconds that a loop waits for each batch of a stream, given in their order.

    What is ordered waits in one line for all workers. More is ordered when a batch was given, whatever workers do then.

    Args:
        tasks_s: Of each batch the seconds that it takes a worker, or those of its parts, each for any worker.
        workers: How many.
        room: Batches that may be begun and not given.
        window: Batches that may be given and not taken.
        pace_s: Seconds that the loop works on a batch.
        rule: Which is begun next.
        told_s: What the rule is told that each batch takes; None: what it does.

    Raises:
        AssertionError: All stands still, or the rule takes more room than there is, or begins what does not wait.
    """
    parts = [[one] if isinstance(one, float) else list(one) for one in tasks_s]
    line = _Line(parts, [sum(each) for each in parts] if told_s is None else told_s, room, rule)
    now_s = wanted_s = 0.0
    free = workers
    at_work: list[tuple[float, int]] = []
    waited_s: list[float] = []
    line.order(pace_s)
    while len(waited_s) < len(parts):
        while free and line.tickets:
            free -= 1
            cost_s, k = line.tickets.popleft()
            heapq.heappush(at_work, (now_s + cost_s, k))
        if line.ready and line.given - len(waited_s) < window:
            line.give(pace_s)
            continue
        taken_s = max(now_s, wanted_s) if line.given > len(waited_s) else math.inf
        assert at_work or taken_s < math.inf, "it stands still"
        if at_work and at_work[0][0] < taken_s:
            now_s, k = heapq.heappop(at_work)
            free += 1
            parts[k].pop()  # which of them does not matter: it is ready with the last
        else:
            now_s = taken_s
            waited_s.append(now_s - wanted_s)
            wanted_s = now_s + pace_s
    return waited_s


class _Line:
    """What is ordered, as `stream.loader.crew` orders it."""

    def __init__(self, parts: list[list[float]], told_s: Sequence[float], room: int, rule: Rule) -> None:
        self.tickets: deque[tuple[float, int]] = deque()
        self.given = 0
        self._parts, self._told_s, self._room, self._rule = parts, told_s, room, rule
        self._begun: set[int] = set()
        self._waiting: dict[int, float] = {}
        self._drawn = 0

    @property
    def ready(self) -> bool:
        """Whether the batch that is given next is."""
        return self.given in self._begun and not self._parts[self.given]

    def give(self, pace_s: float) -> None:
        """Give a batch, and order more."""
        self._begun.remove(self.given)
        self.given += 1
        self.order(pace_s)

    def order(self, pace_s: float) -> None:
        """Order as much as the rule does."""
        while self._drawn < min(len(self._parts), self.given + AHEAD * self._room):
            self._waiting[self._drawn] = self._told_s[self._drawn]
            self._drawn += 1
        while (k := self._rule(self.given, self._begun, self._waiting, pace_s, self._room)) is not None:
            del self._waiting[k]
            self._begun.add(k)
            assert len(self._begun) <= self._room, "more than there is room for"
            self.tickets.extend((one, k) for one in sorted(self._parts[k], reverse=True))


def by_lead(lead_s: Sequence[float]) -> Rule:
    """A rule: as `begun_next`, each batch as if it took so long, however alike they are."""

    def begun(
        given: int, begun: Collection[int], waiting: Mapping[int, float], pace_s: float, room: int
    ) -> int | None:
        if len(begun) >= room or not waiting:
            return None
        first = next(iter(waiting))
        if room - len(begun) == 1 and (first == given or sum(k > first for k in begun) >= max(1, room // 2)):
            return first
        return min(waiting, key=lambda k: (k * pace_s - lead_s[k], k))

    return begun


def searched(
    cost_s: Sequence[float], workers: int, room: int, window: int, pace_s: float, tries: int
) -> float:
    """Return the least that a loop waited of this many orders: each changes the best so far in some places."""
    luck, lead_s = random.Random(0), list(cost_s)
    best_s = min(
        sum(by_line(cost_s, workers, room, window, pace_s, rule)) for rule in (begun_next, by_lead(lead_s))
    )
    for _ in range(tries):
        changed_s = list(lead_s)
        for _ in range(luck.choice((1, 1, 2, 4, 8))):
            changed_s[luck.randrange(len(changed_s))] += luck.gauss(0, 1) * luck.choice((1, 4, 12)) * pace_s
        waited_s = sum(by_line(cost_s, workers, room, window, pace_s, by_lead(changed_s)))
        if waited_s <= best_s:
            best_s, lead_s = waited_s, changed_s
    return best_s


def orders(data: Uneven, batch: int, number: int) -> list[list[list[float]]]:
    """Return the seconds of each sample by batch, in the orders of the second epochs of the benchmark's streams."""
    found = []
    for seed in range(SEED, SEED + number):
        luck = torch.Generator().manual_seed(mix(seed, 1, 0))
        each_s = [data.took_s(index) for index in torch.randperm(len(data), generator=luck).tolist()]
        found.append([each_s[k : k + batch] for k in range(0, len(each_s), batch)])
    return found


def simulate(workers: int, batch: int, number: int, batches: int, tries: int, busy: float) -> list[float]:
    """Return the seconds waited: plain, in turn, tsnb, best, split, warmed, first."""
    data = Uneven(batch * batches, 0.004)
    room, pace_s = workers * PREFETCH, data.mean_s * batch / workers / busy
    ways = []
    for samples_s in orders(data, batch, number):
        cost_s = [sum(each) for each in samples_s]
        alone_s = [max(*each, sum(each) / workers) for each in samples_s]
        warmed = by_line([data.sample_s * batch] * WARM + cost_s, workers, room, workers, pace_s)
        tsnb_s = by_line(cost_s, workers, room, workers, pace_s)
        ways.append((
            sum(plain(cost_s, workers, room + workers, pace_s)),
            sum(by_line(cost_s, workers, room, workers, pace_s, in_turn)),
            sum(tsnb_s),
            searched(cost_s, workers, room, workers, pace_s, tries),
            sum(by_line(samples_s, workers, room, workers, pace_s, told_s=alone_s)),
            sum(warmed[WARM:]),
            tsnb_s[0],
        ))  # fmt: skip
    return [statistics.fmean(each) for each in zip(*ways, strict=True)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; print the table.

    Args:
        arguments: Left out: those of the command line.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.uneven_simulated", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--batch", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--orders", type=int, default=3, help="that are drawn (3)")
    parser.add_argument("--tries", type=int, default=300, help="to find a better order of beginning (300)")
    parser.add_argument("--batches", type=int, default=200, help="of an epoch (200)")
    parser.add_argument("--busy", type=float, default=0.8, help="share of the time that workers work (0.8)")
    given = parser.parse_args(arguments)
    head = ["workers", "batch", "plain", "in turn", "tsnb", "best", "split", "warmed", "first"]
    rows = []
    for workers in given.workers:
        for batch in given.batch:
            ways = simulate(workers, batch, given.orders, given.batches, given.tries, given.busy)
            rows.append([str(workers), str(batch), *(f"{each_s:.2f} s" for each_s in ways)])
    print("\n".join(text_table([head, *rows])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
