"""One trial: a cell that runs in a kernel of its own, from its start to its results.

| state | what it means | its variables |
|---|---|---|
| queued | waits to be started | |
| starting | its kernel starts, its variables travel | |
| running | its cell runs | |
| done | the cell ended | can be pulled |
| failed | the cell raised; the traceback stands under it | can be pulled, for a look |
| stopped | `stop` or `interrupt` ended it | after `interrupt` only |
| lost | its process died | gone |

A trial that has ended keeps its kernel, so that `trial["net"]` works, until `stop`, a new trial of that name,
or the end of the notebook. What a trial does happens on the hub's thread; its methods are called from others.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tsnb.errors import NotShippable, TrialFailed, TsnbError
from tsnb.kernels import orders
from tsnb.kernels.child import Child
from tsnb.kernels.death import KernelDied
from tsnb.kernels.hub import Hub
from tsnb.kernels.outlets import Outlet
from tsnb.kernels.record import LogPart
from tsnb.kernels.relay import Relay
from tsnb.kernels.shipping import fetch

__all__ = ["ENDED", "STOP_GRACE_S", "TRIAL_STATES", "LoggedRow", "NoSuchVariable", "Trial", "TrialPlan"]

TRIAL_STATES = ("queued", "starting", "running", "done", "failed", "stopped", "lost")
ENDED = frozenset({"done", "failed", "stopped", "lost"})

STOP_GRACE_S = 2.0
"""How long `stop` leaves the cell to put things in order (`finally`, `with`) after its interrupt."""

ENDING_S = 10.0
"""How long a trial whose kernel has gone may take to note its end."""

PULL_S = 300.0
"""How long a pulled variable may take to be packed."""

LoggedRow = tuple["int | None", float, dict[str, float]]
"""One `tsnb.log`: its step if it was given one, seconds since 1970, the numbers."""


class NoSuchVariable(TsnbError, KeyError):
    """A trial has no variable of that name."""

    __str__ = Exception.__str__  # KeyError would show the message quoted


@dataclass(frozen=True)
class TrialPlan:
    """What is to be run, settled before anything is started."""

    name: str
    """The trial's name, also that of its consumers."""
    source: str
    """The cell, with the line numbers that the notebook shows (`orders.as_written`)."""
    arrival: Mapping[str, Any]
    """What the kernel needs to take in the cell's variables (`orders.to_arrive`)."""
    params: Mapping[str, Any]
    """The options it was started with: producer, batch_size, device, seed (None: not given), threads."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to its process's environment."""


class Trial:
    """A cell that runs in a background kernel.

    Attributes:
        name: Its name.
        params: The options it was started with, those that were given.
        metrics: The last value of each number it logged.
        history: Every `tsnb.log` it made.
        report: What its consumers did: stream, epochs, samples, samples_per_s; empty where there were none.
        started_s: Seconds since 1970 when it was asked for.
    """

    def __init__(self, plan: TrialPlan, hub: Hub, outlet: Outlet) -> None:
        self.name = plan.name
        self.params = {k: v for k, v in plan.params.items() if v is not None}
        self.metrics: dict[str, float] = {}
        self.history: list[LoggedRow] = []
        self.report: dict[str, Any] = {}
        self.started_s = time.time()
        self._plan = plan
        self._hub = hub
        self._relay = Relay(hub.loop, outlet)
        self._state = "queued"
        self._failure = ""
        self._took_s: float | None = None
        self._stopping = False
        self._ended = threading.Event()
        self._over = asyncio.Event()  # the same, for the hub's thread
        self._child: Child | None = None

    @property
    def state(self) -> str:
        """One of `TRIAL_STATES`."""
        return self._state

    @property
    def pid(self) -> int | None:
        """Its kernel's process, while there is one."""
        return self._child.pid if self._child is not None and self._child.alive else None

    @property
    def duration_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return time.time() - self.started_s if self._took_s is None else self._took_s

    def begin(self, former: Trial | None) -> None:
        """Start it. Called once, by `run_cell`.

        Args:
            former: A trial of the same name, ended first, its kernel with it.
        """
        self._hub.post(self._live(former))

    async def _live(self, former: Trial | None) -> None:
        """Go through the whole life of the trial. Never raises: what happens becomes its state."""
        try:
            if former is not None:
                await former.end()
            if not self._stopping:
                await self._run()
        except KernelDied as error:
            self._conclude("lost", str(error))
        except Exception as error:  # noqa: BLE001 (a trial that cannot be started must not wait for ever)
            self._conclude("failed", f"{type(error).__name__}: {error}")
        finally:
            self._discard_shipment()
            if self._state not in ENDED:
                self._conclude("stopped")

    async def _run(self) -> None:
        self._state = "starting"
        self._child = Child(self._hub, self.name, self._take, dict(self._plan.env))
        await self._child.start()
        settings = {**self._plan.params, **self._plan.arrival, "name": self.name}
        reply = await self._child.execute(orders.call("trial", "enter", settings), order=True)
        if reply["status"] == "ok":
            self._state = "running"
            self._relay.say(f"trial {self.name!r} running (pid {self._child.pid})\n")
            reply = await self._child.execute(self._plan.source)
            await self._child.execute(orders.call("trial", "finish"), order=True)
        if reply["status"] == "ok":
            self._conclude("done")
        elif reply.get("ename") in {"KeyboardInterrupt", "StopRequested"}:
            self._conclude("stopped")
        else:
            self._conclude("failed", _failure(reply))

    def _discard_shipment(self) -> None:
        """Remove what was shipped, if nobody came to fetch it."""
        Path(self._plan.arrival["path"]).unlink(missing_ok=True)

    def _conclude(self, state: str, failure: str = "") -> None:
        """Note how it ended, tell under its cell, and wake whoever waits."""
        if state == "lost" and (self._stopping or self._hub.closing):
            state, failure = "stopped", ""
        self._took_s = time.time() - self.started_s
        self._failure = failure
        self._state = state
        short = f": {failure.splitlines()[0]}" if failure else ""
        detail = f"\n{failure.partition(chr(10))[2]}" if state == "lost" and "\n" in failure else ""
        name = "stdout" if state in {"done", "stopped"} else "stderr"
        self._relay.say(f"trial {self.name!r} {state} after {self._took_s:.1f} s{short}{detail}\n", name)
        self._relay.flush()
        self._ended.set()
        self._over.set()

    def _take(self, kind: str, content: dict[str, Any]) -> None:
        """Take what the kernel publishes: its reports are kept, the rest is shown."""
        if kind == "tsnb_log":
            for step, moment, sent in content["rows"]:
                numbers = {name: float(value) for name, value in sent.items()}
                self.history.append((step, moment, numbers))
                self.metrics.update(numbers)
        elif kind == "tsnb_report":
            self.report.update(content)
        else:
            self._relay.feed(kind, content)

    async def end(self, grace_s: float = 0.0) -> None:
        """End the cell if it runs, and the kernel. On the hub's thread; `stop` is for all others.

        Args:
            grace_s: How long an interrupted cell may take to put things in order.
        """
        self._stopping = self._stopping or self._state not in ENDED
        if self._child is not None:
            if grace_s and self._state == "running":
                self._child.interrupt()
                with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                    await asyncio.wait_for(self._over.wait(), grace_s)
            await self._child.kill()
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._over.wait(), ENDING_S)

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
        if self._state == "running" and self._child is not None:
            self._hub.loop.call_soon_threadsafe(self._child.interrupt)

    def logs(self) -> str:
        """Return what it printed, tracebacks included (the last million characters)."""
        return self._relay.record

    def log_since(self, position: int, most: int) -> LogPart:
        """Return what was printed since a position of the log, `most` characters at most (`Record.since`)."""
        return self._relay.since(position, most)

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
        child = self._child
        if child is None or not child.alive:
            raise TsnbError(
                f"the kernel of trial {self.name!r} has ended ({self._state}), its variables with it"
            )
        path = self._hub.new_path("pull", ".pickle")
        reply = self._call(child.execute(orders.call("trial", "deliver", variable, str(path)), order=True))
        if reply["status"] == "ok":
            return fetch(path)[variable]
        kind = {"KeyError": NoSuchVariable, "NotShippable": NotShippable}.get(reply["ename"], TsnbError)
        raise kind(reply["evalue"].strip("\"'") if kind is NoSuchVariable else reply["evalue"])

    __getitem__ = pull

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._hub.call(work, PULL_S)

    def __repr__(self) -> str:
        numbers = "".join(f", {name}={value:.4g}" for name, value in self.metrics.items())
        return f"<Trial {self.name!r} {self._state}, {self.duration_s:.1f} s{numbers}>"


def _failure(reply: Mapping[str, Any]) -> str:
    """Return what a cell raised: its last line first, then the traceback without its colours."""
    lines = "\n".join(reply.get("traceback", ()))
    traceback = re.sub(r"\x1b\[[0-9;]*m", "", lines)
    return f"{reply.get('ename', 'Error')}: {reply.get('evalue', '')}\n\n{traceback}".rstrip()
