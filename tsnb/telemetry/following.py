"""Follow a stream from a background thread: connect, read, and connect again when a producer comes back.

```
        no producer of that name                 a reading arrives
  ┌────────────────────────────┐        ┌──────────────────────────────┐
  ▼                            │        ▼                              │
absent ──connected──▶ Observer.read() ──┴─▶ on_reading(reading) ───────┘
  ▲                            │
  └── "gone" is shown ◀── ProducerGone
```

The thread is a daemon and holds a connection of its own, so neither a busy notebook kernel nor the stream
waits for it. Whatever it calls (`on_reading`, `on_note`) runs in this thread.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from tsnb.errors import ProducerGone, ProducerNotFound, StreamNotNamed, TsnbError
from tsnb.telemetry.host import HostSampler
from tsnb.telemetry.observer import Observer
from tsnb.telemetry.readings import ABSENT, OutcomeReading, PlanReading, StreamReading
from tsnb.telemetry.shown.ends import Ends
from tsnb.telemetry.shown.rates import SPAN_S
from tsnb.telemetry.shown.view import StreamView

__all__ = ["Follower", "Note", "look"]

_RETRY_S = 0.5
"""How often to look for a producer; a look reads one small directory."""

_READ_S = 1.0
"""How long to wait for a reading before looking whether to go on."""

_SILENT_S = 5.0
"""A producer that is well answers four times a second."""

_log = logging.getLogger(__name__)

Note = Callable[[str, str, str], None]
"""Called with the stream's state, a sentence and the stream's name ("" while unknown)."""


class Follower:
    """Hands on what a stream tells, to a panel, a recording or a terminal, until it is closed.

    Args:
        name: The stream to follow; None: the one that is served, once there is exactly one.
        on_reading: Called with each reading, about four times a second.
        on_note: Called when there is something to say that no reading says.
        connect: Opens a connection by name; raises ProducerNotFound.
        sampler: Makes the sampler of the machine, so that readings carry their host now and then.
    """

    def __init__(
        self,
        name: str | None,
        on_reading: Callable[[StreamReading], None],
        on_note: Note,
        connect: Callable[[str | None], Observer] = Observer,
        sampler: Callable[[], HostSampler] = HostSampler,
    ) -> None:
        self._name = name
        self._on_reading = on_reading
        self._on_note = on_note
        self._connect = connect
        self._sampler = sampler
        self.ended_for_good = False
        """Whether the stream was stopped last time, and no other producer was said to take it over."""
        self.since_s = math.inf
        """When the producer that is followed, or was last, began to serve: wall clock, seconds since 1970."""
        self._closing = threading.Event()
        self._looking = threading.Event()
        self._connection: Observer | None = None
        self._told: tuple[dict[str, str], int] = ({}, 0)
        """Which trials that connection was told of."""
        self._told_plan: PlanReading | None = None
        self._told_outcome = OutcomeReading()
        self._told_beside = False
        """Whether it was told of other streams."""
        self._thread = threading.Thread(target=self._run, name=f"tsnb-follow-{name or 'any'}", daemon=True)

    def start(self) -> None:
        """Start following."""
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop following and wait for the thread, unless it is the one that asks."""
        self._closing.set()
        self._looking.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def look(self) -> None:
        """Look for the producer now: it is known to be there."""
        self._looking.set()

    def request_stop(self) -> None:
        """Ask the producer to stop in good order.

        Raises:
            ProducerGone: It is not there.
        """
        self._connected().request_stop()

    def request_consumer_stop(self, consumer: str) -> None:
        """Ask for one consumer's loop to end at its next step.

        Raises:
            ProducerGone: The producer is not there.
        """
        self._connected().request_consumer_stop(consumer)

    def tell_pending(self, states: Mapping[str, str], to_come: int) -> None:
        """Tell the producer which trials of this process are not attached yet, where that is news and it is there.

        Args:
            states: State and reason of each by name, as `Observer.tell_pending`.
            to_come: As `Observer.tell_pending`.
        """
        if (told := (dict(states), to_come)) != self._told and self._connection is not None:
            with contextlib.suppress(ProducerGone):  # the next `read` says so
                if self._connection.tell_pending(states, to_come):
                    self._told = told

    def tell_planned(self, plan: PlanReading | None) -> None:
        """Tell the producer what a plan of this process says of its trials, where that is news and it is there.

        Args:
            plan: As `Observer.tell_planned`.
        """
        if plan != self._told_plan and self._connection is not None:
            with contextlib.suppress(ProducerGone):
                if self._connection.tell_planned(plan):
                    self._told_plan = plan

    def tell_outcome(self, outcome: OutcomeReading) -> None:
        """Tell the producer how this process compares its trials, where that is news and it is there.

        Args:
            outcome: As `Observer.tell_outcome`.
        """
        if outcome != self._told_outcome and self._connection is not None:
            with contextlib.suppress(ProducerGone):
                if self._connection.tell_outcome(outcome):
                    self._told_outcome = outcome

    def tell_beside(self, cores: Mapping[str, float], left_s: Mapping[str, float]) -> None:
        """Tell the producer which other streams have trials on this machine, while there are any.

        Args:
            cores: As `Observer.tell_beside`.
            left_s: As `Observer.tell_beside`.
        """
        if (cores or self._told_beside) and self._connection is not None:
            with contextlib.suppress(ProducerGone):
                if self._connection.tell_beside(cores, left_s):
                    self._told_beside = bool(cores)

    def _connected(self) -> Observer:
        if self._connection is None:
            raise ProducerGone(f"the stream {self._name or ''!r} is no longer served")
        return self._connection

    def _run(self) -> None:
        was_there = False
        while not self._closing.is_set():
            try:
                connection = self._connect(self._name)
            except ProducerNotFound as error:
                if not was_there:
                    self._on_note(ABSENT, _nobody(self._name, error), self._name or "")
                self._looking.wait(_RETRY_S)
                self._looking.clear()
                continue
            except (TsnbError, OSError) as error:  # a producer that is just going, or just coming
                _log.debug("cannot follow %s: %s", self._name, error)
                self._closing.wait(_RETRY_S)
                continue
            self._name, was_there = connection.name, True
            self._follow(connection)

    def _follow(self, connection: Observer) -> None:
        self._connection, self._told, self._told_plan, self._told_beside = connection, ({}, 0), None, False
        self._told_outcome = OutcomeReading()
        if (entry := getattr(connection, "entry", None)) is not None:
            self.since_s = entry.since_s
        sampler: HostSampler | None = None
        looks = True
        last: StreamReading | None = None
        ends = Ends()
        try:
            while not self._closing.is_set():
                reading = connection.read(_READ_S)
                if reading is None:
                    continue
                # a producer in another container or on another machine counts its processes differently: what has
                # the same numbers here belongs to another
                if looks and getattr(connection, "peer_pid", None) == reading.pid:
                    try:
                        sampler = sampler or self._sampler()
                        reading = replace(reading, host=sampler.sample(reading))
                    except Exception:  # noqa: BLE001  # the machine is an extra: no oddity of it may end the stream
                        _log.warning("the machine cannot be measured", exc_info=True)
                        looks = False
                last = reading
                ends.feed(reading)
                self._on_reading(reading)
        except (ProducerGone, OSError):
            if last is not None and (over := ends.over(last)) is not None:
                self._on_reading(over)
            self.ended_for_good = getattr(connection, "successor_s", None) == 0.0
            ended = f"The stream {connection.name} has ended. Its history stays here."
            self._on_note("gone", ended, connection.name)
        except (TsnbError, ValueError) as error:  # another version of tsnb serves it
            self._on_note(
                "gone", f"The stream {connection.name} cannot be followed: {error}", connection.name
            )
            self._closing.wait(_RETRY_S)
        finally:
            self._connection = None
            connection.close()


def _nobody(name: str | None, error: ProducerNotFound) -> str:
    """Say what to do when the stream is not served."""
    if isinstance(error, StreamNotNamed):
        return str(error)
    what = f"No stream named {name} is served yet" if name else "No stream is served yet"
    start = f"%tensorsocket start LOADER --name {name or 'NAME'}"
    return f"{what}. Start it with {start}. This panel follows it as soon as it exists."


def look(name: str | None = None, seconds: float = SPAN_S + 0.5) -> tuple[str, StreamView]:
    """Look at a stream for as long as its rates need, and return its name and view.

    Args:
        name: The stream's; None: the only one that is served.
        seconds: How long.

    Raises:
        ProducerNotFound: No producer has that name.
        ProducerGone: It ended meanwhile.
        TsnbError: It does not answer.
    """
    view, sampler = StreamView(), HostSampler()
    with contextlib.closing(Observer(name)) as observer:
        end_s: float | None = None
        while end_s is None or time.monotonic() < end_s:
            reading = observer.read(_SILENT_S)
            if reading is None:
                raise observer.silence()
            end_s = end_s or time.monotonic() + seconds
            if observer.peer_pid == reading.pid:
                reading = replace(reading, host=sampler.sample(reading))
            view.feed(reading)
    view.settle()
    return observer.name, view
