"""The thread that carries out what `planners.balancing` decides, in the producer's process.

Every `TICK_S` it looks at the trials that read the stream and at their processes, asks the balancer, moves
processes (all threads, and all below them) and tells consumers on how many threads to compute; they follow between
two steps. What it may move: processes of this user, in this container, that are attached to this stream and take
part; and the loader's workers. Cores that a user chose for one of them are its limits.

Whatever was moved is put back when its trial ends, detaches or is parked, when it is switched off, and when the
producer stops. If the producer is killed, each trial puts itself back (`extensions.allotment`).

There is one balancer a user (`Alone`): two that move the same cores would undo each other's work, and measure it. It
holds a lock on a file in the runtime directory, of the kind that ends with its process and is not inherited by forks.
The file says which process holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from tsnb.balancing.affinity import Held, cpu_s, hold
from tsnb.balancing.told import Allotted
from tsnb.config import explained, runtime_directory
from tsnb.errors import TsnbError
from tsnb.machine.cores import Machine, text_of, usable_cores
from tsnb.machine.processes import children_of_thread
from tsnb.native.forks import free_in_child
from tsnb.planners.balancing import Balancer, Timing
from tsnb.planners.parties import LOADER, Allot, Instruction, Measured, Moved, Observed, Party
from tsnb.telemetry.readings import ConsumerReading, MoveReading

__all__ = ["MOVES", "Alone", "Attached", "Controller", "Stream"]

_guard = free_in_child(threading.Lock())
_here: list[str] = []
"""The stream of this process that holds the lock: it does not hold off others of the same process."""


class Alone:
    """One stream's claim to move cores.

    Args:
        stream: Its name.
    """

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._fd = -1
        self._pid = 0

    def take(self) -> str:
        """Claim it; return its holder, or nothing if it is ours now (or was).

        Raises:
            TsnbError: The runtime directory cannot be used.
        """
        with _guard:
            if self._fd >= 0 and self._pid == os.getpid():
                return ""
            if _here:
                return f"{_here[0]!r} in this process"
            with explained("record in its runtime directory which process moves cores"):
                fd = os.open(runtime_directory() / "balancer", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = os.read(fd, 200).decode(errors="replace").strip()
                os.close(fd)
                return holder or "another stream"
            with contextlib.suppress(
                OSError
            ):  # a full disk: it is ours all the same, though others cannot read whose
                os.ftruncate(fd, 0)
                os.write(fd, f"{self._stream!r} (pid {os.getpid()})".encode())
            self._fd, self._pid = fd, os.getpid()
            _here.append(self._stream)
            return ""

    def release(self) -> None:
        """Let others have it. Calling it again does nothing."""
        with _guard:
            if self._fd >= 0 and self._pid == os.getpid():
                with contextlib.suppress(OSError):
                    os.close(self._fd)
                _here.clear()
            self._fd = -1


os.register_at_fork(after_in_child=_here.clear)  # `native.forks`, 1: locks of this kind stay with the parent

TICK_S = 2.0
TIMING = Timing()
MOVES = 10
"""Moves that are remembered for readings: more would not be read, and a reading has to fit a packet."""
AWAY_S = 90.0
"""A trial that has taken nothing for so long does something else, and is left out until it comes back."""
_ABSENT = ("joining", "timed out", "paused", "gone")


@dataclass(frozen=True)
class Attached:
    """A consumer as the producer knows it."""

    reading: ConsumerReading
    threads: int
    """Torch threads that it computes on; 0: it has not said."""
    own_threads: int
    """Those that it began with."""
    fixed: bool
    """Whether they are its user's choice."""
    weight: float = 1.0
    attachment: int = 0
    """Tells it from another attachment of that name."""


@dataclass(frozen=True)
class Stream:
    """The stream as the producer knows it."""

    batches: int
    """Prepared so far."""
    workers: int
    """Of the loader."""
    loading_thread: int
    """Its number: the loader's workers are its children."""
    consumers: tuple[Attached, ...]
    pacing: str = "together"


class _Apart(Exception):
    """Says why nothing is moved."""


class Controller:
    """Moves cores and threads for one stream while it is switched on.

    Args:
        name: The stream's name.
        look: Returns the stream now. Called in this controller's thread, and in that of `switch`.
        tell: Sends a consumer, by its name, what it was given.

    Attributes:
        state: "off", "on", or why nothing is moved though it is on.
        moves: The last moves, oldest first.
    """

    def __init__(self, name: str, look: Callable[[], Stream], tell: Callable[[str, Allotted], None]) -> None:
        self.name = name
        self.state = "off"
        self.moves: tuple[MoveReading, ...] = ()
        self._look, self._tell = look, tell
        self._alone = Alone(name)
        self._machine = Machine()
        self._balancer = Balancer(TIMING)
        self._held: dict[str, Held] = {}
        self._workers: dict[int, Held] = {}
        self._worker_cores: tuple[int, ...] | None = None
        self._has_workers = False  # that can be moved; between two epochs there may be none
        self._told: dict[str, Allotted] = {}
        self._busy: dict[str, tuple[float, float]] = {}  # name: seconds inside epochs, when that last grew
        self._records: deque[tuple[int, MoveReading]] = deque(maxlen=MOVES)
        self._last: Observed | None = None
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def on(self) -> bool:
        """Whether it is switched on."""
        return self.state != "off"

    def switch(self, on: bool) -> None:
        """Begin to move cores, or put everything back. Called from any thread that holds no lock of the producer's."""
        with self._lock:
            if on and not self._closed and not self.on:
                self.state = "on"
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name=f"tsnb-balance-{self.name}", daemon=True
                    )
                    self._thread.start()
            elif not on and self.on:
                self._give_back("it was switched off")
                self.state = "off"

    def close(self) -> None:
        """Put everything back, for good."""
        with self._lock:  # it is not switched on in between
            self.switch(on=False)
            self._closed = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(TICK_S)

    def _run(self) -> None:
        while not self._wake.wait(TICK_S):
            with self._lock:
                if self.on:
                    self._tick()

    def _tick(self) -> None:
        try:
            self._follow()
            self.state = "on"
        except (_Apart, TsnbError) as why:
            self._give_back(str(why))
            self.state = f"stands back: {why}"
        except Exception:  # noqa: BLE001  # a fault of ours must not cost anybody a core: put everything back, and stop
            self._give_back("it failed")
            self.state = "off"
            self._say(f"cores are no longer moved (please report this):\n{traceback.format_exc()}")

    def _follow(self) -> None:
        """Look, ask, act."""
        stream = self._look()
        taking = self._taking_part(stream)
        if not taking:
            self._give_back("no trial reads the stream")
            return
        self._let_go({a.reading.name for a in taking})
        self._require_alone(taking)
        seen = self._last = self._observe(stream, taking)
        self._act(self._balancer.step(seen))
        apart = self._apart()
        for held in (*self._held.values(), *self._workers.values()):
            held.keep(apart)

    def _taking_part(self, stream: Stream) -> list[Attached]:
        now_s = time.monotonic()
        names = {a.reading.name for a in stream.consumers}
        self._busy = {name: seen for name, seen in self._busy.items() if name in names}
        found = []
        for attached in stream.consumers:
            r = attached.reading
            inside_s = r.computing_s + r.waiting_s + r.held_s
            before_s, since_s = self._busy.get(r.name, (-1.0, now_s))
            if inside_s != before_s:
                since_s = now_s
            self._busy[r.name] = inside_s, since_s
            if r.state not in _ABSENT and now_s - since_s < AWAY_S and attached.threads:
                found.append(attached)
        return found

    def _require_alone(self, taking: list[Attached]) -> None:
        """Make sure that nothing stands against moving cores now.

        Raises:
            _Apart: Something does.
        """
        if not hasattr(os, "sched_setaffinity"):
            raise _Apart("this system cannot bind processes to cores")
        if self._machine.cores() < usable_cores():
            raise _Apart("the CPU time of this container is limited by a quota, not by cores")
        pids = [a.reading.pid for a in taking]
        if os.getpid() in pids:
            raise _Apart("a trial runs in the process of the stream")
        if len(set(pids)) < len(pids):
            raise _Apart("several trials run in one process")
        for attached in taking:
            name = attached.reading.name
            held = self._held.get(name)
            if held is not None and held.pid == attached.reading.pid and held.look():
                continue
            met = hold(attached.reading.pid)
            if met is None:
                raise _Apart(f"the process of {name} cannot be moved from here")
            self._held[name] = met
        if holder := self._alone.take():
            raise _Apart(f"{holder} already moves cores")

    def _observe(self, stream: Stream, taking: list[Attached]) -> Observed:
        cores = tuple(sorted(os.sched_getaffinity(os.getpid())))
        apart = self._apart()
        trials = tuple(self._party(attached, apart) for attached in taking)
        self._meet_workers(stream)
        loader = Party(
            name=LOADER,
            batches=stream.batches,
            cpu_s=cpu_s(os.getpid(), apart),
            home=cores,
            cores=self._worker_cores or cores,
            threads=max(1, stream.workers),
            movable=self._has_workers,
            own_threads=max(1, stream.workers),
        )
        return Observed(time.monotonic(), cores, loader, trials, stream.pacing)

    def _party(self, attached: Attached, apart: frozenset[int]) -> Party:
        r, held = attached.reading, self._held[attached.reading.name]
        return Party(
            name=r.name,
            batches=r.batches,
            cpu_s=cpu_s(r.pid, apart - {r.pid}),
            home=held.home,
            cores=held.cores,
            threads=attached.threads,
            computing_s=r.computing_s,
            waiting_s=r.waiting_s,
            held_s=r.held_s,
            weight=attached.weight,
            fixed=attached.fixed,
            own_threads=attached.own_threads,
            attachment=attached.attachment,
        )

    def _meet_workers(self, stream: Stream) -> None:
        """Keep up with the loader's workers, which may be new ones each epoch."""
        pids = children_of_thread(stream.loading_thread) if stream.workers else ()
        self._workers = {pid: held for pid, held in self._workers.items() if pid in pids and held.look()}
        self._has_workers = bool(stream.workers) and (self._has_workers or bool(pids))
        for pid in set(pids) - set(self._workers):
            if worker := hold(pid):
                self._workers[pid] = worker
                if self._worker_cores is not None:
                    worker.allot(self._worker_cores, self._apart())

    def _apart(self) -> frozenset[int]:
        return frozenset({os.getpid(), *(held.pid for held in self._held.values())})

    # -- acting ------------------------------------------------------------------------------------------

    def _act(self, instructions: list[Instruction]) -> None:
        for made in instructions:
            if isinstance(made, Allot):
                self._allot(made)
            elif isinstance(made, Moved):
                move = MoveReading(time.time(), made.name, made.text, made.reason)
                self._records.append((made.number, move))
                self._say(f"{made.text} ({made.reason})")
            else:
                self._note(made)
        self.moves = tuple(move for _, move in self._records)

    def _allot(self, made: Allot) -> None:
        if made.name == LOADER:
            self._worker_cores = made.cores
            for worker in self._workers.values():
                worker.allot(made.cores, self._apart())
            return
        held = self._held.get(made.name)
        if held is None:
            return
        back = made.cores == held.home
        cores = "" if back else text_of(made.cores)
        told = Allotted(made.threads, cores, text_of(held.home))
        if self._told.get(made.name) != told:
            # before it is moved: should we be killed in between, it can put itself back
            self._told[made.name] = told
            self._tell(made.name, told)
        if back:
            held.give_back(self._apart() - {held.pid})
        else:
            held.allot(made.cores, self._apart() - {held.pid})

    def _note(self, made: Measured) -> None:
        for place, (number, move) in reversed(list(enumerate(self._records))):
            if number == made.number:
                self._records[place] = number, replace(move, effect=made.effect)
                self._say(f"{move.text}: {made.effect}")
                return

    def _let_go(self, staying: set[str]) -> None:
        """Put back trials that no longer take part."""
        for name in [name for name in self._held if name not in staying]:
            self._put_back(name)
            del self._held[name]

    def _put_back(self, name: str) -> None:
        held, told = self._held[name], self._told.pop(name, None)
        if told is not None:
            self._tell(name, Allotted(0, "", told.home))
        held.give_back(self._apart() - {held.pid})

    def _give_back(self, reason: str) -> None:
        """Put everything back, and let others move cores."""
        if self._last is not None:
            self._act(self._balancer.give_back(self._last, reason))
        self._let_go(set())
        for held in self._workers.values():
            held.give_back(self._apart())
        self._workers, self._worker_cores, self._last = {}, None, None
        self._balancer = Balancer(TIMING)
        self._alone.release()

    def _say(self, text: str) -> None:
        with contextlib.suppress(
            OSError, ValueError, AttributeError
        ):  # it has been closed, or does not exist
            sys.stderr.write(f"tsnb: {self.name}: {text}\n")
