"""One trial: code that runs in a kernel of its own, from its start to its results.

| state | what it means | its variables |
|---|---|---|
| queued | waits to be started: for the trial that it comes after, or the one whose name it takes | |
| starting | its kernel starts, its variables travel | |
| running | its code runs | |
| done | the code ended | can be pulled |
| failed | the code raised; the traceback stands under it | can be pulled, for a look |
| stopped | `stop` or `interrupt` ended it | after `interrupt` only |
| lost | its process died | gone |

A trial that has ended keeps its kernel, so that `trial["net"]` works, until `stop`, a new run of that name,
or the end of the notebook. What a trial does happens on the hub's thread; its methods are called from others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tsnb.errors import NotShippable, TrialFailed, TsnbError
from tsnb.kernels.attempt import Outcome
from tsnb.kernels.course import Course, discard
from tsnb.kernels.death import KernelDied
from tsnb.kernels.hub import Hub
from tsnb.kernels.numbers import Metrics, read_rows
from tsnb.kernels.outlets import CellOutlet, Outlet, TerminalOutlet, outlet_here
from tsnb.kernels.plan import RESULT, TrialPlan
from tsnb.kernels.recording import written
from tsnb.kernels.relay import Relay
from tsnb.kernels.replanning import replanned
from tsnb.kernels.shipping import fetch
from tsnb.kernels.transcript import FollowedLog, LogPart, Transcript
from tsnb.records.rows import LoggedRow
from tsnb.records.run import Run

__all__ = ["ENDED", "STOP_GRACE_S", "TRIAL_STATES", "Listener", "NoSuchVariable", "Trial"]

TRIAL_STATES = ("queued", "starting", "running", "done", "failed", "stopped", "lost")
ENDED = frozenset({"done", "failed", "stopped", "lost"})

STOP_GRACE_S = 2.0
"""How long `stop` leaves the cell to put things in order (`finally`, `with`) after its interrupt."""

ENDING_S = 10.0
"""How long a trial whose kernel has gone may take to note its end."""

PULL_S = 300.0
"""How long a pulled variable may take to be packed."""

Listener = Callable[["Trial", "list[LoggedRow]"], None]
"""Called on the hub's thread with rows that were logged, and with none at each change of the trial's state."""


class NoSuchVariable(TsnbError, KeyError):
    """A trial has no variable of that name."""

    __str__ = Exception.__str__  # KeyError would show the message quoted


class Trial:
    """Code that runs in a background kernel.

    Attributes:
        name: Its name.
        number: Which run of that name this is, from 1.
        params: The user's parameters.
        options: How it is run: producer, batch_size, device, seed, threads and the like, those that were given.
        metrics: The last value of each number it logged; `by_step`, `by_epoch` and `rows` have all of them.
        report: What its consumers did: stream, epochs, batches, samples, samples_per_s, seconds of computing and
            waiting; empty where there were none.
        attached: Whether it has attached to a stream.
        log_path: Where what it prints is kept, beyond the notebook's life.
        successor: The run that took its name, if one did.
        started_s: Seconds since 1970 when it was asked for.
    """

    def __init__(
        self,
        plan: TrialPlan,
        hub: Hub,
        outlet: Outlet,
        run: Run,
        course: Course,
        launch: Callable[[TrialPlan, Outlet], Trial] | None = None,
    ) -> None:
        self.name = plan.name
        self.number = run.number
        self.params = dict(plan.params)
        self.options = plan.options.given
        self.metrics = Metrics()
        self.report: dict[str, Any] = {}
        self.attached = False
        self.started_s = time.time()
        self.log_path = run.log_path
        self.successor: Trial | None = None
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
        self._took_s: float | None = None
        self._stopping = False
        self._ended = threading.Event()
        self._over = asyncio.Event()  # the same, for the hub's thread

    @property
    def state(self) -> str:
        """One of `TRIAL_STATES`."""
        return self._state

    @property
    def pid(self) -> int | None:
        """Its kernel's process, while there is one."""
        return self._course.pid

    @property
    def restarts(self) -> int:
        """How often its process died and was started again (`restart`)."""
        return self._course.restarts

    @property
    def duration_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return time.time() - self.started_s if self._took_s is None else self._took_s

    def listen(self, listener: Listener) -> None:
        """Have `listener(trial, rows)` called for all rows that come from now on.

        It is called with [] when anything else changes: the trial's state, or that it has attached. That happens on
        the thread that all background kernels share, so it must not wait for anything.
        """
        self._listeners.append(listener)

    def _tell(self, rows: list[LoggedRow]) -> None:
        for listener in self._listeners:
            try:
                listener(self, rows)
            except Exception:  # who listens must not end the trial
                logging.getLogger("tsnb").exception("a listener of trial %r raised", self.name)

    def begin(self, former: Trial | None = None) -> None:
        """Start it. Called once, by the board.

        Args:
            former: A run of the same name, asked to stop first, its kernel ended with it.
        """
        if not self._plan.options.detach:
            self._hub.at_end(self, self.end)
        if former is not None:
            former.successor = self
        self._hub.post(self._live(former))

    async def _live(self, former: Trial | None) -> None:
        """Go through the whole life of the trial. Never raises: what happens becomes its state."""
        outcome = Outcome("stopped")
        try:
            if former is not None:
                await former.end(STOP_GRACE_S)
                discard(former._plan)
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
        state, self._failure, took_s = outcome
        self._took_s = time.time() - self.started_s if took_s is None else took_s
        await written(self._run.end, state, self._failure, self._took_s)
        first, _, rest = self._failure.partition("\n")
        detail = f"\n{rest}" if state == "lost" and rest else ""
        stream = "stdout" if state in {"done", "stopped"} else "stderr"
        short = f": {first}" if first else ""
        self.say(f"trial {self.name!r} {state} after {self._took_s:.1f} s{short}{detail}\n", stream)
        self._relay.flush()
        self._hub.forget(self)
        self._state = state
        self._ended.set()
        self._over.set()
        self._tell([])

    # -- what its course tells, on the hub's thread ------------------------------------------------------

    def become(self, state: str) -> None:
        """Enter a state."""
        self._state = state
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
        elif kind == "tsnb_attached":
            self.attached = True
            self._tell([])
        else:
            self._relay.feed(kind, content)

    def take_rows(self, rows: list[LoggedRow]) -> None:
        """Take what it has logged since the last time."""
        self.metrics.add(rows)
        self._tell(rows)

    async def over(self) -> Trial:
        """Wait until it has ended; return it, or the run that has taken its place. On the hub's thread."""
        await self._over.wait()
        return self if self.successor is None else await self.successor.over()

    async def end(self, grace_s: float = 0.0) -> None:
        """End the code if it runs, and the kernel. On the hub's thread; `stop` is for all others.

        Args:
            grace_s: How long interrupted code may take to put things in order.
        """
        self._stopping = self._stopping or self._state not in ENDED
        if grace_s and self._state == "running":
            self._course.interrupt()
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._over.wait(), grace_s)
        await self._course.leave()
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._over.wait(), ENDING_S)

    # -- what its user calls ------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> Trial:
        """Wait until the trial has ended; its output goes on meanwhile.

        Returns:
            This trial, so that `trials["cnn"].wait()["net"]` reads well. A stopped one returns as well.

        Raises:
            TrialFailed: Its cell raised, or its process died; the message carries the traceback.
            TimeoutError: It has not ended within `timeout_s` seconds. It goes on.
        """
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"trial {self.name!r} is still {self._state} after {timeout_s} s; it goes on")
        if self._state in {"failed", "lost"}:
            raise TrialFailed(f"trial {self.name!r} {self._state}: {self._failure}")
        return self

    def stop(self) -> None:
        """End the trial and its kernel; one that has ended already gives its memory back.

        A running cell is interrupted first and has two seconds to put things in order.
        """
        self._call(self.end(STOP_GRACE_S))

    def interrupt(self) -> None:
        """Interrupt the cell, as the stop button does for an ordinary one; its variables stay."""
        if self._state == "running":
            self._hub.loop.call_soon_threadsafe(self._course.interrupt)

    def logs(self) -> str:
        """Return what it printed, tracebacks included (the last million characters)."""
        return self._printed.text

    def log_since(self, position: int, most: int) -> LogPart:
        """Return what was printed since a position of the log, `most` characters at most (`Transcript.since`)."""
        return self._printed.since(position, most)

    def pull(self, variable: str) -> Any:
        """Return a copy of one of the cell's variables, once the cell has ended.

        Raises:
            NoSuchVariable: It has none of that name.
            NotShippable: It cannot travel; says why.
            TsnbError: The trial still runs, or its kernel has gone.
        """
        if self._state not in ENDED:
            raise TsnbError(
                f"trial {self.name!r} is still {self._state}; its variables come when it has ended: "
                f"tsnb.trials[{self.name!r}].wait()[{variable!r}]"
            )
        if self.pid is None:
            raise TsnbError(
                f"the kernel of trial {self.name!r} has ended ({self._state}), its variables with it"
            )
        path = self._hub.new_path("pull", ".pickle")
        reply = self._call(self._course.deliver(variable, path))
        if reply["status"] == "ok":
            return fetch(path)[variable]
        kind = {"KeyError": NoSuchVariable, "NotShippable": NotShippable}.get(reply["ename"], TsnbError)
        raise kind(reply["evalue"].strip("\"'") if kind is NoSuchVariable else reply["evalue"])

    __getitem__ = pull

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait until the trial has ended, and return what its function returned (a cell: its variable `result`).

        Raises:
            TrialFailed: It raised, or its process died.
            TimeoutError: It has not ended within `timeout_s` seconds.
            TsnbError: It was stopped, and has no result.
        """
        return self.wait(timeout_s).pull(RESULT)

    def rerun(self, **changes: Any) -> Trial:
        """Run the same code again, with the variables that it took along then; return the new trial.

        Args:
            **changes: Parameters and options that are to be other than now: `rerun(lr=0.01, seed=2)`. `name` gives
                the new trial a name of its own; else it takes this one's, whose run is stopped and stays in the
                project's records. A name that was made from the parameters is made again.

        Raises:
            TypeError: There is no such parameter or option.
            TsnbError: What it was started from is there no more.
        """
        if self._launch is None:
            raise TsnbError(
                f"trial {self.name!r} was started elsewhere, where what it was started from lies: run its cell again"
            )
        again = replanned(self._plan, changes, self._hub.new_path)
        ours = isinstance(self._outlet, (CellOutlet, TerminalOutlet))
        return self._launch(again, outlet_here(again.name) if ours else self._outlet)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._hub.call(work, PULL_S)

    def __repr__(self) -> str:
        numbers = "".join(f", {name}={value:.4g}" for name, value in self.metrics.items())
        return f"<Trial {self.name!r} {self._state}, {self.duration_s:.1f} s{numbers}>"
