"""The producer's side of memory that other machines lend: who lends, and what lies where.

Which machines lend is heard of at any time, and looked at between two epochs: when samples are chosen, and whenever it
has changed since. What lay on a machine that has left goes to the others, as far as they have room, and one that comes
gets what is kept nowhere; nothing else moves.

What a look finds may be one busy moment of a machine: it does not answer in time, or fetching a sample seems to cost as
much as preparing it. No news follows when that is over, so another look does, after ever longer times.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from tsnb.caching.choice import LEAST_COST_S, HitCost, choose
from tsnb.caching.encoding import digest
from tsnb.caching.lent import ShardLink
from tsnb.caching.memory import GIVEN, MOST_LENDERS, SEEN, SampleMemory
from tsnb.caching.owners import Lender, owners_of, worth_fetching
from tsnb.caching.shard_wire import MOST_PROBE_BYTES, BadPeer

__all__ = ["Lenders"]

PROBE_S = 1.0
"""How long a machine may take to answer when its pace is measured."""
PROBES_S = 5.0
"""How long all of them may: the stream waits for it, between two epochs, whenever other machines lend than before."""
PROBES = 5
AGAIN_S = 10.0
"""After how long machines are looked at again if one did not answer, or was slow; each further time after twice as
long, as one that a firewall hides never answers, and costs `PROBE_S`."""


class Lenders:
    """The machines that lend memory to one stream.

    Args:
        token: What they know this stream by.
    """

    def __init__(self, token: bytes) -> None:
        self.token = token
        self._lock = threading.Lock()
        self._now: tuple[Lender, ...] = ()
        self._looked_at: tuple[Lender, ...] = ()  # when samples were placed
        self._rows: dict[int, Lender] = {}  # by their rows in the memory
        self._memory: SampleMemory | None = None
        self._silent: AbstractSet[Lender] = frozenset()  # that did not answer at the last look
        self._again_at_s = math.inf
        self._wait_s = AGAIN_S

    def fit(self, memory: SampleMemory) -> None:
        """Use a memory from now on; what a predecessor placed elsewhere is lost: it had another token."""
        memory.token = self.token
        memory.lenders["lends"] = 0
        memory.withdraw(range(MOST_LENDERS))
        with self._lock:
            self._memory = memory

    def heard(self, lenders: Sequence[Lender]) -> None:
        """Take note of the machines that lend memory now. Called from any thread."""
        with self._lock:
            self._now = tuple(lenders[:MOST_LENDERS])
            for row in self._departed():
                if self._memory is not None:
                    self._memory.lenders["lends"][row] = 0

    def _departed(self) -> list[int]:
        return [row for row, lender in self._rows.items() if lender not in self._now]

    @property
    def due(self) -> bool:
        """Whether to place samples: other machines lend than when it was done last, or it is time for another look."""
        return self._now != self._looked_at or time.monotonic() >= self._again_at_s

    def place_anew(self, memory: SampleMemory) -> bool:
        """Forget what lies elsewhere, then place samples; as `place`."""
        with self._lock:
            self._rows.clear()
            memory.lenders["lends"] = 0
            memory.withdraw(range(MOST_LENDERS))
        return self.place(memory)

    def place(self, memory: SampleMemory) -> bool:
        """Choose samples that are not kept and give them places on other machines; what lies there stays.

        Called while no worker runs.

        Args:
            memory: This machine's.

        Returns:
            Whether any sample was placed.
        """
        with self._lock:
            now = self._now
            if now != self._looked_at:
                self._looked_at, self._wait_s = now, AGAIN_S
            self._again_at_s = math.inf
            departed = self._departed()
            memory.withdraw(departed)
            for row in departed:
                del self._rows[row]
            known = set(self._rows.values())
        if not now:
            return False
        # those last that did not answer before: each may take a part of the time that there is for all
        reached, fetch = _measured(sorted(now, key=self._silent.__contains__), self.token, known)
        self._silent = set(now).difference(reached)
        rows = self._enter(memory, reached)
        ends = [memory.end_of(row) for row in rows]
        left = [
            lender._replace(room_bytes=max(0, lender.room_bytes - end))
            for lender, end in zip(reached, ends, strict=True)
        ]
        free = ((memory.states == SEEN) | (memory.states == GIVEN)) & (memory.forms == memory.form)
        known_s = np.where(free, memory.cost_s, 0.0)
        cost_s = worth_fetching(known_s, memory.sizes, fetch)
        if self._silent or ((cost_s < known_s) & (known_s >= LEAST_COST_S)).any():
            self._again_at_s = time.monotonic() + self._wait_s
            self._wait_s *= 2
        chosen = choose(cost_s, memory.sizes, sum(one.room_bytes for one in left), fetch).indices
        indices, owners, offsets = owners_of(chosen, memory.sizes[chosen], left)
        if len(indices):
            memory.assign(indices, np.array(rows, np.uint8)[owners], offsets + np.array(ends)[owners])
        return len(indices) > 0

    def _enter(self, memory: SampleMemory, reached: Sequence[Lender]) -> list[int]:
        """Enter machines into the memory's table; return their rows."""
        with self._lock:
            by_lender = {lender: row for row, lender in self._rows.items()}
            free = [row for row in range(MOST_LENDERS) if row not in self._rows]
            for lender in reached:
                if lender not in by_lender:
                    row = by_lender[lender] = free.pop(0)
                    self._rows[row] = lender
                    lends = lender in self._now
                    memory.lenders[row] = (0.0, lender.host.encode(), lends, lender.port)
            return [by_lender[lender] for lender in reached]

    def release(self) -> None:
        """Have all samples forgotten that lie elsewhere. Called while no worker runs."""
        with self._lock:
            used = tuple(self._rows.values())
            self._rows.clear()
            if used and self._memory is not None:
                self._memory.lenders["lends"] = 0
        _measured(used, self.token, set())

    def counts(self, memory: SampleMemory) -> tuple[int, int, int]:
        """Return how many machines lend memory that is used, the samples that lie there, and their bytes."""
        if not self._rows:
            return 0, 0, 0
        away = memory.away()
        kept = int(np.count_nonzero(away))
        machines = len(np.unique(memory.owners[away])) if kept else 0
        return machines, kept, int(memory.sizes[away].sum(dtype=np.int64))


def _measured(
    lenders: Sequence[Lender], token: bytes, known: AbstractSet[Lender]
) -> tuple[list[Lender], HitCost]:
    """Return those machines that can be reached, and what a sample from the slowest one costs.

    Args:
        lenders: The machines.
        token: What they know the stream by.
        known: Those that are to keep the samples that they have.
    """
    reached, each_s, byte_s = [], 0.0, 0.0
    end_s = time.monotonic() + PROBES_S
    for lender in lenders:
        deadline_s = min(end_s, time.monotonic() + PROBE_S)
        with contextlib.suppress(OSError, BadPeer):
            link = ShardLink(lender.host, lender.port, token, deadline_s)
            with contextlib.closing(link):
                if lender not in known:
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
        assert made is not False
        digest(made.data)
        least = min(least, time.perf_counter() - began)
    return least
