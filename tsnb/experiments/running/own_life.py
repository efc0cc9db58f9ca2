"""The life of a trial that this process has started: its turn comes, its kernel runs, perhaps more than once.

| step | it waits for |
|---|---|
| the run of the same name before it | that one's end: it is asked to stop, and killed after a grace |
| the trial that it comes after | that one to be done; if it ends otherwise, this one does not run |
| memory, where it said how much it needs, or was seen to take it | those that waited before, and so much to be free |
| an attempt | its kernel's end; with `restart` another one follows when the process died |

An attempt after the first goes on from the last state that the code has kept (`tsnb.checkpoint`), if there is one. So
does a trial that was done and is extended: the same trial and record, in a new kernel.

On the hub's thread, all of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tsnb.errors import TsnbError
from tsnb.experiments.bookkeeping import written
from tsnb.experiments.ends import stream_for, why_no_stream
from tsnb.experiments.live_values import NoSuchLiveValue
from tsnb.experiments.memory_queue import ExpectedMemory, MemoryQueue, expected_memory, too_large
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.running.attempt import Attempt, Delivery
from tsnb.experiments.running.branches import Branch, KeptStart
from tsnb.experiments.running.engine import engine_of
from tsnb.experiments.running.starts import FromTheTop
from tsnb.experiments.running.states import RESTARTS_AT_MOST, Outcome
from tsnb.experiments.running.trial_life import NOT_BEGUN, Launch, TrialLife
from tsnb.kernels.beside import starting
from tsnb.kernels.hub import Hub
from tsnb.kernels.output.outlets import Outlet
from tsnb.kernels.processes.death import KernelDied
from tsnb.options import runs_here
from tsnb.records.run import Run
from tsnb.records.writes import LiveChange
from tsnb.text.words import did_you_mean, is_now, size_text

__all__ = ["OwnLife"]

_memory = MemoryQueue()
"""Where the trials of this process wait for memory."""


def _epochs(starts: Sequence[int]) -> str:
    """Name epochs, from 0, as people count them, from 1."""
    return f"{'epoch' if len(starts) == 1 else 'epochs'} {', '.join(str(epoch + 1) for epoch in starts)}"


class OwnLife(TrialLife):
    """The life of a trial that this process has started.

    Args:
        plan: What is run.
        hub: The hub on whose thread it is lived.
        outlet: Where its output goes.
        run: Its place in the project's records.
        launch: Starts a trial from its plan.
        after: The trial that has to be done first.
        start: Where its code begins; left out: at its first line.
    """

    def __init__(
        self,
        plan: TrialPlan,
        hub: Hub,
        outlet: Outlet,
        run: Run,
        launch: Launch,
        after: TrialLife | None = None,
        start: FromTheTop | None = None,
    ) -> None:
        start = start or FromTheTop()
        super().__init__(plan, hub, outlet, run, launch, start.state)
        self._after = after
        self._start = start
        self._is_new = True  # its code has not run yet
        start.take_over(self)
        self._attempt = start.attempt(self, run)
        self._unwanted = asyncio.Event()
        self._resume = dict(start.resume)
        self._stays_paused = False  # after a restart
        self._to_come = [LiveChange(*change) for change in plan.arrival.get("planned", ())]

    @property
    def pid(self) -> int | None:
        """Its process, while there is one."""
        attempt = self._attempt
        return attempt.child.pid if attempt is not None and attempt.child.alive else None

    async def _go(self) -> Outcome:
        """Wait for its turn, and run."""
        if self._after is not None:
            refusal = await self._turn(self._after)
            if refusal is not None:
                return refusal
        while not self._unwanted.is_set():
            try:
                return await self._in_memory()
            except KernelDied as error:
                if self._unwanted.is_set() or not self._may_restart():
                    raise
                await self._take_last_words()
                self._stays_paused = self.states.paused
                self.say(
                    f"trial {self.name!r} crashed: {str(error).partition(chr(10))[0]}; "
                    f"{self._going_on()} ({self.states.in_a_row} of {RESTARTS_AT_MOST})"
                    f"{'. It stays paused' if self._stays_paused else ''}\n",
                    "stderr",
                )
        return Outcome("stopped")

    def _may_restart(self) -> bool:
        """Tell whether it is started again after a death, and count that."""
        if not self.plan.options.restart or self.hub.closing:
            return False
        kept = self._run.kept.newest
        if kept is None and not self._start.is_repeatable:
            return False  # from the top it would be another trial
        return self.states.may_restart((0, 0) if kept is None else (kept.epoch, kept.batch or 0))

    def _going_on(self) -> str:
        """Settle where the next attempt begins, and say so."""
        kept = self._run.kept.newest
        if kept is None:
            return "it starts again from the top, because it has no checkpoint (tsnb.checkpoint)"
        self._resume = {"rows": 0, **self._resume, "exact": True}
        return f"it resumes from its checkpoint: {kept}"

    async def extend(self, epochs: int) -> None:
        """Have it go on, once it has ended, for some more epochs."""
        refusal = self.why_not_extended()
        if refusal:
            raise TsnbError(f"Trial {self.name!r} {refusal}")
        kept = self._run.kept.newest
        assert kept is not None
        assert self.took_s is not None
        await self.leave()
        self._unwanted, self._over = asyncio.Event(), asyncio.Event()
        self._after = None
        self._resume = (
            {"until": kept.epoch + epochs, "rows": len(self.metrics.rows)}
            if self.state == "done"
            else {"more": epochs, "rows": 0, "exact": True}
        )
        self.failure = ""
        self.started_s, self.took_s = time.time() - self.took_s, None
        await written(self._run.reopen)
        self.ended.clear()
        self.states.extend()
        self.become("queued")
        count = "1 epoch" if epochs == 1 else f"{epochs} epochs"
        self.say(f"trial {self.name!r} resumes from {kept}, for {count} more than planned\n")
        self.begin()

    def why_not_extended(self) -> str:
        """Return why it cannot be extended, and what to do; "" if it can. From any thread."""
        where = f"tsnb.trials[{self.name!r}]"
        if not self.states.has_ended:
            return f"{is_now(self.states.shown)} and can be extended once it is done: {where}.wait().extend(epochs=N)"
        if self.successor is not None:
            number = self.successor.number
            return (
                f"has a later run {number}, which took over its name. Extend that run: "
                f"{where}.extend(epochs=N)"
            )
        if self.state == "failed":
            return (
                f"{is_now(self.state)} and would fail again at the same point. To run it from the top: "
                f"{where}.rerun()"
            )
        if not runs_here(self.plan.options.engine):
            return (
                "ran on a cluster, where trials have no checkpoints. Use rerun() to run it again from the "
                "top with more epochs"
            )
        kept = self._run.kept.newest
        if kept is None:
            return (
                "has no checkpoint to resume from. Put tsnb.checkpoint(net=net, optimizer=optimizer) before "
                "its loop over tsnb.epochs(n), and run it again"
            )
        if not kept.counted:
            return (
                "counts its epochs itself, so tsnb cannot add any. Write `for epoch in tsnb.epochs(10):`, "
                "and run it again"
            )
        return why_no_stream(self.report, "then extend the trial")

    async def _turn(self, after: TrialLife) -> Outcome | None:
        """Wait for the trial before this one; return how this one ends if it is not to run."""
        why = f"it starts when {self.plan.options.after!r} is done"
        self.say(f"trial {self.name!r} queued: {why}\n")
        self.wait_for(why)
        over = asyncio.ensure_future(after.over())
        unwanted = asyncio.ensure_future(self._unwanted.wait())
        both: set[asyncio.Future[Any]] = {over, unwanted}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for waiting in both:
            waiting.cancel()
        if self._unwanted.is_set():
            return Outcome("stopped")
        state = over.result().state
        if state == "done":
            return None
        said = f"it was not run, because it waited for {self.plan.options.after!r}, which {is_now(state)}"
        return Outcome("failed" if state in {"failed", "crashed"} else "stopped", said)

    async def _in_memory(self) -> Outcome:
        """Run once, as soon as the memory that it needs is free."""
        needs = await self._needed()
        if needs is None:
            return await self._once()
        claim = _memory.join(needs.needs_bytes, lambda: self.pid, needs.because)
        try:
            if why := await _memory.ask(claim):
                self.become("queued")
                self.say(
                    f"trial {self.name!r} queued: {why}; it starts when enough memory is free. To free the "
                    "memory of ended trials: %trials clear. To start it anyway: "
                    f"tsnb.trials[{self.name!r}].rerun(needs=0)\n"
                )
                self.wait_for(why)
                let_in = asyncio.ensure_future(_memory.wait(claim, self.wait_for))
                unwanted = asyncio.ensure_future(self._unwanted.wait())
                await asyncio.wait({let_in, unwanted}, return_when=asyncio.FIRST_COMPLETED)
                for waiting in (let_in, unwanted):
                    waiting.cancel()
            return Outcome("stopped") if self._unwanted.is_set() else await self._once()
        finally:
            _memory.leave(claim)

    async def _needed(self) -> ExpectedMemory | None:
        """Return what it said that it needs, else what it was seen to take; None: it starts whatever is free.

        Trials that begin together wait for each other, so one of them that waited here would hold up the others.
        """
        options = self.plan.options
        if options.needs is not None:
            return ExpectedMemory(options.needs, "") if options.needs else None
        if options.sweep or options.gate is not None or not runs_here(options.engine):
            return None
        found = await asyncio.to_thread(expected_memory, self._run)
        if found is not None and too_large(found.needs_bytes):
            self.say(
                f"trial {self.name!r} may need {size_text(found.needs_bytes)}, {found.because}. This machine "
                "has less, so it starts without waiting\n",
                "stderr",
            )
            return None
        return found

    async def _once(self) -> Outcome:
        """Run through the code once: the first time from where it begins, after that in a new kernel."""
        if self._is_new:
            self._is_new = False
            await self._start.note(self._run, self.changes)
            if self._attempt is not None:
                return await self._run_in(self._attempt)
        with starting(self.hub.directory, await self._beside(), self.name) as mark:
            return await self._in_kernel(mark)

    async def _beside(self) -> str:
        """Return the stream whose other starting trials it waits for before its first batch; empty: for none.

        A sweep and a plan see to that themselves, and a trial that goes on has a place of its own in the stream.
        """
        options = self.plan.options
        if options.sweep or options.in_turn or options.gate is not None or self._resume:
            return ""
        return await asyncio.to_thread(stream_for, options.stream) if runs_here(options.engine) else ""

    async def _in_kernel(self, mark: Path | None) -> Outcome:
        """Run through the code once.

        Args:
            mark: Says to those that start together with it that it has not asked for a batch yet.
        """
        self.waits_for = ""
        self.become("starting")
        await written(self._run.state, "starting")
        self.live, self.states.paused, self.why_not_released = {}, False, NOT_BEGUN
        settings: dict[str, Any] = {"run": self._run.as_settings(), "started_s": self.started_s}
        if mark is not None:
            settings["starting"] = str(mark)
        self._to_come, settings["asked"] = self._planned, [tuple(change) for change in self._asked]
        self._asked = []
        settings["planned"] = [tuple(change) for change in self._to_come]
        settings["paused"], self._stays_paused = self._stays_paused, False
        if self._resume:
            settings["resume"] = self._resume
        elif self.changes:  # from the top: they are made again where they were made, and noted again
            self.changes = []
            await written(self._run.forget_changes)
        self._attempt = engine_of(self.plan).attempt(self.hub, self.plan, settings, self, self._run)
        outcome = await self._run_in(self._attempt, self._seeded())
        if self.plan.options.sweep and not self._unwanted.is_set():
            await self._attempt.release()
        return outcome

    async def _run_in(self, attempt: Attempt, seeded: str = "") -> Outcome:
        """Run through the code in a kernel, unless nobody wants it any more."""

        def begun() -> None:
            self.become("running")
            own = f"{seeded}{self._start.of_whom()}{self._beyond()}"
            self.say(f"trial {self.name!r} running ({attempt.where}){own}{self.hint}\n")

        if self._unwanted.is_set():
            await attempt.leave()
            return Outcome("stopped")
        return await attempt.run(begun)

    def _seeded(self) -> str:
        """Say which seed it has of the notebook's."""
        own, seed = self.plan.options.seed, self.plan.seed
        return "" if own is not None or seed is None else f", seeded with {seed} like this notebook"

    @property
    def _planned(self) -> list[LiveChange]:
        """The changes of live values that the next attempt makes: those made already, and those that were to come.

        Among the latter are those that somebody asked for just before the death, which never held.
        """
        samples = max((change.samples for change in self.changes), default=-1)
        to_come = (change for change in self._to_come if change.samples > samples)
        return sorted([*self.changes, *to_come, *self._asked], key=lambda change: change.samples)

    def _ran(self, so: str = "") -> Attempt:
        if self._attempt is None:
            raise TsnbError(f"it has never run{so}")
        return self._attempt

    async def branch(self, name: str, changes: dict[str, Any]) -> Branch | KeptStart:
        """Have its kernel cloned at its next batch, or its state written there where it cannot be forked.

        Args:
            name: The clone's name.
            changes: New values of its live values.

        Raises:
            TsnbError: It cannot be cloned; says why. Others as `Branches.branch`.
        """
        attempt = self._ran()
        return await attempt.branches.branch(attempt.child, name, changes)

    def instead_of_cloning(self) -> str:
        """Return which checkpoints a clone can begin with, or how to have some, and what to do without."""
        where = f"tsnb.trials[{self.name!r}]"
        at = sorted(
            epoch for epoch, kept in self._run.kept.starts.items() if epoch and kept.samples is not None
        )
        if not at:
            return (
                f"To run its code from the top: {where}.rerun(name=...). It has no checkpoint from the start "
                "of an epoch. To write some, put tsnb.checkpoint(net=net, optimizer=optimizer) before its "
                "loop over tsnb.epochs(n)"
            )
        return (
            f"To start from a checkpoint: {where}.clone(at={at[0] + 1}). It has checkpoints from the start of "
            f"{_epochs(at)}"
        )

    def kept_start(self, epoch: int, changes: Mapping[str, Any]) -> KeptStart:
        """Return the state that it has kept from an epoch's start, for a clone. From any thread.

        Args:
            epoch: As its loop counts, from 0.
            changes: New values of its live values, of which the names are looked at.

        Raises:
            NoSuchLiveValue: It reads none of that name.
            TsnbError: It has kept no such state; names those that it has.
        """
        where = f"tsnb.trials[{self.name!r}]"
        for word in changes:
            if word not in self.live:
                there = ", ".join(f"{name}={value!r}" for name, value in self.live.items()) or "none"
                raise NoSuchLiveValue(
                    f"Trial {self.name!r} reads no live hyperparameter "
                    f"{word!r}.{did_you_mean(word, self.live)} Live hyperparameters: {there}"
                )
        starts = self._run.kept.starts
        if epoch in starts and starts[epoch].samples is not None:
            return KeptStart(starts[epoch].path, (None, None, starts[epoch].samples or 0), copied=True)
        if not epoch:
            raise TsnbError(
                f"Trial {self.name!r} has no checkpoint of epoch 1, which is the top of its code. To run "
                f"that again: {where}.rerun(name=...)"
            )
        if not starts:
            raise TsnbError(
                f"Trial {self.name!r} has no checkpoint from the start of an epoch. Put "
                "tsnb.checkpoint(net=net, optimizer=optimizer) before its loop over tsnb.epochs(n), and run "
                "it again"
            )
        raise TsnbError(
            f"Trial {self.name!r} has no checkpoint from the start of epoch {epoch + 1}, only of "
            f"{_epochs(sorted(starts))}. To keep more: tsnb.checkpoint(..., history=N)"
        )

    def _beyond(self) -> str:
        """Say what becomes of it when this process ends, where that is not what one expects."""
        return (
            f"; it continues without this notebook, log: {self._run.log_path}"
            if self.plan.options.detach
            else ""
        )

    def interrupt(self) -> None:
        """Interrupt its code."""
        if self._attempt is not None:
            self._attempt.child.interrupt()

    async def leave(self) -> None:
        """End its process, or its waiting for its turn."""
        self._unwanted.set()
        if self._attempt is not None:
            await self._attempt.leave()

    async def release(self) -> None:
        """Keep the variables here, and end the process."""
        if self._attempt is not None:
            await self._attempt.release(everything=True)

    def keeps(self, variables: Sequence[str]) -> bool:
        """Return whether variables are still available although the process has ended."""
        return self._attempt is not None and self._attempt.keeps(variables)

    async def set(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Have live values changed."""
        return await self._ran().set(changes)

    async def release_memory(self, *, wanted: bool = True) -> dict[str, Any]:
        """Have its GPU memory given back when it is paused."""
        return await self._ran().release_memory(wanted=wanted)

    async def deliver(self, variables: Sequence[str], before: Sequence[str]) -> Delivery:
        """Have some of its variables sent."""
        return await self._ran(", so it has no variables").deliver(variables, before)
