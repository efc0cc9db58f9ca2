"""Carries a plan out: serves the loader, and has its trials conducted in its order, as places and memory come free.

Trials that start together on one stream begin with the same batch: they wait for each other at a gate, as a sweep's do.
The next ones are started a moment early there (`queueing`), so that they miss no epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tsnb.conducting.conductor import Conductor, TrialSource
from tsnb.experiments.overview.board import launch
from tsnb.experiments.remaining import leavers
from tsnb.experiments.trial import ENDED, Trial
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.outlets import outlet_here
from tsnb.machine.processes import held
from tsnb.planners.fluid import Job
from tsnb.planners.queueing import Leaver, Places
from tsnb.planners.scheduling import fit
from tsnb.planners.timeline import PlannedTrial, Span, held_up
from tsnb.planning.waves import say
from tsnb.planning.ways import PRIVATE, Foretold
from tsnb.planning.wishes import TrialWish
from tsnb.serving import serve
from tsnb.serving.stream import Producer
from tsnb.telemetry.readings import PlannedReading, PlanReading
from tsnb.telemetry.watching import planners, watch

__all__ = ["Started", "conduct", "drawn", "end_of", "still_to_come", "told"]


def conduct(
    way: Foretold,
    wanted: Sequence[TrialWish],
    loader: Any,
    name: str,
    jobs: Mapping[str, Job],
    memory_bytes: float,
    ran: Started,
) -> dict[str, Trial]:
    """Run trials in one way; return when all have ended.

    Args:
        way: Which.
        wanted: The trials.
        loader: What they train on.
        name: Of the stream.
        jobs: What each needs, by name: memory, its own and its GPU's.
        memory_bytes: For all that run at once.
        ran: Takes in each trial that has been started, and its stream.

    Raises:
        Exception: As `serve` and `run` raise; all trials are stopped then.
    """
    with ExitStack() as streams:
        if way.way not in PRIVATE:
            streams.enter_context(serve(loader, name=name))
            watch(name)  # by which the stream, and whoever looks at it, hears of the plan
        places = _WayPlaces(way, jobs, memory_bytes, name, ran.trials)
        source = _WaySource(way, {each.name: each for each in wanted}, loader, name, streams, ran, places)
        conductor = Conductor(source, places)
        planners.append(source.says)
        try:
            conductor.run()
        finally:
            planners.remove(source.says)
    return {each.name: conductor.trials[each.name] for each in wanted}


def end_of(trial: Trial | None) -> dict[str, str | None]:
    """Return how a trial of a plan has ended, or is: its state and the first line of its error, for JSON.

    Args:
        trial: It; None: it has not been started.
    """
    if trial is None:
        return {"state": None, "error": None}
    return {"state": trial.state, "error": trial.life.failure.partition("\n")[0] or None}


def still_to_come(trial: Trial, now_s: float, end_s: float) -> Span | None:
    """Return when a trial that was started will have run: from now to its end; None: it has ended, or is paused.

    Nobody knows when a paused one ends. Once its stream's readings say how long it still takes, it is that, as
    `trial.eta` and every screen have it.

    Args:
        trial: The trial.
        now_s: Seconds since 1970.
        end_s: When it was predicted to end before it ran, by the monotonic clock.
    """
    if trial.state in ENDED or trial.state == "paused":
        return None
    eta = trial.eta
    return now_s, max(now_s, now_s + eta.left_s if eta.whole else end_s)


def drawn(
    planned: Mapping[str, Span],
    ahead: Mapping[str, Span],
    trials: Mapping[str, Trial],
    starts_s: Mapping[str, float],
    ends_s: Mapping[str, float],
    origin_s: float,
) -> tuple[PlannedTrial, ...]:
    """Return the trials of a plan with their places in time: as planned, as it was, and what is still to come.

    Args:
        planned: From start to end as planned first, by name, in seconds from the plan's beginning.
        ahead: The same as predicted last, without what has been seen since.
        trials: Those that have been started.
        starts_s: When those that wait start, by the last plan.
        ends_s: When each ends, by the same plan.
        origin_s: The beginning, seconds since 1970.
    """
    now_s = time.time()
    paused = [name for name, trial in trials.items() if trial.state == "paused"]
    waiting = {name: start_s for name, start_s in starts_s.items() if name not in trials}
    held = held_up(waiting, ends_s, paused)
    found = []
    for name, span in planned.items():
        actual, left = None, None if name in held else ahead.get(name)
        if (trial := trials.get(name)) is not None:
            actual = trial.started_s - origin_s, trial.started_s + trial.duration_s - origin_s
            will = still_to_come(trial, now_s, now_s if left is None else origin_s + left[1])
            left = None if will is None else (will[0] - origin_s, will[1] - origin_s)
        found.append(PlannedTrial(name, span, actual, left, name in paused, name in held))
    return tuple(found)


def told(
    running: Iterable[tuple[Trial, float]], waiting: int, last_s: float, off: float, made_s: float
) -> PlanReading:
    """Return what a plan says last to a stream.

    Args:
        running: Trials that it has started, and when each ends by it.
        waiting: So many it has not started.
        last_s: When the last of these ends.
        off: How far that may be off, as a share of the time until then.
        made_s: When the plan was made.
    """
    found = [
        PlannedReading(
            trial.name, trial.started_s, end_s, off * max(0.0, end_s - max(trial.started_s, made_s))
        )
        for trial, end_s in running
        if trial.state not in ENDED
    ]
    return PlanReading(tuple(found), waiting, last_s, off * (last_s - made_s))


class Started:
    """What has been started of a plan."""

    def __init__(self) -> None:
        self.began_s: float | None = None
        self.streams: dict[str, None] = {}
        self.trials: dict[str, Trial] = {}

    def begin(self) -> None:
        """Note that it begins now, maybe once more."""
        self.began_s, self.streams, self.trials = time.time(), {}, {}

    def started(self, trial: Trial, stream: str) -> None:
        """Note a trial that has been started."""
        self.streams[stream] = None
        self.trials[trial.name] = trial

    def drawn(self, planned: Mapping[str, Span]) -> tuple[PlannedTrial, ...]:
        """Return the trials with their places in time; what is still to come takes as long as was planned.

        Args:
            planned: From start to end, by name, in seconds from the beginning.
        """
        trials, began_s, ahead = dict(self.trials), self.began_s or 0.0, dict[str, Span]()
        for name, (start_s, end_s) in planned.items() if self.began_s is not None else ():
            trial = trials.get(name)
            first_s = max(time.time() - began_s, start_s) if trial is None else trial.started_s - began_s
            ahead[name] = first_s, first_s + end_s - start_s
        starts_s, ends_s = ({name: span[k] for name, span in planned.items()} for k in (0, 1))
        return drawn(planned, ahead, trials, starts_s, ends_s, began_s)


class _WaySource(TrialSource):
    """Starts the trials of one way, each on the stream that it takes there."""

    gives_up = False

    def __init__(
        self,
        way: Foretold,
        wanted: Mapping[str, TrialWish],
        loader: Any,
        stream: str,
        streams: ExitStack,
        ran: Started,
        places: Places,
    ) -> None:
        self.meets = way.way not in PRIVATE
        self._way, self._wanted, self._loader, self._stream = way, wanted, loader, stream
        self._streams, self._ran, self._places = streams, ran, places
        self._own: dict[str, Producer] = {}
        self._began_at_s = time.time()

    def launch(self, name: str, gate: Path | None) -> Trial:
        """Start a trial, and serve the loader to it alone where each has its own."""
        stream = self._stream
        if not self.meets:
            stream = f"{stream}-{name}"[:64]
            self._own[name] = self._streams.enter_context(serve(self._loader, name=stream))
            watch(stream)
        plan = self._wanted[name].planned(name, stream, self._way.threads[name], gate)
        trial = launch(plan, outlet_here(name))
        self._ran.started(trial, stream)
        return trial

    def ended(self, trial: Trial) -> None:
        """Let go of its loader, and of its memory where others wait."""
        if trial.name in self._own:
            self._own.pop(trial.name).stop()
        if self._places.waiting:  # what it returned is kept here, and its process ends
            the_hub().call(trial.life.release())

    def say(self, line: str) -> None:
        """Show a line under the running cell, or in the terminal."""
        say(f"plan: {line}")

    def says(self, stream: str) -> PlanReading | None:
        """Return what the plan says last of the trials of a stream; None: it has none there. Called on any thread.

        A trial takes as long from its start as was planned.
        """
        ends_s, starts_s = self._way.schedule.ends_s, self._way.schedule.starts_s
        running = [
            (trial, trial.started_s + ends_s[name] - starts_s[name])
            for name, trial in [*self._ran.trials.items()]
            if trial.options.get("stream") == stream and trial.state not in ENDED
        ]
        waiting = self._places.waiting if self.meets and stream == self._stream else ()
        if not running and not waiting:
            return None
        last_s = self._began_at_s + max((ends_s[name] for name in waiting), default=0.0)
        return told(running, len(waiting), last_s, self._way.off, self._began_at_s)


class _WayPlaces(Places):
    """The places of one way: they are taken in its order, as memory allows and at its distance.

    Args:
        way: Which.
        jobs: What each trial needs, by name.
        memory_bytes: For all that run at once.
        stream: The name of the stream.
        trials: Those that have been started, by name; grows.
    """

    def __init__(
        self,
        way: Foretold,
        jobs: Mapping[str, Job],
        memory_bytes: float,
        stream: str,
        trials: Mapping[str, Trial],
    ) -> None:
        super().__init__(way.at_once, clock=time.monotonic)
        self.add(way.order)
        self._way, self._jobs, self._memory_bytes = way, jobs, memory_bytes
        self._stream, self._trials = stream, trials
        self._next_s = self._clock()

    @property
    def look_s(self) -> float | None:
        """In how many seconds a trial may have to be started; None: as far as is known none."""
        left_s = self._next_s - self._clock()
        return left_s if self._way.apart_s and self._waiting and left_s > 0 else super().look_s

    def _admits(self, name: str, beside: Sequence[str]) -> bool:
        """Return whether it is time and there is memory; one that is too large for all of the memory runs alone."""
        now_s = self._clock()
        if now_s < self._next_s or ((self._taken or beside) and not self._fit([*beside, name])):
            return False
        self._next_s = now_s + self._way.apart_s
        return True

    def _leavers(self) -> list[Leaver] | None:
        if self._way.way in PRIVATE:
            return None
        return leavers(dict.fromkeys(self._taken, self._stream))  # their own reports say so later

    def _start_s(self, name: str) -> float:
        return self._jobs[name].start_s

    def _fit(self, names: Sequence[str]) -> bool:
        """Return whether there is memory for these beside all that run.

        The process of a trial that has ended stays where what it keeps is large; its memory is not free.
        """
        beside = [self._jobs[each] for each in (*self._taken, *names)]
        ended = [trial for name, trial in self._trials.items() if name not in self._taken]
        kept = [found for trial in ended if trial.pid is not None and (found := held(trial.pid))]
        return fit(beside, self._memory_bytes - sum(found.own_bytes for found in kept))
