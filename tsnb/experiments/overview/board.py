"""All trials of this process: a mapping by name that shows as a table; and starting one from its plan.

Detached trials of the same project that other notebooks have started are found too: they are looked for by name, and
shown in the table, but `stop` and `wait` without a name mean this process's own.

With the first trial a door opens for what the command line asks of this process (`requests`).
"""

from __future__ import annotations

import asyncio
import html
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tsnb.discovery import registry
from tsnb.errors import NameInUse, TsnbError
from tsnb.experiments.bookkeeping import begin_run
from tsnb.experiments.ends import stream_for
from tsnb.experiments.overview.detached import FoundLife
from tsnb.experiments.overview.requests import open_door
from tsnb.experiments.overview.trials_table import rows_of
from tsnb.experiments.plan import LONGEST, TrialPlan, trial_name
from tsnb.experiments.replanning import cloned
from tsnb.experiments.running.branches import KeptStart
from tsnb.experiments.running.engine import engine_of
from tsnb.experiments.running.own_life import OwnLife
from tsnb.experiments.running.starts import CloneWish, Forked, FromKept
from tsnb.experiments.running.trial_life import SURE_S
from tsnb.experiments.trial import ENDED, STOP_GRACE_S, NoSuchVariable, Trial
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.marking import marked_beside
from tsnb.kernels.output.outlets import Outlet, outlet_here
from tsnb.lazy import Hinting
from tsnb.records.detached_entries import entries_of, entry_of
from tsnb.records.project import project_directory
from tsnb.records.writes import LoggedRow, Parent
from tsnb.telemetry.watching import sources
from tsnb.text.words import did_you_mean, html_table, is_now, text_table

__all__ = ["Board", "NoSuchTrial", "launch", "stop_together", "trials"]


RUNS = frozenset({"running", "paused"})

KEPT_PROCESSES = 8
"""Trials that have ended keep their processes, until so many have ended after them: the variables stay all the same."""


class Board(Hinting, Mapping[str, Trial]):
    """Hold the trials of this notebook by name, in the order of their start.

    Detached trials of other notebooks follow. The value shows as a table.

    Example:
        >>> {name: trial.state for name, trial in tsnb.trials.items()}

    Attributes:
        starters: Functions called before trials are stopped, with those, or None for all of them. They would start
            another trial in the place of one that ends.
        watchers: Functions called with each trial that has begun or ended, from any thread.
    """

    _meant = dict.fromkeys(
        ("kill", "cancel", "terminate"), 'stop(), or tsnb.trials["NAME"].stop() for one trial'
    ) | {
        "best": "tsnb.results(), or best(METRIC) of a sweep",
        "status": 'print(tsnb.trials), or tsnb.trials["NAME"].state for one trial',
        "join": "wait()",
        "output": 'tsnb.trials["NAME"].logs()',
    }

    def __init__(self) -> None:
        self.starters: list[Callable[[Sequence[Trial] | None], None]] = []
        self.watchers: list[Callable[[Trial], None]] = []
        self._trials: dict[str, Trial] = {}
        self._found: dict[str, Trial] = {}
        self._lock = threading.Lock()

    def leave_to_parent(self) -> None:
        """Forget all trials, in a forked child: they are those of its parent, which steers their processes."""
        self._trials, self._found, self._lock = {}, {}, threading.Lock()

    def put(self, trial: Trial) -> Trial | None:
        """Enter a trial, and return the one of the same name that it takes the place of."""
        with self._lock:
            former = self._trials.get(trial.name)
            self._trials[trial.name] = trial
            return former

    def __getitem__(self, name: str) -> Trial:
        trial = self._trials[name] if name in self._trials else self.elsewhere.get(name)
        if trial is None:
            known = list(self)
            hint = did_you_mean(name, known)
            there = ", ".join(known) or "none yet (%%trial NAME starts one)"
            raise NoSuchTrial(f"No trial is named {name!r}.{hint} Trials here: {there}.")
        return trial

    def __iter__(self) -> Iterator[str]:
        return iter([*self._trials, *self.elsewhere])

    def __len__(self) -> int:
        return len(self._trials) + len(self.elsewhere)

    @property
    def own(self) -> list[Trial]:
        """Those that this process has started."""
        return list(self._trials.values())

    @property
    def elsewhere(self) -> dict[str, Trial]:
        """Detached trials of this project that other notebooks have started, by name, as they are now."""
        with self._lock:
            entries = entries_of(project_directory(make=False))
            there = {e.name: e for e in entries if e.name not in self._trials}
            for name, entry in there.items():
                known = self._found.get(name)
                if known is None or known.life.key != entry.run["key"]:
                    self._found[name] = Trial(FoundLife(entry, the_hub()))
                    self._found[name].life.begin()
            self._found = {name: self._found[name] for name in there}
            return {**self._found}

    @property
    def live(self) -> list[Trial]:
        """Those that have not ended."""
        return [trial for trial in self.values() if trial.state not in ENDED]

    def pending(self, stream: str) -> dict[str, str]:
        """Return which of this process's own are to read a stream and are not attached yet: state and reason."""
        there = [trial for trial in self.own if _is_coming(trial)]
        streams = {named: stream_for(named) for named in {t.options.get("stream") for t in there}}
        return {
            t.name: "starting" if t.state == "running" else t.state_text
            for t in there
            if streams[t.options.get("stream")] == stream
        }

    def tidy(self, trial: Trial, rows: Sequence[LoggedRow]) -> None:
        """Have the processes of trials go that ended before the last few. A listener, called on the hub's thread."""
        if not rows and trial.state in ENDED:
            self.tell(trial)
            the_hub().post(self._release_former())

    def note_shared_files(self, trial: Trial, rows: Sequence[LoggedRow]) -> None:
        """Tell trials that run side by side of a file that both write. A listener, called on the hub's thread."""
        if rows or not trial.life.written:
            return
        for other in self.own:
            both = trial.life.written & other.life.written
            if other is not trial and both and other.state in RUNS and trial.state in RUNS:
                path = os.path.relpath(min(both))
                told = (
                    f"note: trials {other.name!r} and {trial.name!r} run at the same time and both write {path}, "
                    "so each may find the other's file there. Write to tsnb.folder() instead, a folder per trial: "
                    f"tsnb.folder() / {Path(path).name!r} (docs/what-a-trial-inherits.md)\n"
                )
                for one in (trial, other):
                    one.life.written -= both
                    one.life.say(told, "stderr")

    def tell(self, trial: Trial) -> None:
        """Tell the watchers of a trial that has begun or ended."""
        for watcher in list(self.watchers):
            watcher(trial)

    async def _release_former(self) -> None:
        ended = sorted(
            (trial for trial in self.own if trial.state in ENDED), key=lambda trial: trial.life.ended_s
        )
        there = [trial for trial in ended if trial.pid is not None]
        for trial in there[:-KEPT_PROCESSES]:
            await trial.life.release()

    def wait(self, timeout_s: float | None = None) -> Board:
        """Wait until all of this process's own have ended.

        Raises:
            TrialFailed: One of them failed or crashed (the first in order; the others are waited for too).
            TimeoutError: They have not ended within `timeout_s` seconds.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        failure: Exception | None = None
        for trial in self.own:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                trial.wait(left)
            except TimeoutError:
                raise
            except Exception as error:  # noqa: BLE001 (raised when all have ended)
                failure = failure or error
        if failure is not None:
            raise failure
        return self

    def stop(self) -> None:
        """Stop all of this process's own at once, their kernels too; those that have ended give memory back.

        Sweeps start none of those that wait for a place any more.
        """
        for starter in self.starters:
            starter(None)
        stop_together(self.own, by="with all of its notebook")

    def leave(self, stream: str) -> None:
        """Stop those of this process's own that take a stream, which is about to end; not those that are detached.

        Args:
            stream: Its name.
        """
        going = [trial for trial in self.own if trial.state not in ENDED and _takes(trial, stream)]
        for starter in self.starters if going else ():
            starter(going)
        stop_together(going, by="with its stream")

    def clear(self) -> None:
        """Stop all of this process's own and forget them: the table is empty, and none of them can be run again.

        What was captured for them is removed, which `rerun` would need. Their records stay (`tsnb.results`).
        """
        self.stop()
        with self._lock:
            forgotten, self._trials = self._trials, {}
        for trial in forgotten.values():
            trial.life.forget()

    def drop(self, trial: Trial) -> None:
        """Stop one trial and forget it: the table does not show it, and it cannot be run again.

        Args:
            trial: One of this process's own.
        """
        trial.stop()
        with self._lock:
            if self._trials.get(trial.name) is trial:
                del self._trials[trial.name]
        trial.life.forget()

    def __repr__(self) -> str:
        shown = list(self.values())
        if not shown:
            return "no trials yet: %%trial NAME at the top of a cell starts one"
        return "\n".join(text_table(rows_of(shown)))

    def _repr_html_(self) -> str:
        shown = list(self.values())
        if not shown:
            return f"<p>{html.escape(repr(self))}</p>"
        return html_table(rows_of(shown))


class NoSuchTrial(NoSuchVariable):
    """This notebook has no trial of that name."""


def _takes(trial: Trial, stream: str) -> bool:
    """Return whether a trial that ends with its notebook has attached to a stream, or is about to.

    One that is queued and names none may come to take another.
    """
    named, options = trial.report.get("stream", ""), trial.life.plan.options
    if not named and (options.stream or trial.state != "queued"):
        named = stream_for(options.stream)
    return not options.detach and stream in named.split(", ")


def _is_coming(trial: Trial) -> bool:
    """Return whether a trial has not attached to a stream so far, and is expected to."""
    if trial.state != "running":
        return trial.state in ("queued", "starting")
    # one that has waited was to read a stream; another that does not attach in a moment reads none
    fresh = trial.life.was_queued or time.time() - trial.life.began_s <= SURE_S
    return fresh and not (trial.attached or trial.report.get("stream"))


trials = Board()
"""The trials of this process."""

os.register_at_fork(after_in_child=trials.leave_to_parent)
sources.append(trials.pending)
registry.leaving.append(trials.leave)


def stop_together(some: Iterable[Trial], timeout_s: float | None = None, by: str = "") -> None:
    """Stop several trials of this process as `Trial.stop`, all at the same time; return when all have ended.

    One after the other, each that puts things in order first would hold up the rest, which train on meanwhile.

    Args:
        some: The trials.
        timeout_s: For all of them together, seconds.
        by: Who or what stops them, in words: "in the panel".

    Raises:
        TimeoutError: They have not ended within `timeout_s`.
    """
    lives = [trial.life for trial in some]

    async def end() -> None:
        await asyncio.gather(*(life.end(STOP_GRACE_S, by=by) for life in lives))

    if lives:
        the_hub().call(end(), timeout_s)


def launch(plan: TrialPlan, outlet: Outlet | None = None, wish: CloneWish | None = None) -> Trial:
    """Start a trial, and return at once. One of the same name is asked to stop and replaced.

    Args:
        plan: What is run, shipped already; of a clone its parent's.
        outlet: Where its output goes; left out: under the running cell, or to the terminal.
        wish: The trial that it is to be a clone of, and in what it differs; None: it starts from the top.

    Raises:
        NoSuchTrial: The trial that it is to start after does not exist.
        NameInUse: A detached trial of that name, started by another notebook, is running; or the name of a clone is
            that of a trial that has not ended.
        TsnbError: It would wait for a trial that waits for it, the cluster does not exist, or the trial cannot be
            cloned.
        ExtraMissing: It is to run on a Ray cluster, and Ray is not installed.
    """
    hub = the_hub()
    if wish is not None:
        plan = cloned(plan, wish.name or _clone_name(wish), wish.sweep)
    try:
        after = None if plan.options.after is None else trials[plan.options.after]
        _require_free(plan.name)
        _require_turn(plan.name, after)
        engine_of(plan).join()
        if wish is not None:
            theirs, here = wish.parent, outlet or outlet_here(plan.name)
            return _cloned(plan, marked_beside(here, theirs.outlet, plan.name, theirs.unfinished), wish)
        run = begin_run(plan)
    except BaseException:  # an interrupt while it looks for the cluster, a full disk
        plan.discard()
        raise
    before = None if after is None else after.life
    return _begun(OwnLife(plan, hub, outlet or outlet_here(plan.name), run, launch, before))


def _begun(life: OwnLife) -> Trial:
    """Enter a trial on the board, and let its life begin."""
    trial = Trial(life)
    trial.listen(trials.tidy)
    trial.listen(trials.note_shared_files)
    open_door(life.hub, lambda: trials.own)
    former = trials.put(trial)
    life.begin(None if former is None else former.life)
    trials.tell(trial)
    return trial


def _cloned(plan: TrialPlan, outlet: Outlet, wish: CloneWish) -> Trial:
    """Have a trial cloned at its next batch, and enter the clone.

    Raises:
        Exception: As `Branches.branch` raises; and NameInUse.
    """
    there = next((trial for trial in trials.own if trial.name == plan.name), None)
    if there is not None and there.state not in ENDED:
        raise NameInUse(
            f"A trial named {plan.name!r} {is_now(there.state)}. Give the clone another name, for example "
            f"clone(name={_numbered(plan.name)!r})"
        )
    hub, parent = the_hub(), wish.parent
    assert isinstance(parent, OwnLife)  # others are refused before (`Trial.clone`)
    if wish.at is not None:
        return _from_state(plan, outlet, wish, parent.kept_start(wish.at, wish.changes))
    branch = hub.call(parent.branch(plan.name, dict(wish.changes)))
    if isinstance(branch, KeptStart):
        return _from_state(plan, outlet, wish, branch)
    try:
        origin = Parent(parent.name, parent.number, *branch.place[1:])
        start = Forked(parent, origin, branch)
        return _begun(OwnLife(plan, hub, outlet, begin_run(plan, origin), launch, start=start))
    except BaseException:
        hub.call(branch.child.kill())
        raise


def _from_state(plan: TrialPlan, outlet: Outlet, wish: CloneWish, start: KeptStart) -> Trial:
    """Enter a clone that begins with a checkpoint, in a new process."""
    parent = wish.parent
    origin = Parent(parent.name, parent.number, *start.place)
    try:
        run = begin_run(plan, origin)
        begins = FromKept(parent, origin, start, wish.changes)
        return _begun(OwnLife(plan, the_hub(), outlet, run, launch, start=begins))
    except BaseException:
        if not start.copied:
            start.path.unlink(missing_ok=True)
        raise


def _require_turn(name: str, after: Trial | None) -> None:
    """Refuse to queue behind a trial that is queued behind the one of that name: both would wait for ever."""
    queue = []
    while after is not None and after.state == "queued":
        queue.append(after.name)
        behind = after.options.get("after")
        if name in (after.name, behind):
            raise TsnbError(
                f"Trial {name!r} cannot start after {queue[0]!r}, because {queue[0]!r} is queued behind "
                f"{name!r}. Stop {queue[0]!r} first, or remove after=."
            )
        after = trials.get(behind) if behind else None


def _clone_name(wish: CloneWish) -> str:
    """Return a name for a clone: its parent's with the changes behind it, or a number."""
    made = trial_name(wish.parent.name, wish.changes)
    return _numbered(made) if made in trials else made


def _numbered(name: str) -> str:
    """Return a name that no trial here has: this one with a number behind it."""
    stem = name[: LONGEST - 4]
    return next(f"{stem}-{number}" for number in itertools.count(2) if f"{stem}-{number}" not in trials)


def _require_free(name: str) -> None:
    """Refuse a name that a detached trial has which this process did not start: it is not replaced unasked."""
    if name in (trial.name for trial in trials.own):
        return
    entry = entry_of(project_directory(make=False), name)
    if entry is not None and entry.alive:
        raise NameInUse(
            f"A detached trial named {name!r} is already running (run {entry.run['number']}, pid "
            f"{entry.pid}). Another notebook started it, or this one before its restart. You reach it as "
            f"tsnb.trials[{name!r}]. Stop it with %trials stop {name}, or choose another name."
        )
