"""Cross-validation: one trial for each fold, on one stream, and the mean and spread of what they logged.

All folds run at once by default. They take their rows of the same batches, so each sample is prepared once an epoch for
all of them, where separate loaders would prepare it once for each.
"""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from tsnb.experiments.plan import name_of
from tsnb.native.endings import Bound
from tsnb.sweeps.starting import sweep
from tsnb.sweeps.sweep import Sweep
from tsnb.words import html_table, text_table

__all__ = ["CrossValidation", "Score", "crossval"]


class Score(NamedTuple):
    """One logged number over the folds."""

    mean: float
    """Of the last value that each fold logged."""
    spread: float
    """Their standard deviation, as of a sample (n - 1); 0 with one fold."""
    folds: int
    """How many folds have logged it and are done."""


class CrossValidation(Bound):
    """The trials of a cross-validation, and their scores. Shows as a table in a notebook.

    Attributes:
        sweep: The trials, one a fold.
        folds: How many folds.
        seed: Of the split.
    """

    instead = "Take its scores() along."

    def __init__(self, made: Sweep, folds: int, seed: int) -> None:
        self.sweep = made
        self.folds = folds
        self.seed = seed

    def wait(self, timeout_s: float | None = None) -> CrossValidation:
        """Wait until every fold has ended.

        Raises:
            TrialFailed: Every fold has failed; the message is the first one's.
            TimeoutError: They have not ended within `timeout_s` seconds. They go on.
        """
        self.sweep.wait(timeout_s)
        return self

    def stop(self) -> None:
        """Stop every fold."""
        self.sweep.stop()

    def scores(self) -> dict[str, Score]:
        """Return mean and spread of every number that was logged, over the folds that are done."""
        done = [trial.metrics for trial in self.sweep.values() if trial.state == "done"]
        names = dict.fromkeys(name for metrics in done for name in metrics)
        return {name: _score([m[name] for m in done if name in m]) for name in names}

    def score(self, metric: str) -> Score:
        """Return mean and spread of one number, over the folds that are done.

        Raises:
            ValueError: None of them has logged it; lists what they have logged.
        """
        scores = self.scores()
        if metric not in scores:
            logged = (
                f"They logged {', '.join(scores)}." if scores else "None is done and has logged a number."
            )
            raise ValueError(f"no fold that is done has logged {metric!r}: tsnb.log({metric}=...). {logged}")
        return scores[metric]

    def results(self) -> Any:
        """Return a table with a row a fold, as `Sweep.results`."""
        return self.sweep.results()

    def _table(self) -> list[list[str]]:
        rows = [
            [name, f"{score.mean:.4g}", f"{score.spread:.2g}", f"{score.folds} of {self.folds}"]
            for name, score in self.scores().items()
        ]
        return [["number", "mean", "spread", "folds done"], *rows]

    def __repr__(self) -> str:
        return "\n".join([*text_table(self._table()), repr(self.sweep)])

    def _repr_html_(self) -> str:
        title = f"{self.folds}-fold cross-validation, seed {self.seed}"
        return f"<p>{html.escape(title)}</p>{html_table(self._table())}{self.sweep._repr_html_()}"


def _score(values: list[float]) -> Score:
    if not all(math.isfinite(value) for value in values):
        return Score(math.nan, math.nan, len(values))
    return Score(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))


def crossval(
    train: Callable[..., Any],
    folds: int = 5,
    *,
    seed: int = 0,
    name: str | None = None,
    at_once: int | None = None,
    **options: Any,
) -> CrossValidation:
    """Run a function once for each fold, as trials on one stream, and return at once.

    Args:
        train: The function. Its argument `fold` is what `tsnb.attach(fold=fold)` takes for the samples to train on, and
            `tsnb.attach(fold=fold, held_out=True)` for those to validate on. What it logs is scored.
        folds: How many folds, 2 or more.
        seed: Of the split: the same number, the same folds, everywhere.
        name: What the trials' names begin with; by default the function's name.
        at_once: How many folds run at once; by default all, so that each sample is prepared once for all of them.
        **options: Options of `tsnb.run` and arguments of the function that are the same for all folds.

    Returns:
        The cross-validation: `wait()`, `scores()`, `score("accuracy")`, `results()`.

    Raises:
        ValueError: Fewer than 2 folds, a seed that is not a whole number, or as `tsnb.sweep`.
        TypeError: The function has no argument `fold`, or as `tsnb.sweep`.
        UndefinedNames: The function reads names that are not defined.
        NotShippable: It, or an argument, cannot travel.
    """
    for option, value, least in (("folds", folds, 2), ("seed", seed, None)):
        if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
            raise ValueError(
                f"{option}={value!r}: give a whole number{'' if least is None else f', {least} or more'}."
            )
    made = sweep(
        train,
        grid={"fold": [(k, folds, seed) for k in range(folds)]},
        name=f"{name or name_of(train)}-fold{{fold[0]}}",
        at_once=folds if at_once is None else at_once,
        **options,
    )
    return CrossValidation(made, folds, seed)
