"""Trials compared by one of their parameters: which value served best, and how sure that is."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from typing import Any

from tsnb.records.choosing import NoSuchRecord, check_metric, chosen_runs, value_of
from tsnb.records.reading import RunRecord
from tsnb.records.tables import shown

__all__ = ["compare"]


def compare(
    metric: str, *, by: str, best: str = "min", name: str | None = None, all_runs: bool = False
) -> Any:
    """Compare trials by one of their parameters: one row a value of it, the best first.

    A trial's score is the best value it ever logged. Columns: the parameter, trials (how many), best (the best
    score among them), best_trial, mean and std of their scores (std from two on), last (mean of the last values).
    Scores that are nan count as trials, but in no mean.

    Args:
        metric: A logged name ("loss").
        by: A parameter ("lr"), or an option ("batch_size", "seed").
        best: "min" where low is good, "max" where high is.
        name: Only the trial of this name, or the sweep; left out: all of the project.
        all_runs: Former runs of each name too, not only the last.

    Returns:
        A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.

    Raises:
        ValueError: `best` is neither.
        NoSuchRecord: No trial logged that, or has such a parameter; lists what there is.
        TsnbError: The project's records cannot be read.
    """
    if best not in {"min", "max"}:
        raise ValueError(
            f"best={best!r}: write 'min' where a low {metric} is good, 'max' where a high one is"
        )
    _, runs = chosen_runs(name, all_runs)
    check_metric(metric, runs)
    groups = grouped([run for run in runs if metric in run.metrics], by)
    rows = [[value, *_summary(members, metric, best)] for value, members in groups]
    sign = 1 if best == "min" else -1
    rows.sort(key=lambda row: (math.isnan(row[2]), sign * row[2]))
    return shown([by, "trials", "best", "best_trial", "mean", "std", "last"], rows)


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


def _summary(runs: Sequence[RunRecord], metric: str, best: str) -> list[Any]:
    """Return trials, best, best_trial, mean, std, last of the runs of one value."""
    records = [run.metrics[metric] for run in runs]
    scores = [record.lowest if best == "min" else record.highest for record in records]
    known = [(score, run.name) for score, run in zip(scores, runs, strict=True) if not math.isnan(score)]
    choose = min if best == "min" else max
    top, name = choose(known, key=lambda pair: pair[0], default=(math.nan, None))
    numbers = [score for score, _ in known]
    last = [record.last for record in records if not math.isnan(record.last)]
    return [len(runs), top, name, _mean(numbers), _std(numbers), _mean(last)]


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else math.nan


def _std(numbers: Sequence[float]) -> float:
    """Return the standard deviation of a sample; nan for one number, or where one is infinite."""
    certain = len(numbers) > 1 and all(map(math.isfinite, numbers))
    return statistics.stdev(numbers) if certain else math.nan
