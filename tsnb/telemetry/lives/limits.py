"""What limited a stream over its whole life: the panel's sentence on its last two seconds, in the same words. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from tsnb.telemetry.lives.runs import runs_apart
from tsnb.telemetry.lives.spent import PARTS, Spent, spent
from tsnb.telemetry.readings import ConsumerReading, HostReading, StreamReading
from tsnb.telemetry.shown.diagnosis import SMALL, Diagnosis, MeanHost, diagnose
from tsnb.telemetry.shown.history import History
from tsnb.telemetry.shown.outcome import ENDS
from tsnb.telemetry.shown.past import in_the_past
from tsnb.telemetry.shown.rates import Pace
from tsnb.telemetry.shown.view import StreamView

__all__ = ["StreamLife", "limited"]

SPOKEN = 0.1
"""The sentence is about trials that lived at least this share of the longest life."""


class StreamLife:
    """A stream from its first reading to its last, as far as it says what limited it.

    Attributes:
        batches: Batches prepared, by all of its producers.
        host: The machine as it was on average while trials read; None: nobody looked.

    Args:
        readings: Oldest first, at least one, of runs that have names of their own (`runs_apart`).
        trials: Where the time of each trial went; left out: found here.
    """

    def __init__(self, readings: Sequence[StreamReading], trials: Sequence[Spent] | None = None) -> None:
        self._readings = readings
        self._trials = spent(readings) if trials is None else trials
        self.batches, self._blocked_s = _grown(readings)
        mean = MeanHost()
        for reading in readings:
            mean.feed(reading)
        self.host: HostReading | None = mean.host

    def limited(self, *, over: bool) -> Diagnosis:
        """Return the sentence; in the past tense where the stream, or each of its trials, has ended.

        Args:
            over: Whether the stream has ended since.
        """
        said, trials = self._said(), self._trials
        return (
            in_the_past(said) if over or (trials and all(trial.state in ENDS for trial in trials)) else said
        )

    def _said(self) -> Diagnosis:
        readings, trials = self._readings, self._trials
        first, last = readings[0], readings[-1]
        if last.state == "failed":
            return diagnose(first, last)
        nothing = replace(first, consumers=(), batches=0, blocked_s=0.0, host=None)
        # of the time in which some trial read: before the first trial and after the last the loader has nothing to
        # do. A stream that was found under way had counted before its first reading, for longer than the span
        seconds = max([_busy_s(readings), *(trial.inside_s for trial in trials)])
        whole = replace(
            last,
            time_s=first.time_s + seconds,
            state="serving",
            batches=self.batches,
            blocked_s=self._blocked_s,
            host=None,
        )

        def found(those: Sequence[Spent]) -> Diagnosis:
            setter = max(those, key=lambda trial: trial.pace_s, default=None)
            pace = setter.name if setter is not None and setter.pace_s > 0 else ""
            # its rows tell shares of the time without pauses and time-outs, and so does the sentence
            paces = {t.name: Pace(t.samples_per_s, *map(t.share, PARTS[:3])) for t in those if t.active_s > 0}
            now = replace(whole, consumers=tuple(_as_reading(t, t.name == pace) for t in those))
            return diagnose(nothing, now, self.host, in_seconds=True, paces=paces)

        # a trial that lived for a moment has next to no part in what limited the stream
        spoken = SPOKEN * max((trial.inside_s for trial in trials), default=0.0)
        said = _of_those_that_met([t for t in trials if t.inside_s >= spoken], found)
        if said.kind in {"idle", "starting"}:
            text = "No batch was read." if trials else "No trial has attached."
            return Diagnosis("idle", text, None, text)
        return said


def limited(view: StreamView, history: History) -> str:
    """Have a view say what limited its stream, once its trials have ended; return that, empty before.

    Args:
        view: It has been fed the readings of the history.
        history: All readings.
    """

    def found() -> str:
        readings = runs_apart(history.readings())
        return StreamLife(readings).limited(over=True).text if readings else ""

    return view.limit(found)


def _grown(readings: Sequence[StreamReading]) -> tuple[int, float]:
    """Return batches and blocked_s of all of the stream's producers, one after the other."""
    lasts = [r for r, after in zip(readings, [*readings[1:], None], strict=True) if _ends(r, after)]
    return sum(reading.batches for reading in lasts), sum(reading.blocked_s for reading in lasts)


def _ends(reading: StreamReading, after: StreamReading | None) -> bool:
    return after is None or after.pid != reading.pid or after.batches < reading.batches


def _of_those_that_met(trials: Sequence[Spent], found: Callable[[Sequence[Spent]], Diagnosis]) -> Diagnosis:
    """Return what limited trials, not all of which were there at one time: nobody waits for who comes or came later.

    Args:
        trials: They.
        found: Says it of some of them, as if these had been there at one time.
    """
    while True:
        said = found(trials)
        setter = next((trial for trial in trials if trial.name == said.pace), None)
        if setter is None:
            return said
        held = [trial for trial in trials if trial.share("held") >= SMALL]
        met = [trial for trial in held if _met(trial, setter)]
        if len(met) == len(held):
            return said
        if met:
            trials = [trial for trial in trials if trial in met or trial not in held]
        else:  # it was by itself, as others may have been
            trials = [trial for trial in trials if trial in held or any(_met(one, trial) for one in held)]


def _met(one: Spent, other: Spent) -> bool:
    """Whether two trials were there at one time, for more than the moment in which one goes and another comes."""
    both_s = min(one.last_s, other.last_s) - max(one.first_s, other.first_s)
    return both_s > SPOKEN * min(one.last_s - one.first_s, other.last_s - other.first_s)


def _busy_s(readings: Sequence[StreamReading]) -> float:
    """Return the seconds in which at least one trial was on the stream."""
    pairs = itertools.pairwise(readings)
    return sum(after.time_s - r.time_s for r, after in pairs if r.state in {"serving", "blocked"})


def _as_reading(trial: Spent, sets_the_pace: bool) -> ConsumerReading:
    return ConsumerReading(
        name=trial.name,
        pid=0,
        state="sets the pace" if sets_the_pace else "streaming",
        epoch=0,
        position=0,
        fill=0,
        lag=0,
        batches=trial.batches,
        samples=trial.samples,
        computing_s=trial.computing_s,
        waiting_s=trial.waiting_s,
        held_s=trial.held_s,
    )
