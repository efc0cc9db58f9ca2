"""A trial becomes two at a batch: the wish, the fork at the boundary, and what the clone does before its next step.

| step | process, thread | what it waits for |
|---|---|---|
| `BRANCH` arrives: what can be refused is refused, the rest is noted | trial, control | |
| the next batch is asked for: obstacles, fork | trial, main | the end of the step that runs |
| its consumers ask for the place where the trial stands, by connections of their own | clone, main | the producer |
| `Branched`: the trial goes on | trial, main | the clone's word, `STANDS_S` at most |
| a front of its own; the fork server and the notebook take it in | clone, main | `GO_ON`, the clone's run |
| it goes on, with the changes that were asked for | clone, main | |

Where a fork is not safe, a trial that calls `tsnb.checkpoint` writes its state instead (`kept_state`), and the clone
begins with that in a new process: `KeptForClone`.

The trial stands still from the fork to the word, so that what it has not taken is kept for both. Whichever process is
killed in between, nothing is left: a clone whose parent, producer or notebook went ends itself, and a trial whose clone
died goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tsnb.errors import TsnbError
from tsnb.experiments.in_kernel.kept_state import SetAside, keeper_here
from tsnb.experiments.in_kernel.reporter import position, tell
from tsnb.experiments.live_values import values_here
from tsnb.experiments.news import BRANCH, FORGET_BRANCH, GO_ON, Branched, KeptForClone, NotBranched
from tsnb.kernels.cargo import lane
from tsnb.kernels.in_kernel.front import open_front, turn_output
from tsnb.kernels.in_kernel.hazards import await_adoption, fork_twice, obstacle, quiet, settle_openmp
from tsnb.kernels.in_kernel.output_channel import answer_requests
from tsnb.kernels.processes.process import clear_files
from tsnb.stream.this_process import this_process

__all__ = ["Cloning"]

STANDS_S = 10.0
"""How long a trial stands still for its clone, which needs some 20 ms: a producer may take its time to answer."""
LOOK_S = 0.05
"""How often a clone that waits for its notebook looks whether that is still there."""

_Handlers = Mapping[str, Callable[[dict[str, Any]], Any]]


class Branching(Protocol):
    """A trial as its kernel knows it, which becomes its clone's (`steps`)."""

    def branch(self, name: str, settings: dict[str, Any]) -> None:
        """Be the trial of another name, and another run."""


class Cloning:
    """Clones the trial of this process.

    Args:
        trial: The trial.
        name: Its name.
    """

    def __init__(self, trial: Branching, name: str) -> None:
        self._trial = trial
        self._name = name
        self._handlers: _Handlers = {}
        self._deciding = threading.Lock()
        self._wished: dict[str, Any] | None = None
        self._settings: dict[str, Any] = {}
        self._goes_on = threading.Event()
        self._burying: threading.Thread | None = None

    def answer(self, others: _Handlers = {}) -> None:  # noqa: B006 (it is not changed)
        """Answer the notebook's requests in the middle of the code, in a clone by its own front.

        Args:
            others: Requests that have nothing to do with clones.
        """
        own = {BRANCH: self._wish, FORGET_BRANCH: self._forget, GO_ON: self._go_on}
        self._handlers = {**self._handlers, **others, **own}
        answer_requests(self._handlers)

    # -- on the control channel's thread -----------------------------------------------------------------

    def _wish(self, wished: dict[str, Any]) -> None:
        values_here().checked(wished["changes"])
        consumers = _consumers()
        if not any(consumer.iterating for consumer in consumers) and not any(c.epoch >= 0 for c in consumers):
            raise TsnbError(
                "it has not taken a batch of a stream yet, and a trial is cloned between two batches of "
                "tsnb.attach()"
            )
        with self._deciding:
            if self._wished is not None:
                raise TsnbError("it is being cloned")
            if this_process.boundary is not None:
                raise TsnbError("it is freeing GPU memory. Clone it when that is done")
            self._wished = wished
            this_process.boundary = partial(self._at_boundary, wished)

    def _forget(self, _content: dict[str, Any]) -> bool:
        with self._deciding:
            in_time, self._wished = self._wished is not None, None
            if in_time:
                this_process.boundary = None
            return in_time or keeper_here().forget_branch()

    def _go_on(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._goes_on.set()

    # -- on the thread that takes batches, between two -----------------------------------------------------

    def _at_boundary(self, wished: dict[str, Any]) -> None:
        """Clone this process. Returns in both; never raises into the training."""
        with self._deciding:
            if self._wished is not wished:
                return
            self._wished = None
        try:
            with quiet():
                self._branch(wished)
        except Exception as error:  # noqa: BLE001 (the training goes on)
            tell(NotBranched(f"{type(error).__name__}: {error}"))

    def _branch(self, wished: dict[str, Any]) -> None:
        own_lane = lane.take(wished["lane"])
        try:
            if self._burying is not None:  # of the clone before
                self._burying.join()
            unsettled = settle_openmp()
            consumers = [consumer for consumer in _consumers() if not consumer.closed]
            why = (
                unsettled
                or obstacle(wished["server"])
                or next((c.unclonable for c in consumers if c.unclonable), "")
            )
            if why:
                self._write_instead(why)
                return
            drawn = random.getstate()
            with contextlib.ExitStack() as files:
                try:
                    files.enter_context(_files_of_its_own())
                except TsnbError as error:
                    self._write_instead(str(error).rstrip("."))
                    return
                place, (word, told) = position(), os.pipe()
                between = fork_twice()
            if not between:
                os.close(word)
                self._become(wished, own_lane, told, consumers)
                random.setstate(drawn)  # Python has drawn anew in this process, and its front has drawn since
                return
            os.close(told)
            answer = _answer(word)
            said = NotBranched(answer["why"]) if "why" in answer else Branched(answer["pid"], *place)
            self._burying = threading.Thread(target=_bury, args=(between, said), name="tsnb-clone")
            self._burying.start()
        finally:
            os.close(own_lane)

    def _write_instead(self, why: str) -> None:
        """Have the state written for a clone that begins in a new process, where the code keeps one."""
        keeper = keeper_here()
        if not keeper.keeps:
            way = (
                ""
                if keeper.trial is None
                else "; or keep its state with tsnb.checkpoint(net=net, optimizer=optimizer)"
            )
            tell(NotBranched(f"{why}{way}"))
            return

        def told(written: SetAside | str) -> None:
            if isinstance(written, str):
                tell(NotBranched(f"{why}; and {written}"))
            else:
                tell(KeptForClone(str(written.path), why, *written.place))

        keeper.branch_off(told)

    def _become(self, wished: dict[str, Any], own_lane: int, told: int, consumers: list[Any]) -> None:
        """Be the clone: stand where the trial stands, tell it so, be a kernel, and wait for the notebook's word."""
        name = wished["name"]
        try:
            turn_output(wished["log"])
            lane.open_here(os.dup(own_lane))
            self._deciding, self._goes_on, self._burying = threading.Lock(), threading.Event(), None
            from tsnb.stream.consumer.attaching import branch_all

            # the parent's number is not this one's, which comes with the notebook's word
            this_process.run = 0
            try:
                branch_all(consumers, name, self._name)
            except (TsnbError, TimeoutError) as error:
                _say(told, why=str(error).rstrip("."))
                os._exit(1)
            _say(told, pid=os.getpid())
            os.close(told)
            await_adoption(wished["server"])
            this_process.name = self._name = name
            open_front(wished["connection_file"], ("Trial", name), self.answer)
            while not self._goes_on.wait(LOOK_S):
                if lane.is_deserted():  # the notebook may have cleared them before they were made
                    clear_files(Path(wished["connection_file"]), Path(wished["log"]))
                    os._exit(1)
            self._trial.branch(name, self._settings)
            values_here().request(wished["changes"])
        except BaseException:  # noqa: BLE001 (a process that is half a clone must not train on)
            os.write(2, traceback.format_exc().encode())
            os._exit(1)


def _consumers() -> list[Any]:
    """Return this process's consumers; none where nothing of them was ever imported."""
    found = getattr(sys.modules.get("tsnb.stream.consumer"), "consumers", None)
    return [] if found is None else list(found())


def _files_of_its_own() -> contextlib.AbstractContextManager[None]:
    """Return a context in which a forked process has an offloaded model of its own."""
    found = getattr(sys.modules.get("tsnb.spilling.pages"), "copied", None)
    return contextlib.nullcontext() if found is None else found()


def _say(told: int, **word: Any) -> None:
    with contextlib.suppress(OSError):  # the trial has gone
        os.write(told, json.dumps(word).encode())


def _bury(between: int, said: Branched | NotBranched) -> None:
    """Wait for the process between trial and clone, which the trial need not do; then tell what came of it."""
    with contextlib.suppress(ChildProcessError):  # the code has waited for it
        os.waitpid(between, 0)
    tell(said)


def _answer(word: int) -> dict[str, Any]:
    """Return what the clone has said: `pid`, or `why` it is not there."""
    ready = select.poll()
    ready.register(word, select.POLLIN)
    try:
        if not ready.poll(STANDS_S * 1000):
            return {"why": f"the clone did not reach its position within {STANDS_S:.0f} s"}
        said = os.read(word, 1 << 16)
    finally:
        os.close(word)
    answer: dict[str, Any] = (
        json.loads(said) if said else {"why": "the new process died before it reached its position"}
    )
    return answer
