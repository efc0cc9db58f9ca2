"""A cache of what the frozen part computed: from the second epoch on neither the dataset nor the network runs.

| phase | a sample is |
|---|---|
| learning (first epoch) | prepared; it must draw nothing; some are prepared twice, and must be the same |
| serving | taken where it is kept; now and then one is prepared again, and must be what it was |
| off | prepared: results cannot be kept (`SampleMemory.why`) |

A memory that a predecessor filled is used again if dataset, code and parameters are the same: features are never older
than the network that they come from.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from tsnb.caching.encoding import digest, encode
from tsnb.caching.keeper import Keeper, chain, require_room, why_not
from tsnb.caching.memory import OFF, PROVING, SERVING, WRITTEN, SampleMemory
from tsnb.draws import Draws, another_seed
from tsnb.frozen.loaders import FrozenCollate
from tsnb.frozen.rows import FORM_BYTES, FeatureRow, FeatureRows
from tsnb.stream.loader.seams import StandIn, number_of, worker_row
from tsnb.telemetry.readings import CacheReading
from tsnb.text.printable import one_line

__all__ = ["FeatureKeeper"]

PROBES = 2
"""Samples of a worker's first that are prepared twice at once."""
PROBE_EVERY = 64
"""Of its later ones, how many for one that is."""
CHECK_EVERY = 512
"""Of the rows that are taken, how many for one whose sample is prepared again."""
_NOTHING = "no row fits into it"


class FeatureKeeper(Keeper):
    """Keeps the results of a stream's frozen part; stands in for the cache of prepared samples.

    Args:
        limit_bytes: Memory that it may use.
        key: Stands for the frozen part (`FrozenPart.key`).
    """

    def __init__(self, limit_bytes: int, key: str) -> None:
        super().__init__(limit_bytes)
        self._key = key
        self._rows: FeatureRows | None = None

    def dataset(self, dataset: Any, loader: DataLoader[Any], workers: int) -> StandIn:
        """Return what workers see in place of the loader's dataset; as `Keeper.dataset`."""
        if why := why_not(loader.dataset, workers or 1):
            raise ValueError(f"cache= cannot be used: {why}.")
        if loader.batch_sampler is None:
            raise ValueError(
                "cache= with then= needs a DataLoader that makes batches of samples, and this one has batch_size=None. "
                "Pass batch_size=, or leave cache= out."
            )
        collate, memory = loader.collate_fn, self._memory
        assert isinstance(collate, FrozenCollate)
        samples = len(loader.dataset)  # type: ignore[arg-type]  # `why_not` has looked
        parts = "/".join(f"{type(p).__module__}.{type(p).__qualname__}" for p in chain(loader.dataset))
        known = f"{self._key} {collate.part.inputs} {parts} {samples}"
        if not self._inherited:
            require_room(self.limit_bytes)
        self._explicit = True  # what is said of samples that draw is not true of features
        key = hashlib.blake2b(known.encode(), digest_size=16).digest()
        self._rows = FeatureRows(memory)
        if memory.fit(samples + 1, self.limit_bytes, key) and self._rows.tied:
            memory.fit(samples + 1, self.limit_bytes, os.urandom(16))
            self._rows = FeatureRows(memory)
        self._watch.start()
        return _KeptFeatures(dataset, memory, self._rows)

    def epoch_over(self, *, whole: bool) -> None:
        """An epoch has been prepared to its end; as `Keeper.epoch_over`."""
        memory = self._memory
        if memory.phase in (OFF, SERVING) or not whole:
            return
        if (memory.states[:-1] == WRITTEN).any():
            memory.phase = SERVING
        else:
            memory.why, memory.phase = _NOTHING, OFF

    def _look(self, stalled: float) -> None:
        memory = self._memory
        if not memory.used_bytes and memory.states[-1] == WRITTEN:
            row = int(memory.sizes[:-1].max(initial=0))
            if row and self._rows is not None:
                memory.used_bytes = self._rows.room_for(row)
        if memory.used_bytes > FORM_BYTES and memory.phase != OFF:
            phase, memory.phase = memory.phase, PROVING
            try:
                super()._look(stalled)
            finally:
                if memory.phase == PROVING:
                    memory.phase = phase

    def counts(self) -> CacheReading:
        """Return its numbers now; as `Keeper.counts`."""
        told = super().counts()
        memory = self._memory
        if not memory.samples:
            return told
        why = f"features are not kept: {memory.why}" if memory.why and memory.phase == OFF else ""
        kept = max(0, told.kept - int(memory.states[-1] == WRITTEN and told.state != "off"))
        return replace(told, samples=told.samples - 1, kept=kept, why=why)


class _KeptFeatures(StandIn):
    """Stands in for the loader's dataset, in its workers: gives rows.

    Args:
        dataset: The user's; may have been made fit to travel.
        memory: Where features are kept.
        rows: The rows in it.
    """

    def __init__(self, dataset: Any, memory: SampleMemory, rows: FeatureRows) -> None:
        super().__init__(dataset)
        self._memory = memory
        self._rows = rows
        self._prepared = self._taken = 0
        self._row: int | None = None

    def __getitem__(self, index: Any) -> Any:
        memory, rows = self._memory, self._rows
        number = number_of(index, rows.samples)
        if number is None or memory.phase == OFF:
            return FeatureRow(-1 if number is None else number, self.dataset[index], None, rows)
        if self._row is None:
            self._row = worker_row()
        record = rows.take(number)
        memory.count(self._row, hit=record is not None)
        if record is None:
            return FeatureRow(number, self._learned(index, number), None, rows)
        self._taken += 1
        if self._taken % CHECK_EVERY == 0:
            self._check(index, number)
        return FeatureRow(number, None, record, rows)

    def _learned(self, index: Any, number: int) -> Any:
        before = Draws.now()
        sample = self.dataset[index]
        if not before.same(Draws.now()):
            self._rows.give_up(f"sample {number:,} draws random numbers")
            return sample
        try:
            found = digest(encode(sample))
        except Exception as error:  # noqa: BLE001  # whatever the user's classes raise
            self._rows.give_up(f"sample {number:,} cannot be compared ({type(error).__name__}: {error})")
            return sample
        first, second = np.frombuffer(found, np.uint64)
        self._memory.digests[0][number], self._memory.digests[1][number] = first, second
        self._prepared += 1
        if self._prepared <= PROBES or self._prepared % PROBE_EVERY == 0:
            self._check(index, number)
        return sample

    def _check(self, index: Any, number: int) -> None:
        """Prepare a sample again, from other random numbers; it must be what it was."""
        with another_seed(int.from_bytes(os.urandom(4), "little")):
            try:
                again = digest(encode(self.dataset[index]))
            except Exception as error:  # noqa: BLE001  # whatever the user's dataset raises
                self._rows.give_up(
                    one_line(
                        f"sample {number:,} raises {type(error).__name__} when it is prepared twice", 400
                    )
                )
                return
        if not self._memory.same(number, again):
            self._rows.give_up(f"sample {number:,} differs when it is prepared a second time")
