"""What a kernel knows of its trial, from `enter` to its end: its run, its rows, its place, its pauses."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from tsnb.config import is_profiled
from tsnb.experiments.in_kernel.artifacts import enter_run
from tsnb.experiments.in_kernel.device_memory import DeviceMemory
from tsnb.experiments.in_kernel.first_weights import watch_first_step
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
    Attaching,
    Begun,
    Changed,
    Consumed,
    Declared,
    Directions,
    Ended,
    Releasable,
    Requested,
    StandsStill,
    WentBack,
    Wrote,
)
from tsnb.kernels.in_kernel.output_channel import send_printed
from tsnb.records.run import Run
from tsnb.records.scores import told
from tsnb.records.writes import LiveChange
from tsnb.stream.this_process import this_process

__all__ = ["TrialHere"]

REPORT_S = 1.0
"""How often a trial says how far it is, in seconds."""


class TrialHere:
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
        values.asked = lambda changes: tell(Requested(changes))
        values.declared = lambda now: tell(Declared(now, values_here().bounds))
        self._planned = [LiveChange(*change) for change in self.settings.get("planned", ())]
        self._asked = [LiveChange(*change) for change in self.settings.get("asked", ())]
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
        values_here().plan(c for c in self._planned if c.samples > samples or c in self._asked)
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
