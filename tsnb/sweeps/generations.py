"""Which members of a population are replaced, and which values their clones get. Pure; `population` has the table."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tsnb.conducting.rule import Cut
from tsnb.option_kinds import COUNT
from tsnb.records.scores import direction_of, rank
from tsnb.sweeps.pruning.rungs import Rungs
from tsnb.sweeps.spaces import LogUniform, RandInt, Uniform

__all__ = ["Evolution", "Generations", "explored", "population"]

FACTORS = (0.8, 1.2)
"""What a number is multiplied by, one or the other at random: those of the paper."""


def explored(space: Mapping[str, Any], values: Mapping[str, Any], source: random.Random) -> dict[str, Any]:
    """Return values near others.

    Args:
        space: What each may be, by its name: a `Distribution`, or a list of values.
        values: Those of the parent; a name that is missing is drawn from the space.
        source: Of the random numbers.
    """
    return {name: _near(what, values.get(name), source) for name, what in space.items()}


def _near(what: Any, value: Any, source: random.Random) -> Any:
    """Return a number 0.8 or 1.2 times as large, within its range; anything else is drawn anew."""
    if isinstance(what, (list, tuple)):
        return source.choice(what)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not isinstance(what, (Uniform, LogUniform, RandInt)) or not is_number or not value:
        return what.draw(source)
    factors = list(FACTORS)
    source.shuffle(factors)
    for factor in factors:
        near = value * factor
        if isinstance(what, RandInt):
            near = round(near) if round(near) != value else value + (1 if near > value else -1)
        near = min(max(near, what.low), what.high)
        if near != value:  # at the edge of the range the other way is free
            return near
    return what.draw(source)


class Evolution(NamedTuple):
    """How a population evolves. Made by `tsnb.search.population`, for `tsnb.sweep(evolve=)`."""

    metric: str
    """The logged number that decides."""
    mode: str
    """Which of its values are better: "min" or "max"."""
    every: int
    """Steps of a generation."""
    share: float
    """Which part of the trials is replaced in a generation."""

    def begin(self, params: Mapping[str, Mapping[str, Any]], seed: Any) -> Generations:
        """Return what decides in a sweep by this rule, whatever its trials' parameters and seed."""
        return Generations(self.metric, self.mode, self.every, self.share)


def population(
    metric: str = "loss", *, every: int = 500, share: float = 0.2, mode: str | None = None
) -> Evolution:
    """Let clones of the best trials of a sweep replace the worst.

    This is population based training (Jaderberg et al. 2017). A clone takes over the net, the optimizer and the
    place in the epoch. Its live values are multiplied by 0.8 or 1.2. The function reads what is in the space by
    `tsnb.live`: `lr = tsnb.live("lr", lr)` at its top, then `float(lr)` or `lr.apply(optimizer)` once per batch.

    Example:
        >>> evolve = tsnb.search.population("loss", every=500)

    Args:
        metric: Number that the trials log. Defaults to "loss".
        every: Steps per generation: as given to `tsnb.log(step=...)`, else the number of calls. Defaults to 500.
        share: Share of trials replaced per generation, at most 0.5 and at least one trial. Defaults to 0.2.
        mode: "min" if smaller is better, "max" if larger is. Defaults to `tsnb.records.direction`, else the
            metric's name.

    Returns:
        The rule for `evolve=` of `tsnb.sweep`.

    Raises:
        ValueError: If a number is out of range, or `mode` is another word.
        UnknownDirection: If tsnb cannot tell whether a high or a low value of the metric is good.
    """
    every = COUNT.checked("every", every)
    if not 0 < share <= 0.5:
        raise ValueError(
            f"share={share!r} is invalid. Pass a number above 0 and at most 0.5, because the other trials "
            "are cloned."
        )
    return Evolution(metric, direction_of(metric, mode), every, share)


class Generations(Rungs):
    """The generations of one population, decided by truncation selection.

    Args:
        metric: The logged number that decides.
        mode: "min" or "max".
        every: Steps of a generation.
        share: Which part is replaced, and which part it is replaced by.
    """

    def __init__(self, metric: str, mode: str, every: int, share: float) -> None:
        super().__init__(metric)
        self.mode = mode
        self.every = every
        self.share = share

    def step_of(self, rung: int) -> int:
        """Return the step at which a generation is decided."""
        return self.every * (rung + 1)

    def judge(self, rung: int, live: Sequence[str]) -> list[Cut]:
        """Return the last of a generation, if others are better: a clone of one of those is to replace each."""
        values = self.values_at(rung)
        ranking = sorted(live, key=lambda name: rank(values[name], self.mode))
        few = min(max(1, round(self.share * len(live))), len(live) // 2)
        best = [name for name in ranking[:few] if not math.isnan(values[name])]
        cuts = []
        for place in range(len(ranking) - few, len(ranking)) if few else ():
            name = ranking[place]
            better = [
                other for other in best if rank(values[other], self.mode) < rank(values[name], self.mode)
            ]
            if better:
                step = self.step_of(rung)
                cuts.append(Cut(name, step, values[name], place + 1, len(ranking), parents=tuple(better)))
        return cuts

    def keep(self, name: str) -> None:
        """Let a trial that was to be replaced go on."""
        self._runners[name].live = True

    def adopt(self, name: str, parent: str) -> None:
        """Take in a clone: it has come as far as its parent."""
        runner = self._runners[parent]
        self._runners[name] = replace(runner, live=True, values=dict(runner.values))
        self._cohorts[runner.cohort].append(name)
