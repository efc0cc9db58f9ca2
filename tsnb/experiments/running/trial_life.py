"""A trial's life on the hub's thread: from the start to the end, and who is told.

The user calls `trial.Trial`, which has a life. The life of a trial that this process has started drives kernels, one
after the other (`own_life`); that of a trial that was found is followed (`detached`).

`ends` tells all observers of its stream how it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tsnb.config import limit_met
from tsnb.errors import TsnbError
from tsnb.experiments.bookkeeping import LoggedNumbers, asked, noted, written
from tsnb.experiments.ends import end_reading, follow_stream_for, tell_end
from tsnb.experiments.news import (
    Attaching,
    Changed,
    Consumed,
    Declared,
    Directions,
    Logged,
    News,
    Releasable,
    Requested,
    StandsStill,
    WentBack,
    Wrote,
    was_asked_for,
)
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.running.attempt import Delivery
from tsnb.experiments.running.states import Outcome, TrialStates
from tsnb.kernels.hub import Hub
from tsnb.kernels.output.outlets import Outlet
from tsnb.kernels.output.relay import Relay
from tsnb.kernels.output.transcript import FollowedLog, Transcript
from tsnb.kernels.processes.death import KernelDied
from tsnb.records import notices
from tsnb.records.run import Run
from tsnb.records.scores import direction
from tsnb.records.writes import LiveChange, LoggedRow, Parent
from tsnb.text.masks import masked, masked_text

__all__ = [
    "NOT_BEGUN",
    "STOP_GRACE_S",
    "SURE_S",
    "Launch",
    "RowListener",
    "TrialLife",
]

NOT_BEGUN = "its code has not started to train yet"
"""Why nothing can be said of a trial yet that its process tells."""

STOP_GRACE_S = 2.0
"""How long `stop` leaves the cell to put things in order (`finally`, `with`) after its interrupt."""

TELLING_S = 2.0
"""How long telling a stream how a trial ended may take: milliseconds, unless its producer stands still."""
SURE_S = 5.0
"""A trial whose code runs for longer than this and has attached to no stream has a row of its own."""
ENDING_S = 10.0
"""How long a trial whose kernel has gone may take to note its end."""

RowListener = Callable[[Any, "list[LoggedRow]"], None]
"""Takes the trial and rows that it logged; none at each change of its state. Called on the hub's thread."""

Launch = Callable[..., Any]
"""Starts a trial from its plan, at an outlet, and returns it (`board.launch`)."""


class TrialLife(ABC):
    """What happens to a trial, from its start to its end.

    Attributes:
        trial: What its user has, and what listeners are given.
        states: Where it is between its start and its end.
        waits_for: What it waits for while it is queued, in words.
        was_queued: Whether its stream is told of it until it is attached: it has waited for something.
        why_not_released: Why its process cannot give GPU memory back while it is paused; empty: it can.
        parent: Which trial it is a clone of, and from where on; None: it is none.

    Args:
        plan: What is run.
        hub: The hub on whose thread it is lived.
        outlet: Where its output goes.
        run: Its place in the project's records.
        launch: Starts a trial from its plan; None: this one was started elsewhere.
        first: Its first state.
    """

    def __init__(
        self,
        plan: TrialPlan,
        hub: Hub,
        outlet: Outlet,
        run: Run,
        launch: Launch | None = None,
        first: str = "queued",
    ) -> None:
        self.trial: Any = None
        self.states = TrialStates(first)
        self.waits_for = ""
        self.was_queued = False
        self.name = plan.name
        self.number = run.number
        self.params = masked(plan.params)
        masked(plan.options.env)  # known from now on: wherever it prints them they are masked
        self.options = plan.options.given
        self.metrics = LoggedNumbers()
        self.report: dict[str, Any] = {}
        self.attached = False
        self.why_not_released = NOT_BEGUN
        self.parent: Parent | None = None
        self.live: dict[str, Any] = {}
        self.bounds: Mapping[str, tuple[float, float]] = {}
        self.changes: list[LiveChange] = []
        self._asked: list[LiveChange] = []  # what may not hold yet; `Requested`
        self.written: set[str] = set()
        self.started_s = self.began_s = time.time()
        self.log_path = run.log_path
        self.artifacts_path = run.artifacts_path
        self.successor: TrialLife | None = None
        self.plan = plan
        self.hub = hub
        self._run = run
        self.launch = launch
        self.outlet = outlet
        own, rest = not plan.options.detach, f"%trials logs {plan.name} shows its end."
        self._relay = Relay(hub.loop, outlet, run.log_path if own else None, rest)
        # a detached trial writes its log itself, so that it has one without this notebook
        self.printed: Transcript | FollowedLog = self._relay.transcript if own else FollowedLog(run.log_path)
        self.listeners: list[RowListener] = []
        self.failure = ""
        self.took_s: float | None = None
        self._pid = 0
        self.ended = threading.Event()
        self._over = asyncio.Event()  # for the hub's thread

    @property
    def key(self) -> str:
        """What tells its run from every other (`records.Run.key`)."""
        return self._run.key

    def require_here(self) -> None:  # noqa: B027 (what was started here is here)
        """Refuse to end or interrupt it where its process cannot be reached.

        Raises:
            TsnbError: It runs in another container, or on another machine.
        """

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Its process, while there is one."""

    @abstractmethod
    async def _go(self) -> Outcome:
        """Go the whole way to the end of its code.

        Raises:
            KernelDied: Its process ended without reporting an end.
        """

    @abstractmethod
    def interrupt(self) -> None:
        """Interrupt its code."""

    @abstractmethod
    async def leave(self) -> None:
        """End its process, or its waiting for one, and have `_go` return."""

    async def release(self) -> None:  # noqa: B027 (there may be nothing to release)
        """Keep the variables of a trial that has ended here, and end its process, where that can be."""

    def keeps(self, variables: Sequence[str]) -> bool:
        """Return whether variables are still available although the process has ended."""
        return False

    async def extend(self, epochs: int) -> None:
        """Have a trial that is done go on for some more epochs.

        Raises:
            TsnbError: It cannot; says why, and what to do.
        """
        raise TsnbError(f"trial {self.name!r} {self.why_not_extended()}")

    def why_not_extended(self) -> str:
        """Return why it cannot be extended, and what to do; "" if it can. From any thread."""
        return (
            "was started by another notebook, which holds its code and variables. Extend it there, or run "
            "its cell here"
        )

    def instead_of_cloning(self) -> str:
        """Return what to do with one that has ended, where a clone is wanted; "": nothing here. From any thread."""
        return ""

    @abstractmethod
    async def set(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Have live values changed while the code runs; return the kernel's reply.

        Raises:
            TsnbError: There is no process to ask.
        """

    async def release_memory(self, *, wanted: bool = True) -> dict[str, Any]:
        """Have the GPU memory of what it keeps given back when it is paused; return the kernel's reply.

        Args:
            wanted: Else it stays after all.

        Raises:
            TsnbError: There is no process of this notebook's to ask.
        """
        raise TsnbError(f"Trial {self.name!r} was started by another notebook. Release its memory there")

    @abstractmethod
    async def deliver(self, variables: Sequence[str], before: Sequence[str]) -> Delivery:
        """Have some of its variables sent, together; return the kernel's reply with them.

        Args:
            variables: Their names.
            before: Those that were fetched before, in other calls.

        Raises:
            TsnbError: There is no process to ask.
        """

    def _tell(self, rows: list[LoggedRow]) -> None:
        for listener in self.listeners:
            try:
                listener(self.trial, rows)
            except Exception:  # a listener must not end the trial
                logging.getLogger("tsnb").exception("a listener of trial %r raised", self.name)

    def begin(self, former: TrialLife | None = None) -> None:
        """Start it. Called once, by the board.

        Args:
            former: A run of the same name, asked to stop first, its kernel ended with it.
        """
        if not self.plan.options.detach:
            self.hub.at_end(self, self.end)
        if former is not None:
            former.successor = self
        self.hub.post(self._live(former))

    def forget(self) -> None:
        """Remove its code and variables once it has ended: it will not run again."""
        self.plan.discard()

    async def _live(self, former: TrialLife | None) -> None:
        """Go through the whole life of the trial. Never raises: what happens becomes its state."""
        outcome = Outcome("stopped")
        try:
            if former is not None:
                await former.end(STOP_GRACE_S)
                former.forget()
            if not self.states.asked:
                outcome = await self._go()
        except KernelDied as error:
            outcome = Outcome("crashed", str(error))
        except Exception as error:  # noqa: BLE001 (a trial that cannot be started must not wait for ever)
            outcome = Outcome("failed", f"{type(error).__name__}: {error}{limit_met(str(error))}")
        finally:
            await self._conclude(outcome)

    async def _conclude(self, outcome: Outcome) -> None:
        """Note how it ended, tell under its cell, and wake all that wait."""
        state, failure, took_s = self.states.conclude(outcome, abandoned=self.hub.closing)
        self.failure = masked_text(failure)
        self.took_s = time.time() - self.started_s if took_s is None else took_s
        await written(self._run.end, state, self.failure, self.took_s)
        stopped = state in {"stopped", "interrupted", "pruned"}
        if stopped and (state != "stopped" or failure):  # its kernel knows only that it was stopped
            await written(self._run.stopped_by, state, self.failure)
        if stopped or state == "crashed":  # else its kernel told all rows before its end
            await self._take_last_words()
        await self._tell_end(state)
        first, _, rest = self.failure.partition("\n")
        detail = f"\n{rest}" if state == "crashed" and rest else ""
        stream = "stderr" if state in {"failed", "crashed"} else "stdout"
        short = f": {first}" if first else ""
        self.say(f"trial {self.name!r} {state} after {self.took_s:.1f} s{short}{detail}\n", stream)
        self._relay.flush()
        self.hub.forget(self)
        self.states.end(state)
        self.ended.set()
        self._over.set()
        self._tell([])
        notices.tell(notices.Notice(self.name, state, first, self.took_s, dict(self.metrics)))

    async def _tell_end(self, state: str) -> None:
        """Tell all observers of the stream how it ended, and what it logged last."""
        end = end_reading(self.name, state, time.time(), self._pid, self.failure, self.metrics, self.report)
        streams, producer = self.report.get("stream", ""), self.options.get("stream")
        began = self.state not in {"queued", "starting"}
        if began and not streams and producer is None and time.time() - self.began_s > SURE_S:
            return  # its row stands among those without a stream, and stays there
        if not self.hub.closing:
            with contextlib.suppress(
                RuntimeError, asyncio.TimeoutError, TimeoutError
            ):  # the interpreter ends
                await asyncio.wait_for(asyncio.to_thread(tell_end, end, streams, producer), TELLING_S)

    # -- what happens to its kernel -----------------------------------------------------------------------

    def become(self, state: str) -> None:
        """Enter a state, and tell all that listen."""
        self.states.enter(state)
        self.began_s = time.time()
        self._pid = self.pid or self._pid
        self._tell([])

    def wait_for(self, why: str) -> None:
        """Wait for what is said in words, where it is queued; empty: for nothing any more.

        Its board, its records and all screens of its stream show that.
        """
        if why == self.waits_for:
            return
        self.waits_for = why
        noted(self._run.state, self.state, why)
        if not self.was_queued:
            self.was_queued = True
            self.hub.post(asyncio.to_thread(follow_stream_for, self.options.get("stream")))

    def say(self, text: str, stream: str = "stdout") -> None:
        """Show text under its cell."""
        self._relay.say(text, stream)

    def show(self, kind: str, content: dict[str, Any]) -> None:
        """Show a message of the kernel's under its cell."""
        if not (kind == "error" and was_asked_for(content, self.states.asked)):
            self._relay.feed(kind, content)

    def hear(self, news: News) -> None:
        """Take what the kernel tells."""
        match news:
            case Logged(rows):
                self.take_rows(rows)
            case Consumed(report):
                self.report = report
            case Declared() | Requested() | Changed():
                self._hear_of_live(news)
            case StandsStill(on):
                self.states.paused = on
                self._tell([])
            case Releasable(why):
                self.why_not_released = why
            case WentBack(rows, samples):
                self._go_back(rows, samples)
            case Directions() | Wrote():
                self._hear_aside(news)
            case Attaching():
                self.attached = True
                self._tell([])

    def _hear_of_live(self, news: Declared | Requested | Changed) -> None:
        """Take what it tells of its live values."""
        if isinstance(news, Declared):
            self.live, self.bounds = news
        elif isinstance(news, Requested):
            self._asked.extend(news.changes)
        else:
            self._take_changes(news.changes)

    def _take_changes(self, changes: Sequence[LiveChange]) -> None:
        """Take changes of live values that hold now."""
        self.changes.extend(changes)
        self.live.update({change.name: change.value for change in changes})
        for made in changes:
            kept = (each for each in self._asked if each[:2] == made[:2] and each.samples <= made.samples)
            if (first := next(kept, None)) is not None:
                self._asked.remove(first)
        self._tell([])

    def _hear_aside(self, news: Directions | Wrote) -> None:
        """Take what concerns other trials too."""
        if isinstance(news, Directions):
            direction(news.by_metric)
        else:
            self.written.update(news.paths)
            self._tell([])

    def _go_back(self, rows: int, samples: int) -> None:
        self.metrics.cut(rows)
        if self.metrics.count < rows:
            with contextlib.suppress(TsnbError):
                self._take_written(self._run.rows()[0][:rows])
        self.changes = [change for change in self.changes if change.samples <= samples]
        self._tell([])

    def take_rows(self, rows: list[LoggedRow]) -> None:
        """Take what it has logged since the last time."""
        self.metrics.add(rows)
        self._tell(rows)

    async def _take_last_words(self) -> None:
        """Take what its process wrote down and could not tell any more: it was killed a moment later."""
        with contextlib.suppress(TsnbError):
            self._take_written((await asked(self._run.rows))[0])
            record, known = await asked(self._run.read), len(self.changes)
            if record is not None and record.changes[:known] == self.changes and record.changes[known:]:
                self._take_changes(record.changes[known:])

    def _take_written(self, written: Sequence[LoggedRow]) -> None:
        """Take those of its rows that it has not told."""
        here = self.metrics.count
        if len(written) > here and (not here or written[here - 1].time_s == self.metrics.rows[-1].time_s):
            self.take_rows(list(written[here:]))

    @property
    def state(self) -> str:
        """Where it is: one of the states of `states.TrialStates`."""
        return self.states.state

    def unfinished(self) -> str:
        """Return the line that it has begun to print and not ended; empty: none."""
        seen = self._relay.transcript
        return seen.open if seen.in_a_line else ""

    @property
    def hint(self) -> str:
        """How its output is found once its cell does not follow it any more; nothing where that cannot happen."""
        if getattr(self.outlet, "client", None) is None:
            return ""
        return f"; after a page reload, %trials follow {self.name} shows its output"

    @property
    def shown_in(self) -> str | None:
        """Which client shows its output (`kernels.outlets.client_here`), as long as that is not loaded again."""
        outlet = getattr(self.outlet, "beneath", self.outlet)  # a sweep marks its trials' lines
        client: str | None = getattr(outlet, "client", None)
        return client

    async def move(self, outlet: Outlet, before: str) -> None:
        """Show its output elsewhere from now on; see `Relay.move`."""
        self._relay.move(outlet, before, f"trial {self.name!r}: its output continues under another cell\n")
        self.outlet = outlet

    @property
    def ended_s(self) -> float:
        """Seconds since 1970 when it ended; infinite before."""
        return self.started_s + self.took_s if self.states.has_ended and self.took_s is not None else math.inf

    async def over(self) -> TrialLife:
        """Wait until it has ended; return it, or the run that has taken its place. On the hub's thread."""
        await self._over.wait()
        return self if self.successor is None else await self.successor.over()

    async def end(self, grace_s: float = 0.0, state: str = "stopped", by: str = "") -> None:
        """End the code if it runs, and the kernel. On the hub's thread; `stop` is for all others.

        Args:
            grace_s: How long interrupted code may take to put things in order.
            state: Its state after that: "stopped", or "pruned".
            by: Who or what stops it, in words: "in the panel".
        """
        first = self.states.ask_to_end(state, by)
        if grace_s and self.state == "running":
            if first:
                self.interrupt()
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._over.wait(), grace_s)
        await self.leave()
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._over.wait(), ENDING_S)
