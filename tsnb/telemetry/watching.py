"""Watch: one follower a stream and process, for its reports and its panel.

A report knows the stream's life from its start; a panel is told each reading, with those before it.

```
watch(name) ── a thread follows the stream ─┬─ it is stopped: the thread ends, the history stays
                                            └─ the producer goes ─┬─ and is back within AWAIT_S: the same history
                                                                  └─ is not: as if it had been stopped
```

A watch costs a reading four times a second and keeps no more than a `History` holds. It feeds one `StreamView`, which
every screen of the process shows: one that is opened after hours takes over what is there, and nothing is sent again.
It ends with the stream, or with the process. While a screen listens it goes on: another stream of that name begins
another history, for reports; screens go on with the same.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple, Protocol

from tsnb.errors import ProducerNotFound
from tsnb.native.forks import free_in_child
from tsnb.telemetry.following import Follower
from tsnb.telemetry.lives.limits import limited
from tsnb.telemetry.observer import Observer
from tsnb.telemetry.readings import ABSENT, EndReading, OutcomeReading, PlanReading, StreamReading
from tsnb.telemetry.shown.history import History
from tsnb.telemetry.shown.outcome import duels_said
from tsnb.telemetry.shown.view import StreamNews, StreamView

__all__ = [
    "Known",
    "Viewer",
    "Watch",
    "counters",
    "judges",
    "listen",
    "planners",
    "sources",
    "unlisten",
    "watch",
    "watched",
]

AWAIT_S = 75.0
"""How long a stream that has gone may take to come back: a producer that is started again has 60 s."""

ENDED_KEPT = 8
"""Ended streams that keep their history; the oldest are forgotten first."""

sources: list[Callable[[str], Mapping[str, str]]] = []
"""Each returns which trials of this process are still to attach to a stream, by its name: state and reason of each."""

counters: list[Callable[[str], int]] = []
"""Each returns how many trials of this process's sweeps are still to attach to a stream. Called with its name."""

planners: list[Callable[[str], PlanReading | None]] = []
"""Each returns what a plan of this process says last of a stream's trials; None: nothing. Called with its name. A plan
is here for as long as it is carried out."""

judges: list[Callable[[Collection[str]], Iterable[str]]] = []
"""Each returns the metrics by which rules of this process's sweeps decide, of sweeps that have one of these trials."""

_watches: dict[str, Watch] = {}
_lock = free_in_child(threading.Lock())
os.register_at_fork(after_in_child=_watches.clear)  # `native.forks`, 2


class Viewer(Protocol):
    """Gets everything that a watch gets; called on the follower's thread."""

    def tell(self, tick: StreamNews) -> None:
        """Take in what a reading has brought to the watch's view."""

    def note(self, state: str, text: str, name: str) -> None:
        """Take in a state that no reading carries: the stream is not served, or has ended."""


class Known(NamedTuple):
    """Everything that a watch got before a listener joined."""

    view: StreamView
    """It is fed by the watch; the listener is told after that."""
    history: History
    """All readings and their frames."""
    note: tuple[str, str, str] | None
    """State, sentence and name, where that is the last word."""


class Watch:
    """Follows one stream and keeps its readings.

    Attributes:
        name: The stream's name.

    Args:
        name: The stream's.
        connect: Opens a connection by name; raises ProducerNotFound.
        await_s: Seconds that a stream that has gone may take to come back.
        known: What an earlier watch of the name was told: this one goes on with it.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[str | None], Observer] = Observer,
        await_s: float = AWAIT_S,
        known: Known | None = None,
    ) -> None:
        self.name = name
        self._view, self._history = (
            (StreamView(), History()) if known is None else (known.view, known.history)
        )
        self._history.anew()
        self._connect_to = connect
        self._await_s = await_s
        self._absent_s = time.monotonic()
        self._first = threading.Event()
        self._reads = threading.Event()
        self._state = ABSENT
        self._over = threading.Event()
        self._said: tuple[str, str, str] | None = None
        self._listeners: list[Viewer] = []
        self._beside: AbstractSet[str] = set()
        """Other streams that the producer was told of."""
        self._early_ends: list[EndReading] = []
        """Told before the first reading came."""
        self._since_s = math.inf
        self._limited = ""
        self._released = False
        self._lock = threading.Lock()
        """Guards the history, the last word and the listeners, so that a new listener misses nothing."""
        self._heard_ends: deque[tuple[str, float]] = deque(maxlen=64)
        """Name and time of those that the stream has told: 32 a reading at most."""
        self._changed = threading.Condition(self._lock)
        """Notified when the stream has told of anything, or is gone."""
        self._follow()

    def _follow(self) -> None:
        self._follower = Follower(self.name, self._take, self._note, self._connect)
        self._follower.start()

    @property
    def state(self) -> str:
        """The stream's state at its last reading; "gone" after its end, "absent" before its first."""
        return self._state

    @property
    def over(self) -> bool:
        """Whether the history is complete: the stream has ended, or the watch was closed."""
        return self._over.is_set()

    def readings(self, timeout_s: float = 0.0) -> list[StreamReading]:
        """Return the readings of the stream, oldest first.

        Args:
            timeout_s: Seconds to wait for the first reading if none has come yet.
        """
        if timeout_s > 0:
            self._first.wait(timeout_s)
        return self._history.readings()

    @property
    def since_s(self) -> float:
        """When the stream began: wall clock, seconds since 1970. Before its first reading, where it is watched late.

        Infinite where nothing was read of it yet.
        """
        return self._since_s

    @property
    def listened(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def listen(self, listener: Viewer) -> Known:
        """Tell a listener everything from now on; return what was before.

        Args:
            listener: Told on the follower's thread, maybe before this returns.
        """
        with self._lock:
            if self._over.is_set() and not self._listeners:
                self._absent_s = time.monotonic()
                self._follow()
            self._listeners.append(listener)
            return Known(self._view, self._history, self._said)

    @property
    def view(self) -> StreamView:
        """The stream as screens show it; its `lock` is held while it is read."""
        return self._view

    @property
    def known(self) -> Known:
        """What it was told so far."""
        return Known(self._view, self._history, self._said)

    def unlisten(self, listener: Viewer) -> None:
        """Tell a listener no more."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)
        if self._over.is_set():
            self.close()

    def release(self) -> list[Viewer]:
        """Stop telling listeners and the history, with which another watch goes on; return the listeners."""
        with self._lock:
            self._released = True
            listeners, self._listeners = self._listeners, []
            self._changed.notify_all()
            return listeners

    def close(self) -> None:
        """The history is complete; follow no longer, unless there are listeners. All readings stay."""
        with self._lock:
            self._over.set()
            follower = None if self._listeners else self._follower
        if follower is not None:
            follower.close()

    def request_stop(self) -> None:
        """Ask the producer to stop in good order.

        Raises:
            ProducerGone: It is not there.
        """
        self._follower.request_stop()

    def request_consumer_stop(self, consumer: str) -> None:
        """Ask for one consumer's loop to end at its next step.

        Raises:
            ProducerGone: The producer is not there.
        """
        self._follower.request_consumer_stop(consumer)

    def _take(self, reading: StreamReading) -> None:
        with self._lock:
            if self._released:
                return
            if self._over.is_set() and self._another(reading):
                self._history.anew()
                self._since_s = math.inf
                self._over.clear()
            self._since_s = min(self._since_s, self._follower.since_s, reading.time_s)
            self._state, self._said = reading.state, None
            ticks = [self._feed(reading)]
            early, self._early_ends = self._early_ends, []
            ticks += [self._feed(self._with(end)) for end in early]
            listeners = list(self._listeners)
            self._heard_ends.extend((end.name, end.time_s) for end in reading.ends)
            self._changed.notify_all()
        self._first.set()
        self._reads.set()
        for listener in listeners:
            for tick in ticks:
                listener.tell(tick)
        self._follower.tell_pending(
            {name: said for found in sources for name, said in found(self.name).items()},
            sum(found(self.name) for found in counters),
        )
        plans = (plan for found in list(planners) if (plan := found(self.name)) is not None)
        self._follower.tell_planned(next(plans, None))
        self._follower.tell_outcome(self._outcome())
        self._tell_beside(looked=reading.host is not None)

    def _tell_beside(self, *, looked: bool) -> None:
        """Tell the producer of the other streams watched here: when they come or go, and at each look."""
        # not under the lock: who holds it may wait for this thread
        views = {
            name: there.view for name, there in [*_watches.items()] if there is not self and not there.over
        }
        busy = {name: cores for name, view in views.items() if (cores := view.busy_cores) is not None}
        if looked or busy.keys() != self._beside:
            self._beside = busy.keys()
            # when the last trial of one has ended, its cores come free for the others
            left_s = {name: eta.left_s for name in busy if (eta := views[name].eta).whole}
            self._follower.tell_beside(busy, left_s)

    def _outcome(self) -> OutcomeReading:
        """Return how this process compares the stream's trials, for those who watch it elsewhere."""
        with self._view.lock:
            names, declared = list(self._view.rows), self._view.compared.declared
        decides = {metric for found in list(judges) for metric in found(names)}
        return OutcomeReading(tuple(sorted(decides)), declared, self._limited, duels_said(names, None))

    def _feed(self, reading: StreamReading) -> StreamNews:
        tick = self._view.feed(reading)
        self._history.add(tick.reading, tick.frame, bool(tick.marks))
        self._limited = limited(self._view, self._history)
        return tick

    def tell_end(self, end: EndReading) -> None:
        """Take in how a trial ended, at once and after the stream's own end too.

        Its notebook knows it first: the stream's readings say so a moment later, or never more.
        """
        with self._lock:
            if self._released:
                return
            if not self._history.readings():
                self._early_ends.append(end)
                return
            tick = self._feed(self._with(end))
            listeners, said = list(self._listeners), self._said
            if said is not None:
                self._view.note(*said[:2])
        for listener in listeners:
            listener.tell(tick)
            if said is not None:
                listener.note(*said)

    def catch_up(self, timeout_s: float, end: EndReading | None = None) -> None:
        """Wait for a reading of a stream that is known to be served, where none has come yet.

        One that lives for less than a second would not be seen otherwise: it is looked for twice a second.

        Args:
            timeout_s: Seconds to wait.
            end: Told by the stream to its observers: wait for that too, and so for the trial's last counters.
        """
        if self._over.is_set() and not self._listeners:
            return  # nobody follows it any more
        self._follower.look()
        deadline_s = time.monotonic() + timeout_s
        if not self._reads.wait(timeout_s) or end is None:
            return
        key = end.name, end.time_s
        with self._changed:
            self._changed.wait_for(
                lambda: key in self._heard_ends or self._said is not None or self._released,
                deadline_s - time.monotonic(),
            )

    def _with(self, end: EndReading) -> StreamReading:
        """Return the last reading with an end in it, behind that reading and before any that is still to be heard."""
        last = self._history.readings()[-1]
        # of a stream that has ended no reading will say that it has left
        stays = [c for c in last.consumers if self._said is None or end.pid != c.pid]
        return replace(last, time_s=last.time_s + 1e-6, ends=(end,), consumers=tuple(stays), host=None)

    def _another(self, reading: StreamReading) -> bool:
        """Whether a reading is of another producer than the last one, or of one that has begun again."""
        before = self._history.readings()
        return not before or reading.pid != before[-1].pid or reading.batches < before[-1].batches

    def _note(self, state: str, text: str, name: str) -> None:
        with self._lock:
            if self._released or (state == ABSENT and self._history.readings()):
                return  # its end has been told
            over = None if state == ABSENT else self._view.over()
            ticks = [] if over is None else [self._feed(over)]
            self._state, self._said = state, (state, text, name)
            self._reads.clear()
            self._changed.notify_all()
            self._view.note(state, text)
            limited(self._view, self._history)
            listeners = list(self._listeners)
        for listener in listeners:
            for tick in ticks:
                listener.tell(tick)
            listener.note(state, text, name)
        if state != ABSENT:
            self._absent_s = time.monotonic()
            if self._follower.ended_for_good:
                self.close()

    def _connect(self, name: str | None) -> Observer:
        """Connect for the follower, on its thread; end it when the stream has been gone for too long."""
        try:
            return self._connect_to(name)
        except ProducerNotFound:
            if time.monotonic() - self._absent_s > self._await_s:
                self.close()
            raise


def watch(name: str, *, anew: bool = False) -> Watch:
    """Return the watch of a stream in this process; the first to ask starts it.

    Args:
        name: The stream's name.
        anew: Begin a new history: another stream of that name has been started. Listeners go on with it.
    """
    with _lock:
        there = _watches.get(name)
        if there is not None and not anew and not there.over:
            return there
        listeners, known = [], None
        if there is not None:
            listeners, known = there.release(), there.known
            there.close()
        # at the end of the dictionary, which is in the order in which streams were started
        _watches.pop(name, None)
        there = _watches[name] = Watch(name, known=known)
        for listener in listeners:
            there.listen(listener)  # it knows what was before
        _forget()
        return there


def listen(name: str, listener: Viewer) -> Known:
    """Tell a listener everything that the watch of a stream gets; return all that it got before.

    A stream that is not served yet, or has ended, is waited for until `unlisten`.

    Args:
        name: The stream's.
        listener: Told on the follower's thread.
    """
    with _lock:
        there = _watches.get(name)
        if there is None:
            there = _watches[name] = Watch(name)
        return there.listen(listener)


def unlisten(name: str, listener: Viewer) -> None:
    """Tell a listener no more; the stream is watched on until it ends."""
    with _lock:
        there = _watches.get(name)
    if there is not None:
        there.unlisten(listener)


def watched() -> dict[str, Watch]:
    """Return every watch of this process by the stream's name, those of streams that have ended too."""
    with _lock:
        return dict(_watches)


def _forget() -> None:
    """Let go of the oldest that have ended. Called under the lock."""
    ended = [name for name, there in _watches.items() if there.over and not there.listened]
    for name in ended[: max(0, len(ended) - ENDED_KEPT)]:
        del _watches[name]
