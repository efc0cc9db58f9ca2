"""What a trial kernel does before, after and between its code: called in the child, on its main thread.

The beginning and the end are IPython's own events around the code (`pre_run_cell`, `post_run_cell`), not orders
of the notebook: for a detached trial the notebook may be gone by then, and what it has begun must still be ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from tsnb.config import is_profiled
from tsnb.experiments.in_kernel.artifacts import enter_run
from tsnb.experiments.in_kernel.cloning import Cloning
from tsnb.experiments.in_kernel.detaching import enter_detached, leave
from tsnb.experiments.in_kernel.device_memory import DeviceMemory
from tsnb.experiments.in_kernel.first_weights import watch_first_step
from tsnb.experiments.in_kernel.keeping import arrived, deliver, keep, let_go, trim
from tsnb.experiments.in_kernel.kept_state import KeptTrial, keeper_here
from tsnb.experiments.in_kernel.peak_memory import PeakMemory
from tsnb.experiments.in_kernel.pictures import Pictures
from tsnb.experiments.in_kernel.reporter import (
    Reporter,
    begin_as_clone,
    go_on_from,
    last_report,
    position,
    report,
    tell,
    tell_metrics,
    tell_rows,
    versions,
)
from tsnb.experiments.in_kernel.written import WrittenFiles
from tsnb.experiments.live_values import values_here
from tsnb.experiments.news import (
    RELEASE,
    SET,
    Attaching,
    Begun,
    Changed,
    Consumed,
    Declared,
    Directions,
    Ended,
    Releasable,
    StandsStill,
    WentBack,
    Wrote,
    error_of,
    how_it_ended,
    interrupt_behind,
)
from tsnb.experiments.plan import FUNCTION, PARAMETERS, epochs_of
from tsnb.kernels.beside import begin_with_others
from tsnb.kernels.cargo.imported import lacking
from tsnb.kernels.gate import pass_lock
from tsnb.kernels.in_kernel.arrival import arrive, fetch_sent, seed_everything, use_threads
from tsnb.kernels.in_kernel.output_channel import send_printed
from tsnb.native.endings import raise_again
from tsnb.native.ties import untie
from tsnb.records.run import Run
from tsnb.records.scores import told
from tsnb.records.writes import LiveChange
from tsnb.stream.this_process import this_process
from tsnb.text.masks import remember
from tsnb.text.printable import uncoloured

__all__ = ["begin", "deliver", "enter", "finish", "keep"]

REPORT_S = 1.0
"""How often a trial says how far it is, in seconds."""


class _TrialHere:
    """What this kernel knows of its trial, from `enter` to its end."""

    def __init__(self, settings: dict[str, Any], run: Run | None) -> None:
        self.settings = settings
        self.run = run or Run.of(settings["run"])
        self.versions = versions()
        self.bridges: list[Any] = []
        self.ended = False
        self._reported: dict[str, Any] = {}
        self._reported_s = 0.0
        self._weights = ""
        self._standing = 0
        self.memory = DeviceMemory(
            settings["name"], lambda: keeper_here().objects, lambda: bool(self._standing)
        )
        self._releasable: str | None = None
        self._written = WrittenFiles()
        self._changing = threading.Lock()
        self._reporting = threading.Lock()

    def begin(self) -> None:
        """Note that this process is the trial's, and take down from now on what it logs."""
        self._enter()
        told(lambda directions: tell(Directions(directions)))
        values = values_here()
        values.place = position
        values.noted = self._changed
        values.declared = lambda now: tell(Declared(now, values_here().bounds))
        self._planned = [LiveChange(*change) for change in self.settings.get("planned", ())]
        values.plan(self._planned)

    def _enter(self, count: int = 0) -> None:
        """Be the process of the run, and hand on what is logged; so many rows were logged before."""
        from tsnb.telemetry.metrics import keep_others, subscribe

        this_process.run = self.run.number
        self.run.process(os.getpid(), self.versions)
        self.peak = PeakMemory(self.run.peak)
        enter_run(self.run)
        if self.settings["log_to"]:
            from tsnb.records.trackers import open_bridges

            self.bridges = open_bridges(self.settings["log_to"], self.run)
        sinks = [tell_rows, self.run.add_rows, *(bridge.rows for bridge in self.bridges)]
        self.reporter = Reporter(sinks, self.report, count)
        subscribe(self.reporter.take)
        keep_others(Pictures(self.run))
        if self.run.id:
            keeper_here().open(self._kept())
        else:
            keeper_here().nowhere = (
                "this trial is only profiled for a plan"
                if is_profiled(self.settings["name"])
                else "the project's records are on another machine, or cannot be written"
            )

    def _kept(self) -> KeptTrial:
        """Return what the keeper of its states needs to know."""
        resume = self.settings.get("resume", {})
        until, rows, more = resume.get("until"), resume.get("rows", 0), resume.get("more", 0)
        name, files = self.settings["name"], self.run.kept
        exact = bool(resume.get("exact"))
        clone = "begins" in resume
        calls = self._progress, lambda: self.reporter.own, self._go_back
        return KeptTrial(name, files, bool(resume), exact, until, rows, *calls, more, clone)

    def _progress(self) -> dict[str, Any]:
        """Return the numbers that go on where a state is gone on from; what was logged until now is handed on first."""
        self.reporter.flush()
        place = position()
        return {
            "rows": self.reporter.count,
            "samples": place.samples,
            "place": tuple(place),
            "report": self._report(),
            "live": values_here().now,
        }

    def _go_back(self, progress: Mapping[str, Any], own_rows: int, from_parent: bool) -> None:
        """Go on from those numbers; the record forgets what came after its own rows."""
        samples = progress["samples"]
        self.reporter.go_on(progress["rows"], own_rows)
        go_on_from({"samples": samples, **progress["report"]})
        self._weights = progress["report"].get("weights", "")
        self.run.go_back(own_rows, samples)
        tell(WentBack(own_rows, samples))
        values_here().go_on_from(progress["live"])
        values_here().plan(change for change in self._planned if change.samples > samples)
        if from_parent:
            values_here().begin_with(self.settings["resume"].get("begins", {}), samples)

    def branch(self, name: str, settings: dict[str, Any]) -> None:
        """Be a clone's trial from now on. Called in the clone, before its next step.

        Args:
            name: The clone's.
            settings: `run` and `started_s`, as `enter` takes them.
        """
        from tsnb.stream.consumer.attaching import name_in_clone

        own = self.settings["name"]
        self.settings = {**self.settings, **settings, "name": name, "resume": {}}
        self.run, self.bridges = Run.of(settings["run"]), []
        self._changing, self._reporting = threading.Lock(), threading.Lock()
        self._reported, self._releasable, self._written = {}, None, WrittenFiles()
        begin_as_clone()
        self._enter(self.reporter.count)
        keeper_here().branch(lambda known: name_in_clone(known, name, own))
        tell(Begun(self.versions))
        tell(Declared(values_here().now, values_here().bounds))
        tell(Attaching())
        if self._standing:
            self.run.state("paused")
            tell(StandsStill(True))

    def _changed(self, changes: list[LiveChange]) -> None:
        self.run.changed(changes)
        tell(Changed(changes))

    def stands(self, on: bool) -> None:
        """A consumer of this process begins to stand still because it is paused, or does no more. From any thread."""
        with self._changing:
            before, self._standing = self._standing, self._standing + (1 if on else -1)
            changed = bool(before) != bool(self._standing)
            if changed:
                self.run.state("paused" if on else "running")
                tell(StandsStill(on))
        if changed and on:
            self.memory.give_back()
        elif changed:
            self.memory.take_again()

    def attaching(self) -> None:
        """Say that it has asked for its first epoch. Called once, before it waits at its gate."""
        tell(Attaching())
        watch_first_step(self._begins_with)

    def _begins_with(self, weights: str) -> None:
        """Tell a hash of the weights before the first step at once: a race may compare the rows that follow."""
        if not self._weights:  # else it goes on from a state that was kept later
            self._weights = weights
            tell(Consumed(self._report()))

    def _report(self) -> dict[str, Any]:
        """Return what the results show of its consumers, and the hash of the weights that it began with."""
        return self._weighted(report())

    def _weighted(self, news: dict[str, Any]) -> dict[str, Any]:
        return {**news, "weights": self._weights} if news and self._weights else news

    def report(self, *, last: bool = False) -> None:
        """Tell how far the consumers are, where that is news. On the reporter's thread, and at the end.

        Args:
            last: Whether it is the trial's end, which is told at once, however soon after the last time.
        """
        tell_metrics()
        if paths := self._written.take():
            tell(Wrote(paths))
        if (why := self.memory.why_not()) != self._releasable:
            self._releasable = why
            tell(Releasable(why))
        with self._reporting:  # so that no older numbers come after the last ones
            if not last and (self.ended or time.monotonic() - self._reported_s < REPORT_S):
                return
            self.peak.look()
            news = self._weighted(last_report()) if last else self._report()
            if news and news != self._reported:
                self._reported, self._reported_s = news, time.monotonic()
                tell(Consumed(news))
                self.run.report(news)

    def end(self, state: str, failure: str) -> None:
        """Hand on the last rows, leave every stream, and say how it ended; the notebook hears of it last."""
        self.ended = True
        if state == "done":
            keeper_here().end()
        self.reporter.flush()
        self.report(last=True)
        self.peak.look(last=True)  # before batches are given back: they would count as its own
        detach_all = getattr(sys.modules.get("tsnb.stream.consumer"), "detach_all", None)
        if detach_all is not None:
            detach_all()
        for bridge in self.bridges:
            bridge.end(state)
        send_printed()  # a clone's process is ended with the word below: what waits would be lost
        took_s = time.time() - self.settings["started_s"]
        self.run.end(state, failure, took_s)
        tell(Ended(state, failure, took_s if self.run.id else None))


_courses: list[_TrialHere] = []

_MAY_BE_SECRET = (str, bytes, dict, list)
"""Variables that are looked at for secrets, so that a traceback does not show them in the records."""


def enter(settings: dict[str, Any], run: Run | None = None) -> None:
    """Get ready for the trial's code. Called once, before it.

    Args:
        settings: What `arrive` takes, the trial's name and options (`plan.TrialOptions.attach`), `changed`, where
            parameters lie that are not as they were shipped, `run`, the handle on its records, `started_s`,
            seconds since 1970 when it was asked for.
        run: The handle on its records, where it is another than `run` of the settings says.
    """
    for name in ("name", "stream", "batch_size", "device", "outside", "in_turn"):
        setattr(this_process, name, settings[name])
    this_process.threads_fixed = settings["threads"] is not None
    turns = settings["rotation"]
    this_process.rotation = None if turns is None else (turns[0], turns[1], turns[2])
    if settings["gate"]:
        this_process.gate = partial(pass_lock, Path(settings["gate"]))
    elif settings.get("starting"):
        this_process.gate = partial(begin_with_others, Path(settings["starting"]))
    variables = arrive(settings, ("Trial", settings["name"]))
    if settings["changed"] is not None:
        variables.get(PARAMETERS, variables).update(fetch_sent(settings["changed"]))
    this_process.epochs = _planned_epochs(variables)
    remember(os.environ)
    remember({name: value for name, value in variables.items() if type(value) in _MAY_BE_SECRET})
    arrived(vars(sys.modules["__main__"]))
    course = _TrialHere(settings, run)
    course.begin()
    this_process.standing, this_process.first_batch = course.stands, course.attaching
    _courses.append(course)
    if not settings["setup"]:
        begin()


def _planned_epochs(variables: dict[str, Any]) -> int:
    """Return how many epochs a trial takes, as its parameter or variable `epochs` says; 0: it has none."""
    return epochs_of(variables.get(FUNCTION), variables.get(PARAMETERS, variables)) or 0


def begin() -> None:
    """Look at IPython's cells from now on: the next one is the trial's. Called once, after its set-up cell."""
    from IPython.core.getipython import get_ipython

    settings = _courses[-1].settings
    shell: Any = get_ipython()
    shell.events.register("pre_run_cell", _before_code)
    cloning = Cloning(_courses[-1], settings["name"])
    cloning.answer({SET: values_here().request, RELEASE: _courses[-1].memory.request})
    shell.events.register("post_run_cell", _after_code)
    shell.set_custom_exc((KeyboardInterrupt,), _say_nothing if settings["in_turn"] else _say_where)
    use_threads(settings["threads"] or 1)
    if settings["seed"] is not None:
        seed_everything(settings["seed"])


def _say_nothing(*_: Any, **__: Any) -> None:
    """Take the place of an interrupt's traceback where a sweep stops trials by the dozen.

    IPython needs up to half a second of computing to lay one out: six at once would hold up those that go on.
    """


_cells: list[Any] = []
"""What IPython runs now: the trial's cell, and those that it runs itself (`get_ipython().run_cell`)."""


def _say_where(
    shell: Any, kind: type[BaseException], error: BaseException, where: Any, tb_offset: Any = None
) -> None:
    """Show an interrupt's traceback up to the line of the user's that it met; tsnb's frames below that do not help."""
    own, ours = [], str(Path(__file__).parents[2])
    while where is not None and not where.tb_frame.f_code.co_filename.startswith(ours):
        own.append(where)
        where = where.tb_next
    shown = None
    for part in reversed(own):
        shown = TracebackType(shown, part.tb_frame, part.tb_lasti, part.tb_lineno)
    shell.showtraceback((kind, error, shown), tb_offset=tb_offset)


def _before_code(info: Any) -> None:
    """Say that the code begins, and let a detached trial go. IPython calls it right before the code.

    Until this moment a detached trial's process ends with the notebook, so that one whose code never arrives is not
    left over; from this moment it is on its own: it is found by its entry, and ends itself.
    """
    _cells.append(info)
    try:
        for course in _courses:
            if not course.ended and len(_cells) == 1:
                if course.settings["detach"]:
                    enter_detached(course.run)
                    untie()
                tell(Begun(course.versions))
    except KeyboardInterrupt:  # IPython prints what its events raise, and runs the code all the same
        from IPython.core.events import EventManager

        raise_again(KeyboardInterrupt, EventManager.trigger.__code__)


def _after_code(result: Any) -> None:
    """End the trial when its code has. IPython calls it after each cell that is the user's, nested ones too."""
    from IPython.core.getipython import get_ipython

    if _is_nested(None if result is None else result.info):
        get_ipython()._last_traceback = None  # type: ignore[union-attr] # it is not how the trial's own cell ended
        return
    _cells.clear()
    outcome = _outcome(result)
    shell: Any = get_ipython()
    shell.InteractiveTB.tb = None  # the debugger would begin there
    error = error_of(result)
    if hint := lacking(error):
        print(hint, file=sys.stderr)  # noqa: T201 (shown under the cell)
    let_go(error)
    finish(outcome.state, outcome.failure)


def _is_nested(info: Any) -> bool:
    """Return whether a cell that has ended was run by the trial's own, which goes on.

    Args:
        info: What IPython has announced it as; None: it did not get as far. An empty cell is never announced.
    """
    if info is None:
        nested = len(_cells) > 1
        if nested:
            _cells.pop()
        return nested
    known = [index for index, cell in enumerate(_cells) if cell is info]
    if known and known[0]:
        del _cells[known[0] :]
    return bool(_cells) and known != [0]


def _outcome(result: Any) -> Ended:
    """Read how the code ended from IPython's ExecutionResult (None: it did not get as far)."""
    from IPython.core.getipython import get_ipython

    error = interrupt_behind(error_of(result))
    shown = getattr(get_ipython(), "_last_traceback", None) or []
    exits_well = isinstance(error, SystemExit) and error.code in (None, 0)
    if exits_well or (error is None and result is not None and not shown):
        return how_it_ended("")
    raised = "KeyboardInterrupt" if result is None else type(error).__name__
    last = uncoloured(shown).rstrip().rpartition("\n")[2]
    return how_it_ended(raised, last if error is None else f"{raised}: {error}", shown)


def finish(state: str, failure: str = "") -> None:
    """Hand on the last rows, leave every stream, and say how the trial ended. The first call counts.

    Args:
        state: "done", "failed" or "stopped".
        failure: What was raised: one line, then the traceback.
    """
    with _without_interrupts():
        for course in _courses:
            if not course.ended:
                course.end(state, failure)
                if course.settings["detach"]:
                    leave(failure)
                trim()


class _without_interrupts:  # noqa: N801 (read as a word: `with _without_interrupts():`)
    """Inside it, a stop that comes late does not break what puts things in order."""

    def __enter__(self) -> None:
        self._former: Callable[..., Any] | int | None = signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._former)
