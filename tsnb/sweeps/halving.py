"""Successive halving among trials that train together: at every rung the better part goes on.

Rung r lies at step `every / keep**r`: with `every=100, keep=0.5` at 100, 200, 400, 800... Each time half of the
trials is left and trains for twice as long, so that every rung costs about the same (Jamieson and Talwalkar,
"Non-stochastic best arm identification and hyperparameter optimization", 2016).

When all live trials of a cohort (those that started together, see `rungs`) have come to a rung, every value ever
seen there is ranked, those of earlier cohorts too. Of the cohort, those among the best `ceil(keep * all)` go on; the
others are stopped. nan is worse than any number; of equal values the trial that was started first is the better one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tsnb.records.scores import direction_of, rank
from tsnb.sweeps.rungs import Cut, Rungs

__all__ = ["Halving", "Ladder", "halving"]


@dataclass(frozen=True)
class Halving:
    """Which trials of a sweep are stopped early. Made by `tsnb.halving`."""

    metric: str
    """The logged number that decides."""
    every: int
    """The step of the first rung."""
    keep: float
    """The share that goes on at a rung."""
    mode: str
    """"min" where smaller is better, "max" where larger is."""
    at_least: int
    """So many go on at every rung."""

    def step_of(self, rung: int) -> int:
        """Return the step at which a rung lies."""
        return max(round(self.every / self.keep**rung), self.every + rung)  # no two rungs at one step

    def kept(self, seen: int) -> int:
        """Return how many of `seen` values are good enough."""
        share = math.ceil(self.keep * seen - 1e-9)  # 0.1 * 30 is a little more than 3
        return max(self.at_least, share)


def halving(
    metric: str = "loss", *, every: int = 100, keep: float = 0.5, mode: str | None = None, at_least: int = 1
) -> Halving:
    """Stop the worse trials of a sweep early: `tsnb.sweep(..., prune=tsnb.halving("loss", every=100))`.

    At steps `every`, `every / keep`, `every / keep**2`... the trials are compared by what they logged there, and the
    best `keep` of them go on.

    Args:
        metric: A number that the trials log with `tsnb.log`.
        every: The step of the first comparison: as given to `tsnb.log(step=...)`, else how often it was called.
        keep: The share that goes on, above 0 and below 1.
        mode: "min" if smaller is better, "max" if larger is; left out: as `tsnb.direction` or the name says.
        at_least: So many trials go on at every comparison.

    Returns:
        The rule, for `tsnb.sweep`.

    Raises:
        ValueError: A number is out of its range, or `mode` is another word.
        UnknownDirection: Nothing says whether a high or a low value of the metric is good.
    """
    if every < 1 or every != int(every):
        raise ValueError(f"every={every!r}: give the step of the first comparison, 1 or more.")
    if not 0.0 < keep < 1.0:
        raise ValueError(f"keep={keep!r}: give a share above 0 and below 1; 0.5 keeps the better half.")
    if at_least < 1:
        raise ValueError(f"at_least={at_least!r}: at least one trial has to go on.")
    return Halving(metric, int(every), keep, direction_of(metric, mode), at_least)


class Ladder(Rungs):
    """One sweep's rungs, decided by successive halving.

    Args:
        rule: When trials are compared, by what, and how many go on.
    """

    def __init__(self, rule: Halving) -> None:
        super().__init__(rule.metric)
        self.rule = rule

    def step_of(self, rung: int) -> int:
        """Return the step at which a rung lies."""
        return self.rule.step_of(rung)

    def judge(self, rung: int, live: Sequence[str]) -> list[Cut]:
        """Return those of a cohort whose value at a rung is not among the best of all that were seen there."""
        values = self.values_at(rung)
        # of equal ones the first started: sorted keeps their order
        ranking = sorted(values, key=lambda name: rank(values[name], self.rule.mode))
        good = self.rule.kept(len(ranking))
        cut = [name for name in live if ranking.index(name) >= good]
        return [
            Cut(name, self.step_of(rung), values[name], ranking.index(name) + 1, len(ranking)) for name in cut
        ]
