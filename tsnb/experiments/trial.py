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
| crashed | its process died | gone |

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
from tsnb.experiments.ends import why_no_stream
from tsnb.experiments.in_kernel.keeping import LEFT_OUT, TORN, torn_apart
from tsnb.experiments.news import raised
from tsnb.experiments.pausing import pause_trials
from tsnb.experiments.plan import RESULT
from tsnb.experiments.remaining import awaits_of, eta_of, stream_of
from tsnb.experiments.replanning import replanned
from tsnb.experiments.running.starts import CloneWish
from tsnb.experiments.running.states import ENDED, TRIAL_STATES
from tsnb.experiments.running.trial_life import STOP_GRACE_S, RowListener, TrialLife
from tsnb.kernels.cargo.shipping import fetch
from tsnb.kernels.output.marimo_cells import MarimoOutlet
from tsnb.kernels.output.outlets import CellOutlet, Outlet, TerminalOutlet, outlet_here
from tsnb.kernels.output.transcript import PrintedPart
from tsnb.kernels.output.waiting_line import wait_and_tell
from tsnb.lazy import Hinting
from tsnb.native.endings import Bound
from tsnb.option_kinds import EPOCH, EPOCH_COUNT
from tsnb.records.writes import LiveChange, Parent, own_number
from tsnb.telemetry.forecast.eta import NO_ETA, Eta
from tsnb.text.masks import is_masked
from tsnb.text.printable import block, one_line
from tsnb.text.words import did_you_mean, first_numbers, is_now

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


class Trial(Bound, Hinting):
    """Hold one run of your code in a background kernel.

    Made by `tsnb.run`, `tsnb.sweep` and `%%trial`.

    Example:
        >>> trial = tsnb.run(train, lr=0.1)
        >>> trial.wait().metrics["loss"]

    Attributes:
        name: Name of the trial.
        number: Number of this run of that name, from 1.
        metrics: Last value of each logged number. `by_step`, `by_epoch` and `rows` have all of them.
        log_path: Path of the file with its output, which outlives the notebook.
        failure_seen: Whether a caller waited for the trial and received its failure.
        life: Internal state of tsnb, on the hub's thread.

    Args:
        life: Internal state of tsnb.
    """

    _instead = 'Pass its result instead: trial["net"], trial.result() or trial.metrics.'
    _meant = dict.fromkeys(("kill", "cancel", "terminate"), "stop()") | {
        "best": "metrics, or sweep.best(METRIC) for the best trial of a sweep",
        "status": "state",
        "join": "wait()",
        "output": "logs()",
    }

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
        """State of the trial, one of `TRIAL_STATES`."""
        return self.life.states.shown

    @property
    def waits_for(self) -> str:
        """What it waits for, in words; else empty.

        While queued: memory ("it needs 2.1 GiB, as its run 3 took, and 1.2 GiB are free ..."), another trial, or
        room in a cluster. While running, where its stream is watched from here: "waits for its turn" in its sweep,
        or "waits for ranks 2 and 3 of 4".
        """
        if self.state == "queued":
            return self.life.waits_for
        awaits = awaits_of(self.name, self.pid) if self.state == "running" else ""
        return f"waits for {awaits}" if awaits else ""

    @property
    def state_text(self) -> str:
        """State with what it waits for: "queued: it starts when 'a' is done"."""
        return f"{self.state}: {why}" if (why := self.waits_for) else self.state

    @property
    def params(self) -> dict[str, Any]:
        """Parameters that you passed. Likely secrets are masked."""
        params: dict[str, Any] = self.life.params
        return params

    @property
    def options(self) -> dict[str, Any]:
        """Options that you passed, such as stream, batch_size, device or seed."""
        return self.life.options

    @property
    def report(self) -> dict[str, Any]:
        """What its consumers did: batches, samples, computing and waiting.

        Keys: stream, epochs, batches, samples, samples_per_s (of the time attached and not paused), and seconds
        attached, paused, computing and waiting. From the first step of a torch optimizer on, also weights, a hash of
        the first weights. Once its code has ended, also cpu_s: CPU seconds of its process and all below it from since_s
        on (seconds since 1970), when it attached. Empty without consumers.
        """
        return self.life.report

    @property
    def attached(self) -> bool:
        """Whether it has attached to a stream."""
        return self.life.attached

    @property
    def started_s(self) -> float:
        """Time when it was requested, in seconds since 1970."""
        return self.life.started_s

    @property
    def successor(self) -> Trial | None:
        """Run that took its name, or None."""
        after = self.life.successor
        found: Trial | None = None if after is None else after.trial
        return found

    @property
    def pid(self) -> int | None:
        """Process of its kernel while there is one.

        On a cluster, its number on the machine where it runs.
        """
        return self.life.pid

    @property
    def restarts(self) -> int:
        """Number of times its process died and was started again (`restart`)."""
        return self.life.states.restarts

    @property
    def eta(self) -> Eta:
        """Predicted time that is left, with an interval, as in the panel.

        Estimated from the readings of its stream. `known` is False where the trial has ended or has just begun
        without a plan, or its stream was not watched until now.
        """
        if self.state in ENDED:
            return NO_ETA
        return eta_of(self.name, filter(None, stream_of(self.life).split(", ")), self.pid)

    @property
    def duration_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return time.time() - self.started_s if self.life.took_s is None else self.life.took_s

    def listen(self, listener: RowListener) -> None:
        """Call a function for all rows that the trial logs from now on.

        The call has an empty list when its state changes or it attaches. It comes on the thread that all background
        kernels share, so the function must not wait.

        Example:
            >>> trial.listen(lambda trial, rows: None)

        Args:
            listener: Function of the trial and the new rows.
        """
        self.life.listeners.append(listener)

    def wait(self, timeout_s: float | None = None) -> Trial:
        """Wait until the trial has ended. Its output continues meanwhile.

        Example:
            >>> trial.wait(timeout_s=60).metrics["loss"]

        Args:
            timeout_s: Seconds to wait. Defaults to None, without a limit.

        Returns:
            This trial, also if it was stopped.

        Raises:
            TrialFailed: If its cell raised or its process died. The message has the traceback.
            TimeoutError: If it has not ended within `timeout_s` seconds. It continues.
        """
        if not self.life.ended.wait(timeout_s):
            raise TimeoutError(
                f"Trial {self.name!r} is still {self.state} after {timeout_s} s, and continues"
            )
        if self.state in {"failed", "crashed"}:
            self.failure_seen = True
            raise TrialFailed(f"trial {self.name!r} {self.state}: {self.life.failure}")
        return self

    def stop(self) -> None:
        """End the trial and its kernel.

        A running cell is interrupted first and has two seconds to clean up. A trial that has ended frees its
        memory.

        Example:
            >>> trial = tsnb.run(train, lr=0.1, epochs=100)
            >>> trial.stop()
        """
        self.stop_by("by trial.stop()")

    def stop_by(self, by: str) -> None:
        """Stop it, and have every screen say who did.

        Args:
            by: Who or what stops it, in words: "in the panel".

        Raises:
            TsnbError: If it was started by another notebook in another container or on another machine.
        """
        self.life.require_here()
        self._call(self.life.end(STOP_GRACE_S, by=by))

    def pause(self, *, release: bool = False) -> None:
        """Pause the trial at its next batch, until `resume`.

        The other trials continue and do not wait for it. It keeps its place in the epoch, its memory and its name.
        Later it gets every batch that it has missed, once. Batches beyond the stream's window are given again when
        the others have ended their epoch. That needs a stream with `seed=`. On another stream its loop then raises
        `ConsumerTimedOut`.

        Example:
            >>> trial.pause()
            >>> trial.resume()

        Args:
            release: Whether to move the GPU memory of its `tsnb.checkpoint` objects to the host while it is paused.
                It waits for room before it continues. CUDA itself and other variables stay on the GPU. Works on a
                paused trial too. Defaults to False.

        Raises:
            TsnbError: If it is not running, takes batches of no stream on this machine now, or has no GPU memory to
                free. It is not paused then.
        """
        pause_trials([self.life], on=True, release=release)

    def resume(self) -> None:
        """Let a paused trial continue where it was.

        Example:
            >>> trial.pause()
            >>> trial.resume()

        Raises:
            TsnbError: If it is not running, or takes batches of no stream on this machine now.
        """
        pause_trials([self.life], on=False)

    def interrupt(self) -> None:
        """Interrupt the trial as Ctrl-C does. Its variables stay.

        A trial whose code has not begun is ended instead.

        Example:
            >>> trial = tsnb.run(train, lr=0.1, epochs=100)
            >>> trial.interrupt()
        """
        self.life.require_here()
        if self.life.state == "running":
            self.life.states.interrupt()
            self.life.hub.loop.call_soon_threadsafe(self.life.interrupt)
        elif self.state not in ENDED:
            self.life.hub.post(self.life.end())

    @property
    def live(self) -> dict[str, Any]:
        """Live hyperparameters (`tsnb.live`) by name.

        A value that was set is shown as it will be from the next batch on.
        """
        return dict(self.life.live)

    @property
    def changes(self) -> list[LiveChange]:
        """Changes of its live hyperparameters, each with its place in the stream."""
        return list(self.life.changes)

    def set(self, **values: Any) -> None:
        """Change live hyperparameters from the trial's next batch on.

        All of them change together. Returns once the trial's process has taken them. Each change is recorded with
        its place in the stream, so that `rerun(repeat_changes=True)` repeats them.

        Example:
            >>> trial.set(lr=0.03)

        Args:
            **values: New values by the names that the code gave to `tsnb.live`.

        Raises:
            NoSuchLiveValue: If the code has not made a live value of that name yet.
            ValueError: If a value is out of bounds or of another type. Nothing is changed then.
            TypeError: If no value is given.
            TsnbError: If the trial is not running, or another notebook started it.
            TimeoutError: If its process does not answer because C code holds the interpreter.
        """
        if not values:
            there = ", ".join(f"{name}={value!r}" for name, value in self.live.items()) or "none"
            raise TypeError(
                "set needs a value, for example trial.set(lr=0.03). Live hyperparameters of "
                f"{self.name!r}: {there}"
            )
        if self.life.state != "running":
            raise TsnbError(
                f"Trial {self.name!r} {is_now(self.state)}. Live hyperparameters can be set only while it runs"
            )
        reply = self._call(self.life.set({name: own_number(value) for name, value in values.items()}))
        if reply["status"] != "ok":
            raise raised(reply, self.name)
        self.life.live = {**self.life.live, **(reply.get("answer") or {})}

    @property
    def parent(self) -> Parent | None:
        """Trial and batch that it is a clone of, or None."""
        return self.life.parent

    def clone(self, name: str | None = None, *, at: int | None = None, **changes: Any) -> Trial:
        """Clone the trial at its next batch, with all that it has.

        The clone is a fork of the process: net, optimizer, random numbers, the place in the epoch and every
        variable. Unchanged, both compute the same, bit for bit. The clone has its own name, output and record. The
        trial pauses for less than 0.1 s. Where a fork is not safe (GPU, own threads or processes, `--detach`, a
        spawned process), the trial is cloned from its `tsnb.checkpoint` in a new process. That needs a stream with
        a seed (docs/clone.md). Both write to the same open files and paths, so give each its own.

        Example:
            >>> clone = trial.clone(lr=0.03)

        Args:
            name: Name of the clone. Defaults to this trial's name with the changes or a number.
            at: Epoch whose first state in `tsnb.checkpoint` the clone begins with. Epochs count from 1, as the panel
                shows them: `at=4` repeats what `tsnb.epochs` numbered 3. Works for an ended trial too. Defaults to
                None, the next batch.
            **changes: New values of live hyperparameters (`tsnb.live`), from its first batch on.

        Returns:
            The clone.

        Raises:
            NameInUse: If a trial or consumer of that name exists.
            NoSuchLiveValue: If the code has not made a live value of that name.
            ValueError: If a value is out of bounds or of another type, or the name is invalid.
            TsnbError: If it cannot be cloned: no fork is safe and there is no checkpoint, it runs on a cluster,
                takes batches of no stream, memory is short, or there is no state of that epoch.
            TimeoutError: If it has not requested a batch for a minute.
        """
        start = None if at is None else EPOCH.checked("at", at) - 1
        why = self._why_not_cloned_here if at is not None else self.why_not_cloned
        if why:
            raise TsnbError(f"Trial {self.name!r} {why}")
        plan = self.life.plan
        wish = CloneWish(
            self.life, name, {word: own_number(value) for word, value in changes.items()}, at=start
        )
        assert self.life.launch is not None
        cloned: Trial = self.life.launch(plan, self._outlet_of_next, wish)
        return cloned

    @property
    def why_not_cloned(self) -> str:
        """Reason why it cannot be cloned, as far as known now; else empty."""
        if self.life.state != "running":
            why = f"{is_now(self.state)}, and only a running trial can be cloned"
            other = self.life.instead_of_cloning() if self.life.state in ENDED else ""
            return f"{why}. {other}" if other else why
        return self._why_not_cloned_here

    @property
    def _why_not_cloned_here(self) -> str:
        if self.life.launch is None:
            return "was started by another notebook or script. Clone it there, while that runs"
        return ""

    @property
    def why_not_released(self) -> str:
        """Reason why `pause(release=True)` cannot free GPU memory; else empty."""
        if self.life.state != "running":
            return f"{is_now(self.state)}, and only a running trial can be paused"
        if self.life.launch is None:
            return "was started by another notebook or script. Release its memory there, while that runs"
        return self.life.why_not_released

    @property
    def why_not_extended(self) -> str:
        """Reason why it cannot be extended now, and what to do; else empty."""
        return self.life.why_not_extended()

    @property
    def why_not_rerun(self) -> str:
        """Reason why its code cannot be run again now, and what to do; else empty."""
        if self.state not in ENDED:
            return f"{is_now(self.state)}. Run it again after its end"
        if self.life.launch is None:
            return "was started by another notebook, which holds its code. Run its cell there"
        return why_no_stream(self.report, "then run the trial again")

    @property
    def _outlet_of_next(self) -> Outlet | None:
        """Where the output of a clone, or of the next run, goes; None: under the cell that asks."""
        asked_by_a_cell = threading.current_thread() is threading.main_thread()
        return None if asked_by_a_cell and self._is_shown_here else self.life.outlet

    @property
    def _is_shown_here(self) -> bool:
        """Whether its output goes to a cell or terminal of this process, and not where a caller wants it."""
        beneath = getattr(self.life.outlet, "beneath", self.life.outlet)  # a sweep marks its trials' lines
        return isinstance(beneath, (CellOutlet, MarimoOutlet, TerminalOutlet))

    def logs(self) -> str:
        """Return its output, tracebacks included (the last million characters).

        Example:
            >>> print(trial.logs())
        """
        return self.life.printed.text

    def log_since(self, position: int, most: int) -> PrintedPart:
        """Return its output since a position of the log.

        Example:
            >>> part = trial.log_since(0, 1000)

        Args:
            position: Position in the log, in characters.
            most: Largest number of characters to return.
        """
        return self.life.printed.since(position, most)

    def follow(self) -> None:
        """Show its output under the running cell from now on.

        Begins with the end of what it has printed. A page that is loaded again does not update the cells that it
        had started before.

        Example:
            >>> trial.follow()

        Raises:
            TsnbError: If it is a detached trial of another notebook, which prints to its log.
        """
        if self.life.launch is None:
            raise TsnbError(
                f"Trial {self.name!r} was started by another notebook and prints to its log. To see it: "
                f"%trials logs {self.name}"
            )
        text = self.logs()
        start = max(0, text.rfind("\n", 0, len(text) - FOLLOWED)) if len(text) > FOLLOWED else 0
        before = ("..." if start else "") + text[start:]
        self._call(
            self.life.move(outlet_here(self.name), before or f"trial {self.name!r} has printed nothing yet\n")
        )

    def pull(self, *variables: str) -> Any:
        """Return copies of some of the trial's variables.

        Waits for the end of its code first. An interrupt ends the waiting, and the trial continues. Pull variables
        that belong together in one call, or the optimizer holds copies of the net's parameters.

        Example:
            >>> net = trial.pull("net")

        Args:
            *variables: Names of the variables. One name gives that variable, several give a tuple.

        Raises:
            NoSuchVariable: If it has no variable of that name.
            NotShippable: If the variable cannot be pickled.
            TsnbError: If its kernel is gone, or ends with its code (a detached trial).
        """
        if self.state not in ENDED:
            if self.life.plan.options.detach:
                raise TsnbError(
                    f"Trial {self.name!r} is detached, so its variables end with it. To keep a result, let "
                    "the trial save it: tsnb.log_artifact(path)"
                )
            self.life.hub.require_other_thread()
            wait_and_tell(self.life.ended, self.name, lambda: self._waiting_for(variables))
        if self.pid is None and not self.life.keeps(variables):
            first = self.life.failure.partition("\n")[0]
            raise TsnbError(
                f"The variables of trial {self.name!r} no longer exist, because its process has ended "
                f"({self.state}{first and f': {first}'}). Its logged numbers are in tsnb.results({self.name!r}). To "
                "keep more, let the trial save it: tsnb.log_artifact(path)"
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
            failed = (
                f" It failed: {self.life.failure.partition(chr(10))[0]}" if self.state == "failed" else ""
            )
            said = said.strip("\"'") + failed
        raise kind(said)

    def __getitem__(self, variables: str | tuple[str, ...]) -> Any:
        return self.pull(*((variables,) if isinstance(variables, str) else variables))

    def _warn_of_copies(self, torn: Mapping[str, str]) -> None:
        for variable, other in torn.items():
            warnings.warn(
                f"{variable!r} of trial {self.name!r} shares parameters with {other!r}, which you fetched in "
                "an earlier call. You now have copies, so training one does not change the other. Fetch both "
                f"at once: {other}, {variable} = trial[{other!r}, {variable!r}]",
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
        raise NoSuchVariable(f"Trial {self.name!r} has no variable {variable!r}. Available: {there}.{hint}")

    def _waiting_for(self, variables: tuple[str, ...]) -> str:
        """Say how far it is, to code that waits for a variable of it."""
        numbers = "".join(f", {number}" for number in first_numbers(self.metrics))
        wanted = ", ".join(map(repr, variables))
        return f"{self.name}[{wanted}]: trial {self.name!r} {self.state}, {self.duration_s:.0f} s{numbers}"

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait until the trial has ended, and return its function's result.

        For a cell, the result is its variable `result`.

        Example:
            >>> trial = tsnb.run(train, lr=0.1)
            >>> trial.result()

        Args:
            timeout_s: Seconds to wait. Defaults to None, without a limit.

        Raises:
            TrialFailed: If it raised or its process died.
            TimeoutError: If it has not ended within `timeout_s` seconds.
            TsnbError: If it was stopped and has no result.
        """
        return self.wait(timeout_s).pull(RESULT)

    def extend(self, epochs: int) -> Trial:
        """Continue an ended trial for some more epochs.

        It continues in a new process from its last checkpoint (`tsnb.checkpoint`), and its loop over `tsnb.epochs`
        becomes longer. A killed, stopped or pruned trial completes its loop first. Its name and record continue.
        Its code runs from the first line, and variables of the run before are gone.

        Example:
            >>> trial = tsnb.run(train, lr=0.1).wait()
            >>> trial.extend(1).wait()

        Args:
            epochs: Number of further epochs, 1 or more.

        Returns:
            This trial.

        Raises:
            ValueError: If `epochs` is not a whole number of 1 or more.
            TsnbError: If it has not ended or has failed, has no checkpoint, does not use `tsnb.epochs`, or its
                stream is not served any more.
        """
        self._call(self.life.extend(EPOCH_COUNT.checked("epochs", epochs)))
        self.failure_seen = False
        return self

    def rerun(self, *, repeat_changes: bool = False, **new: Any) -> Trial:
        """Run the same code again, with the variables that it had then.

        Example:
            >>> trial = tsnb.run(train, lr=0.1).wait()
            >>> trial.rerun(lr=0.05).wait()

        Args:
            repeat_changes: Whether to repeat changes of live hyperparameters (`set`), after as many samples.
                Defaults to False.
            **new: Parameters and options to change, for example `lr=0.01, seed=2`. `name` names the new trial.
                Without `name`, a name made from parameters is made again; any other is taken over, and the former
                run is stopped and stays in the records.

        Returns:
            The new trial.

        Raises:
            TypeError: If the parameter or option does not exist.
            TsnbError: If its code and variables are gone or belong to another notebook, or a parameter was masked
                in its record.
        """
        if self.life.launch is None:
            not_kept = ", ".join(name for name, value in self.params.items() if is_masked(value))
            lacks = f". Its record lacks the value of {not_kept}. Pass it again there" if not_kept else ""
            raise TsnbError(
                f"Trial {self.name!r} was started by another notebook, which holds its code and variables. "
                f"Run its cell here{lacks}"
            )
        planned = self._planned() if repeat_changes else []
        again = replanned(self.life.plan, new)
        again = replace(again, arrival={**again.arrival, "planned": planned})
        outlet = self._outlet_of_next or outlet_here(again.name)
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
                f"Trial {self.name!r} read no stream when {nowhere[0]} was set, so tsnb does not know when to "
                f"repeat that change. Run the trial again without repeat_changes=True, and set {nowhere[0]} "
                "yourself"
            )
        return [tuple(change) for change in self.changes]

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.life.hub.call(work, PULL_S)

    def __repr__(self) -> str:
        numbers = "".join(f", {number}" for number in first_numbers(self.metrics, "="))
        return one_line(f"<Trial {self.name!r} {self.state}, {self.duration_s:.1f} s{numbers}>")
