"""A trial as its course and the hub see it: its life from the start to the end, and who hears of it.

What its user calls is `trial.Trial`, which is made of this. How it ended is told to all who watch its stream: its
producer tells every observer; this process's own panels and reports know at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tsnb import registry
from tsnb.errors import TsnbError
from tsnb.experiments.attempt import Outcome
from tsnb.experiments.course import Course, discard
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.recording import Metrics, read_rows, written
from tsnb.kernels.hub import Hub
from tsnb.kernels.output.outlets import Outlet
from tsnb.kernels.output.relay import Relay
from tsnb.kernels.output.transcript import FollowedLog, Transcript
from tsnb.kernels.processes.death import KernelDied
from tsnb.masks import masked, masked_text
from tsnb.records.reading import ENDED as ENDED_STATES
from tsnb.records.run import Run
from tsnb.records.scores import direction
from tsnb.records.writes import LoggedRow
from tsnb.telemetry.observer import Observer
from tsnb.telemetry.readings import EndReading
from tsnb.telemetry.watching import watched

__all__ = [
    "ENDED",
    "STOP_GRACE_S",
    "TRIAL_STATES",
    "Hosting",
    "Launch",
    "Listener",
    "end_reading",
    "tell_end",
]

TRIAL_STATES = ("queued", "starting", "running", *ENDED_STATES)
ENDED = frozenset(ENDED_STATES)

STOP_GRACE_S = 2.0
"""How long `stop` leaves the cell to put things in order (`finally`, `with`) after its interrupt."""

TELLING_S = 2.0
"""How long telling a stream how a trial ended may take: milliseconds, unless its producer stands still."""

ENDING_S = 10.0
"""How long a trial whose kernel has gone may take to note its end."""

Listener = Callable[[Any, "list[LoggedRow]"], None]
"""Takes the trial and rows that it logged; none at each change of its state. Called on the hub's thread."""

Launch = Callable[[TrialPlan, Outlet], Any]
"""Starts a trial from its plan and returns it (`board.launch`)."""


class Hosting:
    """What happens to a trial, on the hub's thread, from its start to its end."""

    def __init__(
        self,
        plan: TrialPlan,
        hub: Hub,
        outlet: Outlet,
        run: Run,
        course: Course,
        launch: Launch | None = None,
    ) -> None:
        self.name = plan.name
        self.number = run.number
        self.params = masked(plan.params)
        masked(plan.options.env)  # known from now on: what it prints of them is masked
        self.options = plan.options.given
        self.metrics = Metrics()
        self.report: dict[str, Any] = {}
        self.attached = False
        self.started_s = time.time()
        self.log_path = run.log_path
        self.successor: Hosting | None = None
        self._plan = plan
        self._hub = hub
        self._run = run
        self._course = course
        self._launch = launch
        self._outlet = outlet
        own, rest = not plan.options.detach, f"%trials logs {plan.name} shows its end."
        self._relay = Relay(hub.loop, outlet, run.log_path if own else None, rest)
        # a detached trial writes its log itself, so that it has one without this notebook
        self._printed: Transcript | FollowedLog = self._relay.transcript if own else FollowedLog(run.log_path)
        self._listeners: list[Listener] = []
        self._state = "queued"
        self._failure = ""
        self.failure_seen = False
        self._took_s: float | None = None
        self._pid = 0
        self._stopping = False
        self._ended_by = "stopped"  # which kind of stop it is, should it end by one
        self._ended = threading.Event()
        self._over = asyncio.Event()  # the same, for the hub's thread

    @property
    def state(self) -> str:
        """One of `TRIAL_STATES`."""
        return self._state

    def _tell(self, rows: list[LoggedRow]) -> None:
        for listener in self._listeners:
            try:
                listener(self, rows)
            except Exception:  # who listens must not end the trial
                logging.getLogger("tsnb").exception("a listener of trial %r raised", self.name)

    def begin(self, former: Hosting | None = None) -> None:
        """Start it. Called once, by the board.

        Args:
            former: A run of the same name, asked to stop first, its kernel ended with it.
        """
        if not self._plan.options.detach:
            self._hub.at_end(self, self.end)
        if former is not None:
            former.successor = self
        self._hub.post(self._live(former))

    def forget(self) -> None:
        """Remove what it was started from, once it has ended: nobody will run it again."""
        discard(self._plan)

    async def _live(self, former: Hosting | None) -> None:
        """Go through the whole life of the trial. Never raises: what happens becomes its state."""
        outcome = Outcome("stopped")
        try:
            if former is not None:
                await former.end(STOP_GRACE_S)
                former.forget()
            if not self._stopping:
                outcome = await self._course.go(self)
        except KernelDied as error:
            outcome = Outcome("lost", str(error))
        except Exception as error:  # noqa: BLE001 (a trial that cannot be started must not wait for ever)
            outcome = Outcome("failed", f"{type(error).__name__}: {error}")
        finally:
            if outcome.state == "lost" and (self._stopping or self._hub.closing):
                outcome = Outcome("stopped")
            await self._conclude(outcome)

    async def _conclude(self, outcome: Outcome) -> None:
        """Note how it ended, tell under its cell, and wake whoever waits."""
        state, failure, took_s = outcome
        self._failure = masked_text(failure)
        self._took_s = time.time() - self.started_s if took_s is None else took_s
        await written(self._run.end, state, self._failure, self._took_s)
        if state == "stopped" and self._ended_by != state:
            state = self._ended_by
            await written(self._run.stopped_by, state)  # its kernel knows only that it was stopped
        await self._tell_end(state)
        first, _, rest = self._failure.partition("\n")
        detail = f"\n{rest}" if state == "lost" and rest else ""
        stream = "stderr" if state in {"failed", "lost"} else "stdout"
        short = f": {first}" if first else ""
        self.say(f"trial {self.name!r} {state} after {self._took_s:.1f} s{short}{detail}\n", stream)
        self._relay.flush()
        self._hub.forget(self)
        self._state = state
        self._ended.set()
        self._over.set()
        self._tell([])

    async def _tell_end(self, state: str) -> None:
        """Tell all who watch the stream how it ended, and what it logged last."""
        end = end_reading(self.name, state, time.time(), self._pid, self._failure, self.metrics)
        streams, producer = self.report.get("stream", ""), self.options.get("producer")
        if not self._hub.closing:
            with contextlib.suppress(
                RuntimeError, asyncio.TimeoutError, TimeoutError
            ):  # the interpreter ends
                await asyncio.wait_for(asyncio.to_thread(tell_end, end, streams, producer), TELLING_S)

    # -- what its course tells, on the hub's thread ------------------------------------------------------

    def become(self, state: str) -> None:
        """Enter a state."""
        self._state = state
        self._pid = self._course.pid or self._pid
        self._tell([])

    def say(self, text: str, stream: str = "stdout") -> None:
        """Show text under its cell."""
        self._relay.say(text, stream)

    def take(self, kind: str, content: dict[str, Any]) -> None:
        """Take what the kernel publishes: its reports are kept, the rest is shown."""
        if kind == "tsnb_log":
            self.take_rows(read_rows(content["rows"]))
        elif kind == "tsnb_report":
            self.report = dict(content)
        elif kind == "tsnb_direction":
            direction(content)
        elif kind == "tsnb_attached":
            self.attached = True
            self._tell([])
        else:
            self._relay.feed(kind, content)

    def take_rows(self, rows: list[LoggedRow]) -> None:
        """Take what it has logged since the last time."""
        self.metrics.add(rows)
        self._tell(rows)

    @property
    def hint(self) -> str:
        """How its output is found once its cell does not follow it any more; nothing where that cannot happen."""
        if getattr(self._outlet, "client", None) is None:
            return ""
        return f"; after a reload of this page, %trials follow {self.name} shows what comes"

    @property
    def shown_in(self) -> str | None:
        """Which client shows its output (`kernels.outlets.client_here`), as long as that is not loaded again."""
        outlet = getattr(self._outlet, "beneath", self._outlet)  # a sweep marks its trials' lines
        client: str | None = getattr(outlet, "client", None)
        return client

    async def move(self, outlet: Outlet, before: str) -> None:
        """Show its output elsewhere from now on; see `Relay.move`."""
        self._relay.move(outlet, before, f"trial {self.name!r}: its output goes on under another cell\n")
        self._outlet = outlet

    @property
    def ended_s(self) -> float:
        """Seconds since 1970 when it ended; infinite before."""
        return (
            self.started_s + self._took_s if self._state in ENDED and self._took_s is not None else math.inf
        )

    async def release(self) -> None:
        """End the process of a trial that has ended; its variables are kept here. On the hub's thread."""
        await self._course.release()

    async def over(self) -> Hosting:
        """Wait until it has ended; return it, or the run that has taken its place. On the hub's thread."""
        await self._over.wait()
        return self if self.successor is None else await self.successor.over()

    async def end(self, grace_s: float = 0.0, state: str = "stopped") -> None:
        """End the code if it runs, and the kernel. On the hub's thread; `stop` is for all others.

        Args:
            grace_s: How long interrupted code may take to put things in order.
            state: What it is called then: "stopped", or "pruned".
        """
        if not self._stopping:
            self._ended_by = state
        self._stopping = self._stopping or self._state not in ENDED
        if grace_s and self._state == "running":
            self._course.interrupt()
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._over.wait(), grace_s)
        await self._course.leave()
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._over.wait(), ENDING_S)


MOST_LETTERS = 300
"""Letters of an error's line that are told."""


def end_reading(
    name: str, state: str, time_s: float, pid: int, failure: str, metrics: Mapping[str, float]
) -> EndReading:
    """Return how a trial ended, in short.

    Args:
        name: The trial's.
        state: One of `END_STATES`.
        time_s: When: wall clock, seconds since 1970.
        pid: Its process; 0: it never had one.
        failure: What went wrong: one line, then the traceback.
        metrics: The last numbers that it logged.
    """
    finite = {metric: value for metric, value in metrics.items() if math.isfinite(value)}
    return EndReading(name, state, time_s, pid, failure.partition("\n")[0][:MOST_LETTERS], finite)


def tell_end(end: EndReading, streams: str, producer: str | None) -> None:
    """Tell an end to the streams that the trial took. Never raises; takes milliseconds.

    Args:
        end: How it ended.
        streams: Those it attached to, as its report has them ("train, val"); empty: none.
        producer: The one that it was meant for; with neither, the one that is served, if it is the only one.
    """
    with contextlib.suppress(TsnbError, OSError):
        names = [name for name in streams.split(", ") if name] or [producer or registry.find(None).name]
        for name in names:
            if name in (watches := watched()):
                watches[name].tell_end(end)
            with contextlib.suppress(TsnbError, OSError), contextlib.closing(Observer(name)) as observer:
                observer.tell_end(end)
