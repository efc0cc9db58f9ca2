"""`workers="auto"`: the thread that looks at a loader and does what `planners.tuning` decides.

Four times a second it reads how many batches the loader has given and how long the producer has waited for them; once a
second, what memory its workers have. It changes the number of workers as `Producer.tune` does, so no batch is lost,
given twice or, with a seed, different.

Memory: a budget that the user gave, and never more than what is free above a floor, so that workers go before the
system has to kill.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

from tsnb.machine.cores import Machine
from tsnb.machine.memory import free_memory, memory_bounds
from tsnb.machine.processes import children_of_thread, part_bytes
from tsnb.planners.tuning import Probe, Seen, Tuner
from tsnb.samples.choice import floor_of
from tsnb.words import html_table, text_table

if TYPE_CHECKING:
    from tsnb.producer.core import Core

__all__ = ["AutoWorkers", "Probes", "first_workers"]

LOOK_S = 0.25
MEMORY_S = 1.0
"""The kernel walks all pages of a process for its memory: 10 ms a worker."""
PROBE_S, SETTLE_S = 3.0, 1.0
"""As `Tuner`: long enough that two measurements of one number differ by less than one more worker gives."""
MOST_PER_CORE = 4
"""Workers that wait for a disk need no core: more of them than cores may help."""


def first_workers(loader: Any, workers: int | str | None) -> int | None:
    """Return how many workers a loader begins with.

    Args:
        loader: The user's.
        workers: As `tsnb.serve` takes it; "auto" begins with the loader's own number, and with one at least.
    """
    if not isinstance(workers, str):
        return workers
    return getattr(loader, "num_workers", 0) or 1


class Probes(tuple[Probe, ...]):
    """Numbers of workers that were tried, in order: shows as a table."""

    __slots__ = ()

    def _rows(self) -> list[list[str]]:
        cells = [
            [str(p.workers), f"{p.per_s:.1f}", f"{100 * p.waited:.0f}%", "yes" if p.kept else "no"]
            for p in self
        ]
        return [["workers", "batches/s", "waited for them", "kept"], *cells]

    def __repr__(self) -> str:
        return "\n".join(text_table(self._rows())) if self else "no number of workers was tried yet"

    def _repr_html_(self) -> str:
        return html_table(self._rows()) if self else f"<p>{self!r}</p>"


class AutoWorkers:
    """Finds and follows the number of workers of one stream's loader.

    Args:
        core: The producer's.
        loading_thread: The number of the thread that is the parent of the workers.
        memory_bytes: What all of them together may use; None: what is free.
    """

    def __init__(self, core: Core, loading_thread: int, memory_bytes: int | None = None) -> None:
        self._core = core
        self._thread = loading_thread
        self._memory_bytes = math.inf if memory_bytes is None else memory_bytes
        self._tuner = Tuner(MOST_PER_CORE * Machine().cores(), PROBE_S, SETTLE_S)
        self._looked_s = -math.inf
        self._has_bytes = 0.0
        self._budget_bytes = math.inf
        self._ended = threading.Event()
        self._follow = threading.Thread(
            target=self._run, name=f"tsnb-workers-{core.settings.name}", daemon=True
        )

    def start(self) -> None:
        """Begin to look."""
        self._follow.start()

    @property
    def probes(self) -> Probes:
        """What was measured so far, in order."""
        return Probes(self._tuner.probes)

    def close(self) -> None:
        """Look no more; the number stays as it is."""
        self._ended.set()
        if self._follow.is_alive() and self._follow is not threading.current_thread():
            self._follow.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        core = self._core
        source: Any = core.source  # a DataLoader's: `Producer.tune` has looked
        now_s = time.monotonic()
        if now_s - self._looked_s >= MEMORY_S:
            self._weigh()
            self._looked_s = now_s
        with core.lock:
            seen = Seen(
                now_s,
                core.dispatch.epochs.end,
                core.loading_s,
                source.workers,
                self._has_bytes,
                self._budget_bytes,
            )
        wanted = self._tuner.step(seen)
        if wanted is not None:
            source.change_workers(wanted, advised=False)

    def _weigh(self) -> None:
        self._has_bytes = float(sum(part_bytes(pid) or 0 for pid in children_of_thread(self._thread)))
        free, bounds = free_memory(), memory_bounds()
        self._budget_bytes = self._memory_bytes
        if free is not None and bounds is not None:
            room = self._has_bytes + free.size - floor_of(bounds.total_bytes)
            self._budget_bytes = min(self._budget_bytes, room)
