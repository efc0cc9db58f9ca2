"""How many workers a stream's loader has: a number, or "auto", which a thread finds as `planners.tuning` decides.

Four times a second the thread reads how many batches the loader has given, how long the producer has waited for them,
what other programs have had of the cores and whether the system says that memory is short; once a second, what memory
the workers have. It changes their number, and how far each works ahead, as `Producer.tune` does, so no batch is lost,
given twice or, with a seed, different.

Memory: a budget that the user gave, and never more than what is free above a floor, so that workers go before the
system has to kill. The window is not touched: it is a promise to the trials, of how far they may drift apart, and a
wider one adds no pace where the slowest sets it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from tsnb.caching.choice import floor_of, stalls_for_memory
from tsnb.errors import RemoteProtocolError
from tsnb.machine.clocks import OthersClock
from tsnb.machine.cores import Machine, cores_of
from tsnb.machine.memory import Pressure, free_memory, memory_bounds
from tsnb.machine.processes import children_of_thread, forks_bytes
from tsnb.options import AUTO, TuneOptions
from tsnb.planners.tuning import Seen, Tuner
from tsnb.show.words import probe_rows, short_of_memory
from tsnb.stream.protocol.extension import Extension, Remote, Undoable
from tsnb.telemetry.readings import ProbeReading, TuningReading
from tsnb.telemetry.tuning import Tune
from tsnb.text.foreign import unpack
from tsnb.text.words import html_table, text_table

if TYPE_CHECKING:
    from tsnb.stream.producer.core import Core

__all__ = ["AutoWorkers", "Probes", "Tuning", "first_workers"]

LOOK_S = 0.25
MEMORY_S = 1.0
"""The kernel walks all pages of a process for its memory: 10 ms a worker."""
PROBE_S, SETTLE_S = 3.0, 1.0
"""As `Tuner`: long enough that two measurements of one number differ by less than one more worker gives."""
MOST_PER_CORE = 4
"""Workers that wait for a disk need no core: more of them than cores may help."""
MOST_PROBES = 32
"""Of them, the last are kept."""


def first_workers(loader: Any, workers: int | str | None) -> int | None:
    """Return how many workers a loader begins with.

    Args:
        loader: The user's.
        workers: As `tsnb.serve` takes it; "auto" begins with the loader's own number, and with one at least.
    """
    if not isinstance(workers, str):
        return workers
    return getattr(loader, "num_workers", 0) or 1


class Probes(tuple[ProbeReading, ...]):  # noqa: SLOT001  # a tuple with a note cannot have slots
    """Choices that were tried, in order: shows as a table.

    Attributes:
        note: That the memory they were given is too little, in a sentence; empty where it is not.

    Args:
        probes: What was measured.
        note: As the argument.
    """

    note: str

    def __new__(cls, probes: Iterable[ProbeReading] = (), note: str = "") -> Probes:
        """Make it of what was measured."""
        made = super().__new__(cls, probes)
        made.note = note
        return made

    def __repr__(self) -> str:
        lines = text_table(probe_rows(self)) if self else ["No number of workers has been tried yet."]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        table = html_table(probe_rows(self)) if self else "<p>No number of workers has been tried yet.</p>"
        return table + (f"<p>{escape(self.note)}</p>" if self.note else "")


class Tuning(Extension):
    """What is asked of one stream's loader: so many workers, or as many as help.

    Args:
        core: The producer's.
        loading: The thread that is the parent of the workers.
    """

    name = "tuning"

    def __init__(self, core: Core, loading: threading.Thread) -> None:
        self._core = core
        self._loading = loading
        self._lock = threading.Lock()
        self._auto: AutoWorkers | None = None
        self._asked: tuple[int | str, int | None] | None = None  # workers, and memory in bytes
        self._budget: int | None = None  # memory that was given last, in bytes: a number in between keeps it
        self._own_prefetch: int | None = None
        self._closed = False

    def hear(self, peer: Remote, payload: bytes) -> None:
        """Change the number as an observer asks.

        Raises:
            RemoteProtocolError: It is no observer, or asks for no such thing.
            Undoable: The loader cannot change it, or a number is out of range.
        """
        if peer.role != "observer":
            raise RemoteProtocolError(f"a number of workers from a {peer.role}")
        try:
            asked = unpack(Tune, payload)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        try:
            self.tune(AUTO if asked.workers is None else asked.workers, asked.memory_bytes)
        except ValueError as error:
            raise Undoable(str(error).removesuffix("."), "workers") from None

    def reading(self, since: int) -> dict[str, Any]:
        """Return what was asked for, and what became of it."""
        return {"tuning": self.state}

    def tune(self, workers: int | str, memory: int | str | None = None) -> None:
        """Change the number, as `Producer.tune` says; what is asked for already goes on. From any thread.

        Raises:
            ValueError: The loader cannot change it, or a number is out of range.
        """
        chosen = TuneOptions(workers, memory)
        source = self._core.source
        name = self._core.settings.name
        its = None if source is None else source.workers
        if its is None:
            raise ValueError(
                f"Stream {name!r} does not serve a DataLoader, so it has no workers to change. Serve a "
                "DataLoader with num_workers=1 or more."
            )
        auto = chosen.workers == AUTO
        if why := its.why_fixed(1 if auto else int(chosen.workers)):
            raise ValueError(why)
        with self._lock:
            if chosen.memory is not None:
                self._budget = int(chosen.memory)
            asked = chosen.workers, self._budget if auto else None
            if self._closed or (auto and asked == self._asked):
                return
            self._own_prefetch = self._own_prefetch or its.prefetch
            if self._auto is not None:
                self._auto.close()
                self._auto = None
            self._asked = asked
            if auto:
                self._auto = AutoWorkers(self._core, self._loading.native_id or 0, asked[1])
                self._auto.start()
            else:
                its.change(int(chosen.workers), self._own_prefetch)

    @property
    def probes(self) -> Probes:
        """What "auto" has measured so far, in order."""
        auto = self._auto
        return Probes() if auto is None else Probes(auto.probes, short_of_memory(self.state))

    @property
    def state(self) -> TuningReading | None:
        """What was asked for, and what became of it; None: nothing was asked for."""
        asked, auto, source = self._asked, self._auto, self._core.source
        its = None if source is None else source.workers
        if asked is None or its is None:
            return None
        return TuningReading(
            asked=str(asked[0]),
            workers=its.wanted,
            prefetch=its.prefetch,
            memory_bytes=asked[1],
            resting=auto is None or auto.resting,
            probes=() if auto is None else tuple(auto.probes),
            worker_bytes=0 if auto is None else auto.worker_bytes,
        )

    def close(self) -> None:
        """Look no more; the number stays as it is."""
        with self._lock:
            self._closed = True
            if self._auto is not None:
                self._auto.close()


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
        self._tuner = Tuner(MOST_PER_CORE, PROBE_S, SETTLE_S)
        self._machine = Machine()
        self._others = OthersClock()
        self._pressure = Pressure()
        self._probes: list[ProbeReading] = []
        self._told = 0  # of the tuner's probes
        self._looked_s = -math.inf
        self._handing_over = False
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
        return Probes(self._probes[-MOST_PROBES:])

    @property
    def worker_bytes(self) -> int:
        """What one worker needs, on average over those of now; 0: not measured yet."""
        return int(self._tuner.worker_bytes)

    @property
    def resting(self) -> bool:
        """Whether nothing is left to try, until something changes."""
        return self._tuner.resting

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
        its = None if core.source is None else core.source.workers
        assert its is not None, "a DataLoader's: `Tuning.tune` has looked"
        now_s = time.monotonic()
        handed_over, self._handing_over = self._handing_over, its.handing_over
        if now_s - self._looked_s >= MEMORY_S or (handed_over and not self._handing_over):
            self._weigh()  # what was weighed before has the former workers in it
            self._looked_s = now_s
        short, cores = self._short(), self._cores()
        sessions = list(core.sessions.values())
        others_s = self._others.look(s.channel.peer.pid for s in sessions if s.role == "consumer")
        with core.lock:
            seen = Seen(
                now_s,
                core.dispatch.epochs.end,
                core.loading_s,
                its.number,
                self._has_bytes,
                self._budget_bytes,
                its.prefetch,
                cores,
                short,
                self._handing_over,
                others_s,
            )
        wanted = self._tuner.step(seen)
        for probe in self._tuner.probes[self._told :]:
            self._probes.append(ProbeReading(time.time(), *probe))
        self._told = len(self._tuner.probes)
        if wanted is not None:
            its.change(wanted.workers, wanted.prefetch, advised=False)

    def _cores(self) -> int:
        """Return the cores that workers may use: they inherit those of the loading thread."""
        allowed = cores_of(self._thread)
        return self._machine.cores() if allowed is None else min(len(allowed), self._machine.cores())

    def _short(self) -> bool:
        free, bounds, stalled = free_memory(), memory_bounds(), self._pressure.share()
        if free is None or bounds is None:
            return False
        return stalls_for_memory(free.size, floor_of(bounds.total_bytes), stalled)

    def _weigh(self) -> None:
        self._has_bytes = float(forks_bytes(children_of_thread(self._thread)))
        free, bounds = free_memory(), memory_bounds()
        self._budget_bytes = self._memory_bytes
        if free is not None and bounds is not None:
            room = self._has_bytes + free.size - floor_of(bounds.total_bytes)
            self._budget_bytes = min(self._budget_bytes, room)
