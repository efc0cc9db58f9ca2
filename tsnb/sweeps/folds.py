"""Cross-validation: one trial for each fold, on one stream; and mean and spread of what trials logged.

All folds run at once by default. They take their rows of the same batches, so each sample is prepared once an epoch for
all of them, where separate loaders would prepare it once for each.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tsnb.experiments.trial import Trial
from tsnb.option_kinds import TWO_OR_MORE, is_whole

__all__ = ["Score", "folds_of", "score_in", "scores_of", "scores_table"]


class Score(NamedTuple):
    """One logged number over the trials of a sweep."""

    mean: float
    """Of the last value that each trial logged."""
    spread: float
    """Their standard deviation, as of a sample (n - 1); 0 with one trial."""
    trials: int
    """How many trials have logged it and are done."""


def _score(values: list[float]) -> Score:
    if not all(math.isfinite(value) for value in values):
        return Score(math.nan, math.nan, len(values))
    return Score(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))


def scores_of(trials: Iterable[Trial]) -> dict[str, Score]:
    """Return mean and spread of every number that was logged, over the trials that are done."""
    done = [trial.metrics for trial in trials if trial.state == "done"]
    names = dict.fromkeys(name for metrics in done for name in metrics)
    return {name: _score([m[name] for m in done if name in m]) for name in names}


def score_in(scores: Mapping[str, Score], metric: str) -> Score:
    """Return one of the scores.

    Raises:
        ValueError: There is none of that name; lists those there are.
    """
    if metric not in scores:
        logged = (
            f"The trials logged {', '.join(scores)}."
            if scores
            else "No trial has finished with a logged number."
        )
        raise ValueError(
            f"No finished trial has logged {metric!r}. {logged} Log it with tsnb.log({metric}=...)"
        )
    return scores[metric]


def scores_table(scores: Mapping[str, Score], of: int) -> list[list[str]]:
    """Return the scores as a table: a row each.

    Args:
        scores: By name.
        of: How many trials there are.
    """
    rows = [
        [name, f"{score.mean:.4g}", f"{score.spread:.2g}", f"{score.trials} of {of}"]
        for name, score in scores.items()
    ]
    return [["number", "mean", "spread", "folds done"], *rows]


def folds_of(folds: int, seed: int | None) -> list[tuple[int, int, int]]:
    """Return the values of the parameter `fold`, one a trial.

    Args:
        folds: How many folds, 2 or more.
        seed: Of the split; None: 0.

    Raises:
        ValueError: Fewer than 2 folds, or a seed that is not a whole number.
    """
    folds = TWO_OR_MORE.checked("folds", folds)
    split = 0 if seed is None else seed
    if not is_whole(split):
        raise ValueError(f"seed={seed!r} is invalid. Pass a whole number.")
    return [(k, folds, split) for k in range(folds)]
