"""One trial: code that runs in a kernel of its own, from its start to its results.

| state | what it means | its variables |
|---|---|---|
| queued | waits to be started: for the trial that it comes after, the one whose name it takes, room in a cluster | |
| starting | its kernel starts, its variables travel | |
| running | its code runs | |
| paused | it takes no batches until `resume` | |
| done | the code ended | can be pulled |
| failed | the code raised; the traceback stands under it | can be pulled, for a look |
| interrupted | `interrupt`, the stop button of its cell or the panel's | can be pulled |
| stopped | `stop` ended it, or its stream's stop button | |
| pruned | its sweep stopped it early: others were better | |
| lost | its process died | gone |

A trial that has ended keeps its kernel, so that `trial["net"]` works, until `stop`, a new run of that name, the end of
the notebook, or until many have ended after it (`board.KEPT_PROCESSES`): then its variables are kept in its place. One
of a sweep keeps its variables only (`in_kernel.keeping`), and its process ends. What a trial does
happens on the hub's thread; its methods are called from others.

While a cell or a terminal waits for a trial's end, one line says how far it is (`waiting_line`).
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

from tsnb.errors import NotShippable, TrialFailed, TsnbError
from tsnb.experiments.clones import CloneWish
from tsnb.experiments.in_kernel.keeping import LEFT_OUT, TORN, torn_apart
from tsnb.experiments.news import raised
from tsnb.experiments.pausing import pause_trials
from tsnb.experiments.plan import RESULT
from tsnb.experiments.remaining import stream_of
from tsnb.experiments.replanning import replanned
from tsnb.experiments.trial_life import (
    ENDED,
    STOP_GRACE_S,
    TRIAL_STATES,
    RowListener,
    TrialLife,
)
from tsnb.kernels.cargo.shipping import fetch
from tsnb.kernels.output.outlets import CellOutlet, Outlet, TerminalOutlet, outlet_here
from tsnb.kernels.output.transcript import PrintedPart
from tsnb.kernels.output.waiting_line import wait_and_tell
from tsnb.masks import is_masked
from tsnb.native.endings import Bound
from tsnb.printable import block, one_line
from tsnb.records.writes import LiveChange, Parent, own_number
from tsnb.telemetry.eta import NO_ETA, Eta
from tsnb.telemetry.standing import awaits_of, eta_of
from tsnb.words import did_you_mean, first_numbers

__all__ = [
    "ENDED",
    "STOP_GRACE_S",
    "TRIAL_STATES",
    "NoSuchVariable",
    "RowListener",
    "Trial",
]


PULL_S = 300.0
"""How long a pulled variable may take to be packed."""

FOLLOWED = 2000
"""Characters of what came before that `follow` shows."""


class NoSuchVariable(TsnbError, KeyError):
    """A trial has no variable of that name."""

    __str__ = Exception.__str__  # KeyError would show the message quoted


class Trial(Bound):
    """Code that runs in a background kernel.

    Attributes:
        name: Its name.
        number: Which run of that name this is, from 1.
        metrics: The last value of each number it logged; `by_step`, `by_epoch` and `rows` have all of them.
        log_path: The file with its output, which outlives the notebook.
        failure_seen: Whether a caller has waited for it and was told that it failed.
        life: What happens to it, on the hub's thread. tsnb's own.

    Args:
        life: That.
    """

    _instead = 'Send what it computed: trial["net"], trial.result() or trial.metrics.'

    def __init__(self, life: TrialLife) -> None:
        self.life = life
        life.trial = self
        self.name = life.name
        self.number = life.number
        self.log_path = life.log_path
        self.metrics = life.metrics
        self.failure_seen = False
        self._fetched: list[str] = []

    @property
    def state(self) -> str:
        """One of `TRIAL_STATES`."""
        return self.life.shown_state

    @property
    def waits_for(self) -> str:
        """What it waits for, in words: "it needs 2.1 GiB, as its run 3 took, and 1.2 GiB are free ..."; else empty.

        Of one that is queued: memory, another trial, room in a cluster. Of one that runs: "waits for its turn" in its
        sweep, or "waits for ranks 2 and 3 of 4", where its stream is watched from here.
        """
        if self.state == "queued":
            return self.life.waits_for
        awaits = awaits_of(self.name, self.pid) if self.state == "running" else ""
        return f"waits for {awaits}" if awaits else ""

    @property
    def state_text(self) -> str:
        """Its state, and what it waits for: "queued: it starts when 'a' is done". The same words on every screen."""
        return f"{self.state}: {why}" if (why := self.waits_for) else self.state

    @property
    def params(self) -> dict[str, Any]:
        """The user's parameters; what looks like a secret is masked (docs/results.md)."""
        params: dict[str, Any] = self.life.params
        return params

    @property
    def options(self) -> dict[str, Any]:
        """How it is run: producer, batch_size, device, seed, threads and the like, those that were given."""
        return self.life.options

    @property
    def report(self) -> dict[str, Any]:
        """What its consumers did: stream, epochs, batches, samples, samples_per_s, seconds of computing and waiting.

        From the first step of a torch optimizer on, weights too: a hash of what it begins with.

        Once its code has ended, cpu_s too: CPU seconds of its process and all below it, from since_s on (seconds since
        1970), when it attached. Empty if it has no consumers.
        """
        return self.life.report

    @property
    def attached(self) -> bool:
        """Whether it has attached to a stream."""
        return self.life.attached

    @property
    def started_s(self) -> float:
        """Seconds since 1970 when it was asked for."""
        return self.life.started_s

    @property
    def successor(self) -> Trial | None:
        """The run that took its name, if one did."""
        after = self.life.successor
        found: Trial | None = None if after is None else after.trial
        return found

    @property
    def pid(self) -> int | None:
        """Its kernel's process, while there is one; on a cluster, its number on the machine that it is on."""
        return self.life.pid

    @property
    def restarts(self) -> int:
        """How often its process died and was started again (`restart`)."""
        return self.life.restarts

    @property
    def eta(self) -> Eta:
        """How long it still takes, with an interval, as the panel says it: estimated from its stream's readings.

        `known` is False where nothing is: it has ended, has just begun (without a plan, which knows before), or nobody
        watched its stream until now.
        """
        if self.state in ENDED:
            return NO_ETA
        return eta_of(self.name, filter(None, stream_of(self.life).split(", ")), self.pid)

    @property
    def duration_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return time.time() - self.started_s if self.life.took_s is None else self.life.took_s

    def listen(self, listener: RowListener) -> None:
        """Have `listener(trial, rows)` called for all rows that come from now on.

        It is called with [] when anything else changes: the trial's state, or that it has attached. That happens on
        the thread that all background kernels share, so it must not wait for anything.
        """
        self.life.listeners.append(listener)

    def wait(self, timeout_s: float | None = None) -> Trial:
        """Wait until the trial has ended; its output goes on meanwhile.

        Returns:
            This trial, so that `trials["cnn"].wait()["net"]` reads well. A stopped one returns as well.

        Raises:
            TrialFailed: Its cell raised, or its process died; the message carries the traceback.
            TimeoutError: It has not ended within `timeout_s` seconds. It goes on.
        """
        if not self.life.ended.wait(timeout_s):
            raise TimeoutError(f"trial {self.name!r} is still {self.state} after {timeout_s} s; it goes on")
        if self.state in {"failed", "lost"}:
            self.failure_seen = True
            raise TrialFailed(f"trial {self.name!r} {self.state}: {self.life.failure}")
        return self

    def stop(self) -> None:
        """End the trial and its kernel; one that has ended already gives its memory back.

        A running cell is interrupted first and has two seconds to put things in order.
        """
        self._call(self.life.end(STOP_GRACE_S))

    def pause(self, *, release: bool = False) -> None:
        """Have the trial take no more batches, from its next one on, until `resume`.

        The other trials of its streams go on and do not wait for it. It keeps its place in the epoch, its memory and
        its name. When it goes on it gets every batch that it has missed, once. Those that are kept no more, because
        others have gone on by more than the stream's window, are given again when these have ended their epoch, which
        a stream with `seed=` can do; on another stream its loop raises `ConsumerParked` then.

        Args:
            release: Give the GPU memory of what `tsnb.checkpoint` has (nets, optimizers, gradients) back while it is
                paused: it is copied to the host's memory, and back before the trial goes on, which waits for room if
                there is none. What else it has on the GPU stays: CUDA itself, what variables hold. Of a trial that is
                paused already it is given back now.

        Raises:
            TsnbError: It does not run, or takes batches of no stream on this machine now; or there is no GPU memory to
                give back: it trains on the CPU, or keeps nothing. Then it is not paused.
        """
        pause_trials([self.life], on=True, release=release)

    def resume(self) -> None:
        """Let a trial that was paused go on where it was.

        Raises:
            TsnbError: As `pause`.
        """
        pause_trials([self.life], on=False)

    def interrupt(self) -> None:
        """Interrupt the cell, as the stop button does for an ordinary one; its variables stay.

        A trial whose code has not begun is ended instead: there is nothing to interrupt yet.
        """
        if self.life.state == "running":
            self.life.ended_by = "interrupted"
            self.life.hub.loop.call_soon_threadsafe(self.life.interrupt)
        elif self.state not in ENDED:
            self.life.hub.post(self.life.end())

    @property
    def live(self) -> dict[str, Any]:
        """Its live values (`tsnb.live`) by name; one that was set is shown as it will be from its next batch on."""
        return dict(self.life.live)

    @property
    def changes(self) -> list[LiveChange]:
        """Every change of its live values, with the place in the stream from which it held."""
        return list(self.life.changes)

    def set(self, **values: Any) -> None:
        """Change live values of the training from its next batch on, all of them together.

        Returns once the training's process has taken them. Each change is kept with its place in the stream
        (`changes`, and in the project's records), so that `rerun(changes=True)` makes the same ones.

        Args:
            **values: By the name that the code gave them: `tsnb.live("lr", 0.1)` is set by `trial.set(lr=0.03)`.

        Raises:
            NoSuchLiveValue: The code has not made a live value of that name, or not yet; lists those it has made.
            ValueError: A value is out of bounds, or of another type. Then nothing is changed.
            TypeError: No value is given.
            TsnbError: The trial is not running, or another notebook has started it.
            TimeoutError: Its process does not answer: C code holds the interpreter.
        """
        if not values:
            there = ", ".join(f"{name}={value!r}" for name, value in self.live.items()) or "none"
            raise TypeError(
                f"set needs a value, such as trial.set(lr=0.03). Live values of {self.name!r}: {there}"
            )
        if self.life.state != "running":
            raise TsnbError(f"trial {self.name!r} is {self.state}: live values are set while it runs")
        reply = self._call(self.life.set({name: own_number(value) for name, value in values.items()}))
        if reply["status"] != "ok":
            raise raised(reply, self.name)
        self.life.live = {**self.life.live, **(reply.get("answer") or {})}

    @property
    def parent(self) -> Parent | None:
        """Which trial it is a clone of, and from which batch on; None: it began at the top of its code."""
        return self.life.parent

    def clone(self, name: str | None = None, *, at: int | None = None, **changes: Any) -> Trial:
        """Make two trials of this one at its next batch; return the other one, which goes on with all that this has.

        The clone is a fork of the process: net, optimizer, schedule, random numbers, the place in the epoch and every
        variable are there, without a line of code for it. With nothing changed both compute the same, bit for bit, on
        a stream without a seed too. It is a trial of its own, with its name, output and record (`parent` says of which
        trial and from which batch on), and goes on when this one ends. This one stands still for less than 0.1 s.

        Where a fork is not safe (a GPU, threads or processes of its own, `--detach`, a process that was spawned), a
        trial that calls `tsnb.checkpoint` is cloned by its state: it writes that at its next batch, a new process runs
        the code from its first line, `tsnb.checkpoint` puts the state back, and the clone goes on with that very batch.
        That needs a stream with a seed, and losses are the same bit for bit on a CPU. `at` takes a state of the past,
        which a trial that has ended has, too.

        Both write to the files that the code has open or names by the same path: give each its own, by `tsnb.live` say.

        Args:
            name: The clone's name; left out: this one's, with the changes or a number behind it.
            at: Begin with the state that `tsnb.checkpoint` has written as this epoch began, as the loop counts, from 0.
            **changes: New values of its live values (`tsnb.live`), from its first batch on: `clone(lr=0.03)`.

        Raises:
            NameInUse: A trial or consumer of that name is there.
            NoSuchLiveValue: The code has not made a live value of that name; lists those it has made.
            ValueError: A value is out of bounds, or of another type; or the name is not one.
            TsnbError: It cannot be cloned; says why and what to do: no fork is safe and it keeps no state, it runs on a
                cluster, takes batches of no stream, or memory is short; or there is no state of that epoch: lists those
                that there are.
            TimeoutError: It has not asked for a batch for a minute.
        """
        if at is not None and (isinstance(at, bool) or not isinstance(at, int) or at < 0):
            raise ValueError(f"clone(at={at!r}): give an epoch, a whole number from 0, as its loop counts.")
        why = self._why_not_cloned_here if at is not None else self.why_not_cloned
        if why:
            raise TsnbError(f"trial {self.name!r} {why}")
        plan = self.life.plan
        wish = CloneWish(self, name, {word: own_number(value) for word, value in changes.items()}, at=at)
        assert self.life.launch is not None
        cloned: Trial = self.life.launch(plan, self._outlet_of_clones, wish)
        return cloned

    @property
    def why_not_cloned(self) -> str:
        """Why it cannot be cloned, as far as that is known before its next batch; empty: it can."""
        if self.life.state != "running":
            why = f"is {self.state}: a trial is cloned while it runs"
            other = self.life.instead_of_cloning() if self.life.state in ENDED else ""
            return f"{why}. {other}" if other else why
        return self._why_not_cloned_here

    @property
    def _why_not_cloned_here(self) -> str:
        if self.life.launch is None:
            return "was started elsewhere: clone it there, while that notebook or script runs"
        return ""

    @property
    def why_not_released(self) -> str:
        """Why `pause(release=True)` cannot give GPU memory back now, as far as is known here; empty: it can."""
        if self.life.state != "running":
            return f"is {self.state}: a trial is paused while it runs"
        if self.life.launch is None:
            return "was started elsewhere: release its memory there, while that notebook or script runs"
        return self.life.why_not_released

    @property
    def why_not_extended(self) -> str:
        """Why it cannot be extended now, and what to do; empty: it can."""
        return self.life.why_not_extended()

    @property
    def _outlet_of_clones(self) -> Outlet | None:
        """Where a clone's output goes: under the cell that asks; asked from elsewhere, where this one's does."""
        asked_by_a_cell = threading.current_thread() is threading.main_thread()
        return None if asked_by_a_cell and self._is_shown_here else self.life.outlet

    @property
    def _is_shown_here(self) -> bool:
        """Whether its output goes to a cell or terminal of this process, and not where a caller wants it."""
        beneath = getattr(self.life.outlet, "beneath", self.life.outlet)  # a sweep marks its trials' lines
        return isinstance(beneath, (CellOutlet, TerminalOutlet))

    def logs(self) -> str:
        """Return what it printed, tracebacks included (the last million characters)."""
        return self.life.printed.text

    def log_since(self, position: int, most: int) -> PrintedPart:
        """Return what was printed since a position of the log, `most` characters at most (`Transcript.since`)."""
        return self.life.printed.since(position, most)

    def follow(self) -> None:
        """Show its output under the running cell from now on: the end of what came until now, then what comes.

        A page that is loaded again does not update the cells that it had started before.

        Raises:
            TsnbError: It is a detached trial of another notebook, which prints to its log.
        """
        if self.life.launch is None:
            raise TsnbError(
                f"trial {self.name!r} was started elsewhere, and prints to its log: %trials logs {self.name}"
            )
        text = self.logs()
        start = max(0, text.rfind("\n", 0, len(text) - FOLLOWED)) if len(text) > FOLLOWED else 0
        before = ("..." if start else "") + text[start:]
        self._call(
            self.life.move(outlet_here(self.name), before or f"trial {self.name!r} has printed nothing yet\n")
        )

    def pull(self, *variables: str) -> Any:
        """Return copies of some of the cell's variables; waits for the cell's end first, and says how far it is.

        An interrupt ends the waiting; the trial goes on. Fetch variables that belong together in one call:
        `net, optimizer = trial["net", "optimizer"]`. The optimizer then trains that very net. Fetched one by one it
        would hold copies, which a warning says.

        Args:
            *variables: Their names. One gives that variable; several give a tuple.

        Raises:
            NoSuchVariable: It has no variable of that name.
            NotShippable: It cannot travel; says why.
            TsnbError: Its kernel has gone, or ends with its code (a detached trial's).
        """
        if self.state not in ENDED:
            if self.life.plan.options.detach:
                raise TsnbError(
                    f"trial {self.name!r} is detached: its variables end with it. Have it keep what you want: "
                    "tsnb.log_artifact(path)"
                )
            self.life.hub.require_other_thread()
            wait_and_tell(self.life.ended, self.name, lambda: self._waiting_for(variables))
        if self.pid is None and not self.life.keeps(variables):
            first = self.life.failure.partition("\n")[0]
            raise TsnbError(
                f"the kernel of trial {self.name!r} has ended ({self.state}{first and f': {first}'}), its variables "
                "with it"
            )
        before, self._fetched = self._fetched, [*dict.fromkeys([*self._fetched, *variables])]
        reply, cargo = self._call(self.life.deliver(variables, before))
        if cargo is not None:
            there = fetch(cargo, apart=True)
            found = tuple(self._among(there, variable) for variable in variables)
            wanted = dict(zip(variables, found, strict=True))
            self._warn_of_copies(there[TORN] if TORN in there else torn_apart(wanted, there, before))
            return found[0] if len(found) == 1 else found
        kind = {"KeyError": NoSuchVariable, "NotShippable": NotShippable}.get(reply["ename"], TsnbError)
        said = block(reply["evalue"])
        if kind is NoSuchVariable:
            failed = f" It failed: {self.life.failure.partition(chr(10))[0]}" if self.life.failure else ""
            said = said.strip("\"'") + failed
        raise kind(said)

    def __getitem__(self, variables: str | tuple[str, ...]) -> Any:
        return self.pull(*((variables,) if isinstance(variables, str) else variables))

    def _warn_of_copies(self, torn: Mapping[str, str]) -> None:
        for variable, other in torn.items():
            warnings.warn(
                f"{variable!r} of trial {self.name!r} shares parameters with {other!r}, which you fetched before in "
                f"another call. What you have now are copies: training one does not change the other. Fetch both at "
                f"once: {other}, {variable} = trial[{other!r}, {variable!r}]",
                stacklevel=4,
            )

    def _among(self, kept: dict[str, Any], variable: str) -> Any:
        """Return one of the variables that have come.

        Raises:
            NotShippable: It could not travel when the trial's process ended.
            NoSuchVariable: None of them has that name.
        """
        left_out = kept.get(LEFT_OUT, {})
        if variable in kept:
            return kept[variable]
        if variable in left_out:
            raise NotShippable(f"{left_out[variable]}; the process of trial {self.name!r} has ended")
        hint = did_you_mean(variable, kept)
        there = ", ".join(name for name in kept if not name.startswith("_")) or "nothing"
        raise NoSuchVariable(f"trial {self.name!r} has no variable {variable!r}; kept of it: {there}.{hint}")

    def _waiting_for(self, variables: tuple[str, ...]) -> str:
        """Say how far it is, to code that waits for a variable of it."""
        numbers = "".join(f", {number}" for number in first_numbers(self.metrics))
        wanted = ", ".join(map(repr, variables))
        return f"{self.name}[{wanted}]: trial {self.name!r} {self.state}, {self.duration_s:.0f} s{numbers}"

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait until the trial has ended, and return what its function returned (a cell: its variable `result`).

        Raises:
            TrialFailed: It raised, or its process died.
            TimeoutError: It has not ended within `timeout_s` seconds.
            TsnbError: It was stopped, and has no result.
        """
        return self.wait(timeout_s).pull(RESULT)

    def extend(self, epochs: int) -> Trial:
        """Have a trial that has ended go on for some more epochs; return it.

        It goes on in a new process from the last state that it has kept (`tsnb.checkpoint`), and its loop over
        `tsnb.epochs` becomes longer. One that was killed, stopped or pruned goes on where that state was taken, to the
        end of its loop and beyond. It keeps its name, and its record goes on. Its code runs from its first line: what
        it draws or loads before `tsnb.checkpoint` does not matter. Variables of the run before are gone once it begins.

        Args:
            epochs: How many more.

        Raises:
            ValueError: It is not a whole number, 1 or more.
            TsnbError: It has not ended, or has failed; it has kept no state, or does not ask `tsnb.epochs`; its stream
                is not served any more. Says what to do.
        """
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
            raise ValueError(f"extend(epochs={epochs!r}): give a whole number of epochs, 1 or more.")
        self._call(self.life.extend(epochs))
        self.failure_seen = False
        return self

    def rerun(self, *, changes: bool = False, **new: Any) -> Trial:
        """Run the same code again, with the variables that it took along then; return the new trial.

        Args:
            changes: Whether the changes of live values (`set`) are made again, after as many samples as here.
            **new: Parameters and options that are to differ: `rerun(lr=0.01, seed=2)`. `name` gives
                the new trial a name of its own; else it takes this one's, whose run is stopped and stays in the
                project's records. A name that was made from the parameters is made again.

        Raises:
            TypeError: The parameter or option does not exist.
            TsnbError: Its code and variables are gone, or lie in another notebook; names the parameters whose values
                were masked in its record.
        """
        if self.life.launch is None:
            not_kept = ", ".join(name for name, value in self.params.items() if is_masked(value))
            lacks = (
                f". Its record does not have the value of {not_kept}: give it again there" if not_kept else ""
            )
            raise TsnbError(
                f"trial {self.name!r} was started elsewhere, and its code and variables are there: run its cell again"
                f"{lacks}"
            )
        planned = self._planned() if changes else []
        again = replanned(self.life.plan, new)
        again = replace(again, arrival={**again.arrival, "planned": planned})
        outlet = outlet_here(again.name) if self._is_shown_here else self.life.outlet
        started: Trial = self.life.launch(again, outlet)
        return started

    def _planned(self) -> list[tuple[Any, ...]]:
        """Return the changes of its live values, for another run to make again.

        Raises:
            TsnbError: One was made where it read no stream.
        """
        nowhere = [change.name for change in self.changes if change.epoch is None]
        if nowhere:
            raise TsnbError(
                f"trial {self.name!r} read no stream when {nowhere[0]} was set, so the place of that change is not "
                "known: run it again without changes=True, and set it by hand"
            )
        return [tuple(change) for change in self.changes]

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.life.hub.call(work, PULL_S)

    def __repr__(self) -> str:
        numbers = "".join(f", {number}" for number in first_numbers(self.metrics, "="))
        return one_line(f"<Trial {self.name!r} {self.state}, {self.duration_s:.1f} s{numbers}>")
