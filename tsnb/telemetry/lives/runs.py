"""Runs of one name on a stream, told apart. Pure.

A name that ran several times stands for its last run, in reports as in the panel and in `tsnb.results`. A former run is
called "cnn run 1", by the number that the results give it; where readings do not carry one (a script that attached
twice, a process that was lost), "cnn pid 4711". Several processes of one run, which was extended or restarted, are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from tsnb.telemetry.readings import ConsumerReading, EndReading, MoveReading, OutcomeReading, StreamReading
from tsnb.telemetry.shown.ends import Ends
from tsnb.telemetry.shown.outcome import Trained, best_of

__all__ = ["lanes_of", "next_step", "runs_apart", "trial_of"]

_FORMER = re.compile(r" (run|pid) \d+$")
"""What stands behind the name of a former run: names of trials have no spaces."""

_Named = TypeVar("_Named", ConsumerReading, EndReading)

_Process = tuple[str, int]
"""A name, and a process of it."""


def trial_of(name: str) -> str:
    """Return the trial's name of a run as `runs_apart` calls it: "cnn" of "cnn run 1"."""
    return _FORMER.sub("", name)


def runs_apart(readings: Sequence[StreamReading]) -> list[StreamReading]:
    """Return a stream's readings in which each former run of a name has a name of its own.

    Args:
        readings: Oldest first. Those that this returned stay as they are.
    """
    called = _called(readings)
    return [_renamed(reading, called) for reading in readings] if called else list(readings)


def lanes_of(readings: Iterable[StreamReading]) -> dict[str, int]:
    """Return the number of each trial on a stream, by its name: as its panel gives them out, and so its colour.

    Args:
        readings: Oldest first.
    """
    found: dict[str, int] = {}
    ends = Ends()
    for reading in readings:
        news = ends.feed(reading)
        for name in (*(each.name for each in reading.consumers), *news, *reading.pending):
            found.setdefault(trial_of(name), len(found))
    return found


def _called(readings: Sequence[StreamReading]) -> dict[_Process, str]:
    """Return what the processes of former runs are called."""
    began_s: dict[_Process, float] = {}
    numbers: dict[_Process, int] = {}
    for reading in readings:
        for consumer in reading.consumers:
            process = consumer.name, consumer.pid
            began_s.setdefault(process, reading.time_s)
            numbers[process] = max(consumer.run, numbers.get(process, 0))
    attached = {pid for _, pid in began_s}
    for reading in readings:
        for end in reading.ends:
            if end.pid not in attached:  # a run of which there is nothing but its end
                began_s.setdefault((end.name, end.pid), end.time_s)
    runs: dict[str, dict[int, list[_Process]]] = {}
    for process in sorted(began_s, key=lambda process: began_s[process]):
        name, pid = process
        runs.setdefault(name, {}).setdefault(numbers.get(process, 0) or -1 - pid, []).append(process)
    return {
        process: f"{process[0]} run {run}" if run > 0 else f"{process[0]} pid {process[1]}"
        for of_name in runs.values()
        for run, processes in list(of_name.items())[:-1]
        for process in processes
        if process in numbers
    }


def _renamed(reading: StreamReading, called: dict[_Process, str]) -> StreamReading:
    names = {c.name: called[c.name, c.pid] for c in reading.consumers if (c.name, c.pid) in called}
    ends = tuple(_named(end, called) for end in reading.ends)
    if not names:
        return replace(reading, ends=ends) if reading.ends else reading
    host = reading.host
    if host is not None:
        host = replace(host, consumers={names.get(name, name): its for name, its in host.consumers.items()})
    return replace(
        reading,
        consumers=tuple(_named(consumer, called) for consumer in reading.consumers),
        ends=ends,
        moves=tuple(_moved(move, names) for move in reading.moves),
        host=host,
    )


def _named(one: _Named, called: dict[_Process, str]) -> _Named:
    name = called.get((one.name, one.pid))
    return one if name is None else replace(one, name=name)


def _moved(move: MoveReading, names: dict[str, str]) -> MoveReading:
    return replace(move, consumer=names.get(move.consumer, move.consumer))


def next_step(trials: Sequence[Trained], told: OutcomeReading | None = None) -> str:
    """Return how to go on from the best trial, as code; empty where no trial is best.

    Args:
        trials: The trials.
        told: As `best_of`.
    """
    best = best_of(trials, told)
    if best is None:
        return ""
    name, number = trial_of(best[0].name), best[1]
    return (
        f"Next: tsnb.trials[{name!r}].rerun() runs it again. If its code has a tsnb.checkpoint, .extend(epochs=N) "
        f"trains it for longer. tsnb.results(sort={number!r}) compares all trials."
    )
