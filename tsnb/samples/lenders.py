"""The producer's side of memory that other machines lend: who lends, and what lies where.

Which machines lend is heard of at any time; samples are placed once, when they are chosen. A machine that comes later
lends nothing, and what lay on one that has left is prepared again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tsnb.samples.choice import HitCost, choose
from tsnb.samples.lent import ShardLink
from tsnb.samples.memory import ASSIGNED, AWAY, MOST_LENDERS, SEEN, SampleMemory
from tsnb.samples.owners import Lender, owners_of, worth_fetching
from tsnb.samples.records import digest
from tsnb.samples.shard_wire import MOST_PROBE_BYTES, BadPeer

__all__ = ["Lenders"]

PROBE_S = 1.0
"""How long a machine may take to answer when its pace is measured."""
PROBES_S = 5.0
"""How long all of them may: the stream waits for it, once."""
PROBES = 5


class Lenders:
    """The machines that lend memory to one stream.

    Args:
        token: What they know this stream by.
    """

    def __init__(self, token: bytes) -> None:
        self.token = token
        self._lock = threading.Lock()
        self._now: tuple[Lender, ...] = ()
        self._used: tuple[Lender, ...] = ()  # by their rows in the memory
        self._memory: SampleMemory | None = None

    def fit(self, memory: SampleMemory) -> None:
        """Use a memory from now on; what a predecessor placed elsewhere is lost: it had another token."""
        memory.token = self.token
        memory.lenders["lends"] = 0
        memory.states[(memory.states == ASSIGNED) | (memory.states == AWAY)] = SEEN
        with self._lock:
            self._memory = memory

    def heard(self, lenders: Sequence[Lender]) -> None:
        """Take note of the machines that lend memory now. Called from any thread."""
        with self._lock:
            self._now = tuple(lenders)
            self._end_those_that_left()

    def _end_those_that_left(self) -> None:
        for row, lender in enumerate(self._used):
            if lender not in self._now and self._memory is not None:
                self._memory.lenders["lends"][row] = 0

    def place(self, memory: SampleMemory, cost_s: np.ndarray[Any, Any]) -> bool:
        """Choose samples for other machines, and give them their places. Called while no worker runs.

        Args:
            memory: This machine's.
            cost_s: float [samples]: seconds that preparing each takes; 0 for those that are kept here, or cannot be.

        Returns:
            Whether any sample was placed.
        """
        with self._lock:
            now = self._now[:MOST_LENDERS]
        reached, fetch = _measured(now, self.token)
        room = sum(lender.room_bytes for lender in reached)
        chosen = choose(worth_fetching(cost_s, memory.sizes, fetch), memory.sizes, room, fetch).indices
        owned = owners_of(chosen, memory.sizes[chosen], reached)
        with self._lock:
            self._used = tuple(reached)
            for row, lender in enumerate(reached):
                memory.lenders[row] = (0.0, lender.host.encode(), 1, lender.port)
            self._end_those_that_left()
        memory.assign(*owned)
        return len(owned.indices) > 0

    def release(self) -> None:
        """Have all samples forgotten that lie elsewhere. Called while no worker runs."""
        with self._lock:
            used, self._used = self._used, ()
            if used and self._memory is not None:
                self._memory.lenders["lends"] = 0
        if used:
            _measured(used, self.token)  # which begins with each anew

    def counts(self, memory: SampleMemory) -> tuple[int, int, int]:
        """Return how many machines lend memory that is used, the samples that lie there, and their bytes."""
        away = memory.away()
        kept = int(np.count_nonzero(away))
        machines = len(np.unique(memory.owners[away])) if kept else 0
        return machines, kept, int(memory.sizes[away].sum(dtype=np.int64))


def _measured(lenders: Sequence[Lender], token: bytes) -> tuple[list[Lender], HitCost]:
    """Begin with each machine anew; return those that can be reached, and what a sample from the slowest one costs."""
    reached, each_s, byte_s = [], 0.0, 0.0
    end_s = time.monotonic() + PROBES_S
    for lender in lenders:
        deadline_s = min(end_s, time.monotonic() + PROBE_S)
        with contextlib.suppress(OSError, BadPeer):
            link = ShardLink(lender.host, lender.port, token, deadline_s)
            with contextlib.closing(link):
                link.clear(deadline_s)
                small, large = (_least_s(link, size, deadline_s) for size in (64, MOST_PROBE_BYTES))
            reached.append(lender)
            each_s, byte_s = max(each_s, small), max(byte_s, (large - small) / MOST_PROBE_BYTES)
    return reached, HitCost(each_s, max(0.0, byte_s))


def _least_s(link: ShardLink, size: int, deadline_s: float) -> float:
    """Return how long it takes to fetch so many bytes, and to look at them."""
    least = float("inf")
    for _ in range(PROBES):
        began = time.perf_counter()
        made = link.probe(size, deadline_s)
        assert made is not None
        digest(made.data)
        least = min(least, time.perf_counter() - began)
    return least
