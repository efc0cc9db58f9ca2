"""Trials compared by one of their parameters: which value served best, and how sure that is."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from typing import Any

from tsnb.records.choosing import NoSuchRecord, check_metric, chosen_runs, value_of
from tsnb.records.reading import RunRecord
from tsnb.records.scores import best_of, direction_of, rank
from tsnb.records.tables import shown

__all__ = ["compare"]


def compare(
    metric: str, *, by: str, mode: str | None = None, name: str | None = None, all_runs: bool = False
) -> Any:
    """Compare trials by one of their parameters: one row a value of it, the best first.

    A trial's score is the last value that it logged, as everywhere. Columns: the parameter, trials (how many), best
    (the best score among them) and best_trial (of those that are done, if any is), mean and std of their scores (std
    from two on), best_ever (the best value that any of them ever logged). Scores that are nan count as trials, but in
    no mean.

    Args:
        metric: A logged name ("loss").
        by: A parameter ("lr"), or an option ("batch_size", "seed").
        mode: "min" where low is good, "max" where high is; left out: as `tsnb.direction` or the name says.
        name: Only the trial of this name, or the sweep; left out: all of the project.
        all_runs: Former runs of each name too, not only the last.

    Returns:
        A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.

    Raises:
        ValueError: `mode` is another word.
        UnknownDirection: Nothing says whether a high or a low value is good.
        NoSuchRecord: No trial logged that, or has such a parameter; lists what there is.
        TsnbError: The project's records cannot be read.
    """
    _, runs = chosen_runs(name, all_runs)
    check_metric(metric, runs)
    mode = direction_of(metric, mode)
    groups = grouped([run for run in runs if metric in run.metrics], by)
    rows = [(_done(members, metric), [value, *_summary(members, metric, mode)]) for value, members in groups]
    rows.sort(key=lambda pair: rank(pair[1][2], mode, done=pair[0]))
    return shown([by, "trials", "best", "best_trial", "mean", "std", "best_ever"], [row for _, row in rows])


def grouped(runs: Sequence[RunRecord], by: str) -> list[tuple[Any, list[RunRecord]]]:
    """Return runs by the value of a parameter, in the order in which the values came up; those without one left out.

    Raises:
        NoSuchRecord: None has such a parameter.
    """
    groups: dict[str, tuple[Any, list[RunRecord]]] = {}
    for run in runs:
        value = value_of(run, by)
        if value is not None:
            groups.setdefault(_key(value), (value, []))[1].append(run)
    if not groups:
        there = ", ".join(dict.fromkeys(name for run in runs for name in (*run.params, *run.options)))
        raise NoSuchRecord(f"no trial has a parameter {by!r}. Those there are: {there or 'none'}")
    return list(groups.values())


def _key(value: Any) -> str:
    """Return text that equal values share: 1 and 1.0 are the same learning rate."""
    number = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if number else value, sort_keys=True)


def _done(runs: Sequence[RunRecord], metric: str) -> bool:
    """Whether one of the runs trained to its end, and has a score."""
    return any(run.state == "done" and not math.isnan(run.metrics[metric].last) for run in runs)


def _summary(runs: Sequence[RunRecord], metric: str, mode: str) -> list[Any]:
    """Return trials, best, best_trial, mean, std, best_ever of the runs of one value."""
    records = [run.metrics[metric] for run in runs]
    scores = [record.last for record in records]
    place = best_of(
        [(str(k), run.state, score) for k, (run, score) in enumerate(zip(runs, scores, strict=True))], mode
    )
    top, name = (math.nan, None) if place is None else (scores[int(place)], runs[int(place)].name)
    numbers = [score for score in scores if not math.isnan(score)]
    peaks = [record.lowest if mode == "min" else record.highest for record in records]
    peak = min(peaks, key=lambda value: rank(value, mode), default=math.nan)
    return [len(runs), top, name, _mean(numbers), _std(numbers), peak]


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else math.nan


def _std(numbers: Sequence[float]) -> float:
    """Return the standard deviation of a sample; nan for one number, or where one is infinite."""
    certain = len(numbers) > 1 and all(map(math.isfinite, numbers))
    return statistics.stdev(numbers) if certain else math.nan
