"""How many workers a loader gets while its trials go on: a guided climb. Pure: what was seen in, a number out.

Seeds by batch make the number of workers invisible in the data, and the grid is small, so no learning is needed:

    watch --the loader limits--> one more --helped--> watch (from the new pace on)
      |                             +------not------> back; that number is left alone
      +---the models limit-----> one fewer, kept while the pace stays; it saves CPU and memory

- The loader limits where the producer waits for its workers for more than `LIMITS` of the time; the models do where it
  waits for less than `IDLE`: the window is full, or no trial asks.
- A number is measured for `probe_s`, after `settle_s` in which the former workers hand in what they had.
- A number whose memory would go past the budget is not tried, that of the former workers included, which end a moment
  later; workers that have gone past it are made fewer at once.
- A settled pace that changes by `CHANGED` in two measurements makes all that was tried worth trying again: other
  trials, other samples, fewer cores.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Probe", "Seen", "Tuner"]

LIMITS = 0.2
IDLE = 0.05
HELPED = 1.04
"""One more that gives less is not worth its memory."""
STAYED = 0.98
"""One fewer may cost so much pace: less than two measurements differ."""
CHANGED = 0.25
LEAST = 10
"""Batches that a measurement has at least."""


class Seen(NamedTuple):
    """A loader at one moment."""

    time_s: float
    """By a clock that only grows."""
    batches: int
    """Loaded so far."""
    loading_s: float
    """Seconds so far in which the producer waited for its workers."""
    workers: int
    """Now."""
    memory_bytes: float = 0.0
    """Of all workers, now."""
    budget_bytes: float = math.inf
    """What they may have, now."""


class Probe(NamedTuple):
    """One number of workers, measured."""

    workers: int
    """The number."""
    per_s: float
    """Batches a second."""
    waited: float
    """Share of the time in which the producer waited for them, 0 to 1."""
    kept: bool
    """Whether it stayed."""


class Tuner:
    """Decides for one loader.

    Attributes:
        probes: What was measured, in order.

    Args:
        most: Workers at most.
        probe_s: Seconds of a measurement.
        settle_s: Seconds after a change that do not count.
    """

    def __init__(self, most: int, probe_s: float = 3.0, settle_s: float = 1.0) -> None:
        self.probes: list[Probe] = []
        self._most = most
        self._probe_s, self._settle_s = probe_s, settle_s
        self._start: Seen | None = None
        self._not_before_s = -math.inf
        self._before: Probe | None = None  # what a number on trial is compared with
        self._settled: float | None = None
        self._changed = 0
        self._tried: set[int] = set()

    def step(self, seen: Seen) -> int | None:
        """Look at the loader; return another number of workers, or None.

        Args:
            seen: Now; times never go back.
        """
        settled = seen.time_s >= self._not_before_s
        if settled and seen.memory_bytes > seen.budget_bytes and seen.workers > 1:
            self._tried.add(seen.workers)
            self._before = None
            return self._go(seen, seen.workers - 1)
        if self._start is None or self._start.workers != seen.workers:
            if settled:
                self._start = seen
            return None
        lasted_s, batches = seen.time_s - self._start.time_s, seen.batches - self._start.batches
        if lasted_s < self._probe_s or batches < LEAST:
            return None
        waited = (seen.loading_s - self._start.loading_s) / lasted_s
        now = Probe(seen.workers, batches / lasted_s, min(1.0, waited), kept=True)
        self._start = seen
        return self._watch(seen, now) if self._before is None else self._judge(seen, now, self._before)

    def _judge(self, seen: Seen, now: Probe, before: Probe) -> int | None:
        """Keep a number that is on trial, or go back."""
        self._before = None
        more = now.workers > before.workers
        kept = now.per_s >= (HELPED if more else STAYED) * before.per_s
        self.probes.append(now._replace(kept=kept))
        self._tried.add(before.workers if kept else now.workers)
        self._settled = None
        return self._watch(seen, now) if kept else self._go(seen, before.workers)

    def _watch(self, seen: Seen, now: Probe) -> int | None:
        if not self.probes:
            self.probes.append(now)
        if self._settled is not None and abs(now.per_s / self._settled - 1) > CHANGED:
            self._changed += 1
            if self._changed < 2:
                return None
            self._tried.clear()
        self._changed = 0
        self._settled = now.per_s
        more, fewer = seen.workers + 1, seen.workers - 1
        if now.waited > LIMITS and more not in self._tried and self._fits(seen, more):
            wanted = more
        elif now.waited < IDLE and fewer >= 1 and fewer not in self._tried and self._fits(seen, fewer):
            wanted = fewer
        else:
            return None
        self._before = now
        return self._go(seen, wanted)

    def _fits(self, seen: Seen, workers: int) -> bool:
        # new ones have as much as these at most; both are there until the former have handed in what they had
        foretold_bytes = seen.memory_bytes * (1 + workers / max(1, seen.workers))
        return workers <= self._most and foretold_bytes <= seen.budget_bytes

    def _go(self, seen: Seen, workers: int) -> int:
        self._start, self._not_before_s = None, seen.time_s + self._settle_s
        return workers
