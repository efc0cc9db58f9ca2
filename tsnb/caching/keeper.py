"""The producer's side of a cache: which samples can be kept, the current phase, and memory given back in time."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset

from tsnb.caching.choice import HitCost, PackedForms, choose
from tsnb.caching.cut import Cached
from tsnb.caching.encoding import decode, digest, encode
from tsnb.caching.learning import KeptDataset
from tsnb.caching.lenders import Lenders
from tsnb.caching.memory import (
    ASSIGNED,
    CHOSEN,
    CUT,
    GIVEN,
    LEARNING,
    OFF,
    PROVING,
    SEEN,
    SERVING,
    UNSEEN,
    WRITTEN,
    SampleMemory,
    adopted,
)
from tsnb.caching.pressure import LOOK_S, room_within, wanted_back
from tsnb.caching.shard_wire import TOKEN_BYTES
from tsnb.errors import ArenaFull
from tsnb.growing.grown import Grown
from tsnb.machine.memory import Pressure, free_memory
from tsnb.stream.loader.seams import StandIn
from tsnb.telemetry.readings import CacheReading

__all__ = ["Keeper", "chain", "require_room", "why_not"]

_PHASES = {LEARNING: "learning", PROVING: "proving", SERVING: "serving", OFF: "off"}
_WAY_OUT = "Mark where the deterministic part ends: DataLoader(tsnb.data.cache(dataset, then=augment), ...)."


_NO_GAIN = "no sample is slower to prepare than to read from a cache, or none fits into it"


def why_not(dataset: Any, workers: int) -> str:
    """Return why the samples of a data set cannot be kept, and the way out; "" where they can.

    Args:
        dataset: The loader's.
        workers: Its worker processes.
    """
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        return f"samples of a {kind} can only be iterated, so they cannot be requested again by number"
    if not hasattr(dataset, "__len__"):
        return f"a {kind} has no len()"
    if not workers:
        return (
            "it stores what worker processes prepare, and this loader has no workers. Pass "
            "num_workers=1 or more to the DataLoader, or serve with workers=1"
        )
    for part in chain(dataset):
        if isinstance(part, Grown):
            return "its size is fixed by the dataset, and this dataset grows. Serve it without cache="
        if hasattr(part, "set_epoch"):
            return (
                f"{type(part).__name__} has a set_epoch, so its samples may differ between epochs. {_WAY_OUT}"
            )
        if not isinstance(part, (Subset, Cached)) and getattr(part, "__getitems__", None) is not None:
            return f"{type(part).__name__} prepares samples together (__getitems__). {_WAY_OUT}"
        if isinstance(part, Cached):
            break
    return ""


def chain(dataset: Any) -> Iterator[Any]:
    """Give a data set and those it takes its samples from."""
    yield dataset
    for inner in (
        getattr(dataset, "datasets", ())
        if isinstance(dataset, ConcatDataset)
        else [getattr(dataset, "dataset", None)]
    ):
        if inner is not None and inner is not dataset:
            yield from chain(inner)


class Keeper:
    """Keeps samples of one stream.

    Args:
        limit_bytes: Memory that it may use; each machine that lends some has the same limit.

    Attributes:
        limit_bytes: Memory that it may use.
        lenders: The other machines of a cluster that lend memory to it.

    Raises:
        TsnbError: This process may not open another descriptor.
    """

    def __init__(self, limit_bytes: int) -> None:
        taken_over = adopted()
        self._inherited = taken_over is not None
        self.limit_bytes = limit_bytes
        self._memory = SampleMemory.create() if taken_over is None else SampleMemory(taken_over)
        self.lenders = Lenders(secrets.token_bytes(TOKEN_BYTES))
        self._given_bytes = 0
        self._explicit = False
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._watch_memory, name="tsnb-cache", daemon=True)

    def dataset(self, dataset: Any, loader: DataLoader[Any], workers: int) -> StandIn:
        """Return what workers see in place of the loader's dataset. Called once, before they start.

        Args:
            dataset: The loader's, made fit to travel.
            loader: The user's.
            workers: How many there will be.

        Raises:
            ValueError: Its samples cannot be kept; says why.
            ArenaFull: The limit is too small for the notes on each sample, or larger than the free memory.
        """
        if why := why_not(loader.dataset, workers):
            raise ValueError(f"cache= cannot be used: {why}.")
        samples, memory = len(loader.dataset), self._memory  # type: ignore[arg-type]  # `why_not` has looked
        parts = "/".join(
            f"{type(part).__module__}.{type(part).__qualname__}" for part in chain(loader.dataset)
        )
        identity = hashlib.blake2b(f"{parts} {samples}".encode(), digest_size=16).digest()
        if not self._inherited:
            require_room(self.limit_bytes)
        self._explicit = isinstance(loader.dataset, Cached)
        if not memory.fit(samples, self.limit_bytes, identity) and self._explicit:
            memory.form = CUT
        self.lenders.fit(memory)
        self._watch.start()
        return KeptDataset(dataset, memory)

    def epoch_over(self, *, whole: bool) -> None:
        """An epoch has been prepared to its end. Called by the loading thread, while no worker prepares anything.

        Args:
            whole: Whether from its start, too; else the phase ends only if nothing is left to do in it.
        """
        memory = self._memory
        if memory.phase == OFF:
            self.lenders.release()
        elif memory.phase == LEARNING:
            if whole or (memory.states != UNSEEN).all():
                self._choose()
        elif memory.phase == PROVING and (
            whole or not ((memory.states == CHOSEN) | (memory.states == ASSIGNED)).any()
        ):
            if memory.gave:
                self._forget_torn()
            memory.phase = SERVING
            if not ((memory.states == WRITTEN).any() or memory.away().any() or self._given_bytes):
                self._gain_nothing()
        elif memory.phase == SERVING and self.lenders.due:
            self.lenders.place(memory)

    def _gain_nothing(self) -> None:
        self._memory.why = _NO_GAIN
        self._memory.phase = OFF

    def _choose(self) -> None:
        memory = self._memory
        known = (memory.states == SEEN) & (memory.forms == memory.form)
        if not known.any():
            return
        cost_s = np.where(known, memory.cost_s, 0.0)
        packed = PackedForms(memory.packed_sizes, memory.unpack_s)
        chosen = choose(cost_s, memory.sizes, room_within(memory.room_bytes), _hit_cost(), packed)
        memory.place(chosen)
        if not self.lenders.place_anew(memory) and not len(chosen.indices):
            self._gain_nothing()
            return
        memory.phase = PROVING

    def _forget_torn(self) -> None:
        """Prepare samples anew that were being written while memory was given back: some of their bytes may be gone."""
        memory = self._memory
        for index in np.flatnonzero(memory.states == WRITTEN):
            record = memory.read(int(index))
            if record is None or not memory.same(int(index), digest(record.tobytes())):
                memory.states[index] = GIVEN
        memory.gave = False

    def counts(self) -> CacheReading:
        """Return its numbers now. Called from any thread."""
        memory = self._memory
        if not memory.samples:
            return CacheReading("learning", "", 0, 0, 0, self.limit_bytes, 0, 0, 0, 0.0)
        hits, misses, saved_us, lent_hits = (int(n) for n in memory.counters.sum(axis=0))
        why, phase = memory.why, memory.phase
        if why and phase != OFF:
            why = f"{why}: cached as they are before `transform`"
        elif why and why != _NO_GAIN and not self._explicit:
            why = f"{why}. {_WAY_OUT}"
        written = (memory.states == WRITTEN) & (memory.forms == memory.form)
        kept, packed = int(np.count_nonzero(written)), int(np.count_nonzero(written & memory.packed))
        lenders, lent_kept, lent_bytes = (0, 0, 0) if phase == OFF else self.lenders.counts(memory)
        return CacheReading(
            state=_PHASES[phase],
            why=why,
            samples=memory.samples,
            kept=0 if phase == OFF else kept,
            kept_bytes=memory.touched_bytes(),
            limit_bytes=self.limit_bytes,
            given_bytes=self._given_bytes,
            hits=hits,
            misses=misses,
            saved_s=saved_us * 1e-6,
            lenders=lenders,
            lent_kept=lent_kept,
            lent_bytes=lent_bytes,
            lent_hits=lent_hits,
            packed=0 if phase == OFF else packed,
        )

    def close(self) -> None:
        """Let go of the memory; give it back where no other process keeps it for a successor."""
        self._ended.set()
        if self._watch.is_alive():
            self._watch.join()
        if not self._inherited:
            self._memory.empty()
        self._memory.close()

    # -- memory pressure ---------------------------------------------------------------------------------

    def _watch_memory(self) -> None:
        pressure = Pressure()
        while not self._ended.wait(LOOK_S):
            self._look(pressure.share())

    def _look(self, stalled: float) -> None:
        """Give memory back if it has become short."""
        memory = self._memory
        used = memory.used_bytes
        if not used or memory.phase not in (PROVING, SERVING):
            return
        # a place not yet written is not in use: giving it up frees nothing, but it will not be taken either
        self._given_bytes += memory.give_back(wanted_back(used, stalled))


def require_room(limit_bytes: int) -> None:
    """Refuse a cache that could never be filled.

    Raises:
        ArenaFull: Less is free.
    """
    free = free_memory()
    if free is not None and limit_bytes > free.size:
        raise ArenaFull(
            f"A cache of {limit_bytes / 2**30:,.2f} GiB does not fit: {free.size / 2**30:,.2f} GiB "
            f"are free ({free.where}). Serve with a smaller cache=."
        )


def _hit_cost() -> HitCost:
    """Measure what taking a sample costs here."""
    times = []
    for size in (64, 1 << 20):
        record = np.frombuffer(encode(np.zeros(size, np.uint8)), np.uint8)
        least = float("inf")
        for _ in range(5):
            began = time.perf_counter()
            decode(record.copy())
            least = min(least, time.perf_counter() - began)
        times.append(least)
    return HitCost(2 * times[0], max(0.0, times[1] - times[0]) / (1 << 20))
