"""What came out of a stream whose trials have ended, in the words that the panel has too (`outcome.js`). Pure.

`with_lost` names the trials that are lost while others train.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from tsnb.records import scores
from tsnb.records.scores import declared, known_direction
from tsnb.telemetry.readings import EndReading, OutcomeReading
from tsnb.telemetry.shown.diagnosis import NOBODY, Diagnosis
from tsnb.telemetry.shown.rows import Row
from tsnb.text.numbers import is_accuracy, metric

__all__ = [
    "ENDS",
    "MARKS",
    "Compared",
    "best_of",
    "duel_texts",
    "duels_said",
    "ends_of",
    "metrics_of",
    "outcome",
    "with_lost",
]

ENDS = ("done", "failed", "crashed", "interrupted", "stopped", "pruned")
"""In the order in which they are told."""

MARKS = {"failed": "✕", "crashed": "✕", "interrupted": "■", "stopped": "■", "pruned": "⊘"}
"""Ends that are told, with the panel's marks: those of whom nothing is said are done, or still there."""

_NAMED = 2
"""More trials than this that are equal to the best are counted."""

_LISTED = 3
"""Names of lost trials in the sentence."""

duel_texts: list[Callable[[Collection[str]], str]] = []
"""Each returns what this process's duels that have one of these trials have found, or find so far; empty: none."""


class Compared:
    """How the trials of a stream compare, as far as it is known here.

    Attributes:
        told: What the stream's notebooks tell of it; None: nothing.
        elsewhere: Directions that were declared in their processes, by metric.
        limited: What limited the stream in all, as they tell; empty: they do not.
        declared: Which of the metrics had their direction declared in this process, with it.
        ways: Whether a metric is good when it is high (1) or low (-1), for those of which that is known.

    Args:
        told: See the attribute.
        metrics: Those that the trials have logged.
    """

    def __init__(self, told: OutcomeReading | None = None, metrics: Iterable[str] = ()) -> None:
        names = list(metrics)
        self.told, self.declared = told, declared(names)
        self.elsewhere, self.limited = (told.directions, told.limited) if told is not None else ({}, "")
        modes = {name: known_direction(name, self.elsewhere) for name in names}
        self.ways = {name: -1 if mode == "min" else 1 for name, mode in modes.items() if mode is not None}

    @property
    def rule(self) -> str:
        """The metric by which the rules of sweeps decide; empty: there are none, or they differ."""
        decides = () if self.told is None else self.told.decides
        return decides[0] if len(decides) == 1 else ""


class Trained(Protocol):
    """A trial, as far as its outcome goes."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def state(self) -> str:
        """How it ended, or its state."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last of each number that it has logged."""


_Trained = TypeVar("_Trained", bound=Trained)


def metrics_of(trials: Sequence[Trained]) -> list[str]:
    """Return the logged names, in the order of first appearance."""
    return list(dict.fromkeys(name for trial in trials for name in trial.metrics))


def best_of(trials: Sequence[_Trained], told: OutcomeReading | None = None) -> tuple[_Trained, str] | None:
    """Return the best trial and the number by which it is best; None where that cannot be said.

    The number is the one by which a sweep's rule decides, else an accuracy if one was logged, else the first one of
    which is known whether a high or a low value is good. A trial that ended early counts only where there is no other.

    Args:
        trials: The trials.
        told: What their stream's last reading says of how they compare; None: it says nothing.
    """
    decides, elsewhere = (told.decides, told.directions) if told is not None else ((), None)
    ways = {name: way for name in metrics_of(trials) if (way := known_direction(name, elsewhere)) is not None}
    name = next((one for one in ways if is_accuracy(one)), next(iter(ways), None))
    if len(decides) == 1 and decides[0] in ways:
        (name,) = decides
    if name is None:
        return None
    those = [trial for trial in trials if not math.isnan(trial.metrics.get(name, math.nan))]
    if len(those) < 2:
        return None
    found = scores.best_of([(trial.name, trial.state, trial.metrics[name]) for trial in those], ways[name])
    return next(trial for trial in those if trial.name == found), name


def ends_of(trials: Sequence[Trained]) -> str:
    """Return how many trials of a stream that is over ended how: 3 done, 1 failed, 1 ended."""
    # of those that were there when the stream ended, and of those that have only left it, nobody knows how
    counts = Counter(trial.state if trial.state in ENDS else "ended" for trial in trials)
    return ", ".join(f"{counts[end]} {end}" for end in (*ENDS, "ended") if counts[end])


def outcome(trials: Sequence[Trained], told: OutcomeReading | None = None) -> tuple[str, str]:
    """Return what came out, its lead and the rest; both empty where no trial has ended.

    Of trials that are arms of a duel its verdict says so: which of them has the best number is one seed's luck.

    Args:
        trials: The trials.
        told: As `best_of`.

    Example:
        >>> outcome(trials)
        ("wide-cnn is best: accuracy 96.8 %.", "3 done, 1 failed.")
    """
    if not any(trial.state in ENDS for trial in trials):
        return "", ""
    ends, best = ends_of(trials), best_of(trials, told)
    if duels := duels_said([trial.name for trial in trials], told):
        return duels, f"{ends}."
    if best is None:
        return f"{ends}.", ""
    trial, name = best
    said = f"{trial.name} is best: {name} {metric(name, trial.metrics[name])}"
    return f"{said}{_equal(trials, trial, name)}.", f"{ends}.{_better(trials, trial, name, told)}"


def duels_said(names: Collection[str], told: OutcomeReading | None) -> str:
    """Return what the duels of these trials have found, or find so far; empty: they are of none.

    A duel of this process says it itself: what its stream tells of it is up to a second older.

    Args:
        names: The trials'.
        told: As `best_of`.
    """
    here = " ".join(said for found in list(duel_texts) if (said := found(names)))
    return here or ("" if told is None else told.duels)


def _better(trials: Sequence[Trained], best: Trained, name: str, told: OutcomeReading | None) -> str:
    """Say which trial had a better number than the best one, and does not count as it ended early; empty: none had."""
    if best.state in scores.ENDED_EARLY:
        return ""
    way = -1 if known_direction(name, told.directions if told is not None else None) == "min" else 1
    first = best
    for trial in sorted(trials, key=lambda one: one.name):
        value = trial.metrics.get(name, math.nan)
        if trial.state in scores.ENDED_EARLY and way * (value - first.metrics[name]) > 0:
            first = trial
    return "" if first is best else f" {first.name} ended early with {metric(name, first.metrics[name])}."


def _equal(trials: Sequence[Trained], best: Trained, name: str) -> str:
    """Say which trials have the number of the best; empty: none."""
    early = best.state in scores.ENDED_EARLY
    same = sorted(
        trial.name
        for trial in trials
        if trial is not best
        and trial.metrics.get(name) == best.metrics[name]
        and (trial.state in scores.ENDED_EARLY) == early
    )
    return (
        f", equal to {' and '.join(same) if len(same) <= _NAMED else f'{len(same)} others'}" if same else ""
    )


def with_lost(say: Diagnosis, rows: Iterable[Row], ends: Mapping[str, EndReading]) -> Diagnosis:
    """Return what limits a stream, and before that which trials failed or log nan: that matters more than their pace.

    Infinite numbers are not named: the norm of a gradient is one now and then. A failure is told while a trial is there
    that was there then: it is news of what trains now, and not of what was tried before.

    Args:
        say: What limits the stream.
        rows: The trials.
        ends: How those ended that have, by name.
    """
    rows = list(rows)
    lost = [said for said in (_failed(rows, ends), _nan(rows)) if said]
    if not lost or say.lead == NOBODY or say.kind in ("failed", "gone"):
        return say
    return replace(say, text=" ".join([*lost, say.text]), lead=" ".join(lost))


def _failed(rows: Sequence[Row], ends: Mapping[str, EndReading]) -> str:
    """Say which trials failed or crashed since the oldest one that is here attached; empty: none did."""
    lost = {row.name: row.end for row in rows if row.end in ("failed", "crashed") and not row.here}
    if not lost:
        return ""
    began_s = [
        row.life.last_s - row.reading.attached_s if row.life and row.reading.attached_s else -math.inf
        for row in rows
        if row.here
    ]
    since_s = min(began_s, default=-math.inf)
    names = [name for name in lost if name in ends and ends[name].time_s >= since_s]
    if not names:
        return ""
    what = "crashed" if all(lost[name] == "crashed" for name in names) else "failed"
    if len(names) == 1:
        return f"{names[0]} {what}: see its log."
    if len(names) == 2:
        return f"{names[0]} and {names[1]} {what}: see their logs."
    return f"{len(names)} trials {what}: {_first(names)}. See their logs."


def _nan(rows: Sequence[Row]) -> str:
    """Say which trials log nan; empty: none does."""
    lost: dict[str, list[str]] = {}
    for row in rows:
        if row.here and row.metrics:
            for name, value in row.metrics.items():
                if value != value:  # noqa: PLR0124 (nan; a call for each number of each trial costs each tick)
                    lost.setdefault(row.name, []).append(name)
    if len(lost) == 1:
        name, metrics = next(iter(lost.items()))
        return f"{name}: {' and '.join(metrics[:2])} {'is' if len(metrics) == 1 else 'are'} nan."
    return f"{len(lost)} trials log nan: {_first(list(lost))}." if lost else ""


def _first(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_LISTED])}{', …' if len(names) > _LISTED else ''}"
