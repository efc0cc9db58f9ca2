"""The steps at which the trials of a sweep are compared, and which trial has come to which.

Trials that start together are a **cohort**. They share one stream, so they reach a rung at about the same time,
having seen the same batches: the fairest comparison there is.

| event | what follows |
|---|---|
| a trial logs the metric at or past a rung's step, for the first time | that is its value at this rung |
| ... and past further rungs, at which it had logged none | it is its value at the furthest: they count as one |
| every live trial has come to a rung, with a value since the last one decided | the rung is decided: `judge` |
| a trial has no value, and took as many samples as the others to a second rung | it is not waited for until it logs |
| a trial fails, crashes or is stopped by hand | its values no longer count, and no rung waits for it |
| a trial is done | its values stay, and no rung waits for it |

So a metric that is logged once an epoch, past ten rungs at a time, stops one part of the trials an epoch, and not all
but one of them at its first value. Of a trial that logs more seldom than others, the last value up to the rung counts.

Trials do not stand still until a rung is decided: what one logs meanwhile at a further rung counts there only if it
goes on. So within a cohort nothing depends on which trial was faster.

`Ladder` judges by successive halving: at every rung the better part goes on.

Rung r lies at step `every / keep**r`: with `every=100, keep=0.5` at 100, 200, 400, 800... Each time half of the
trials is left and trains for twice as long, so that every rung costs about the same (Jamieson and Talwalkar,
"Non-stochastic best arm identification and hyperparameter optimization", 2016).

When all live trials of a cohort (those that started together) have come to a rung, every value ever
seen there is ranked, those of earlier cohorts too. Of the cohort, those among the best `ceil(keep * all)` go on; the
others are stopped. nan is worse than any number; of equal values the trial that was started first is the better one.

Pure: events in, trials to be stopped out; `check()` holds after each.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tsnb.conducting.rule import Cut, Rule
from tsnb.records.scores import direction_of, rank

if TYPE_CHECKING:
    from tsnb.records.writes import LoggedRow

__all__ = ["Halving", "Ladder", "Rungs", "halving"]


@dataclass
class _Climber:
    """One trial on its way up."""

    cohort: int
    live: bool = True
    reached: int = 0  # rungs that it has come to
    passed: int = 0  # rungs up to the last that was decided, and it went on
    values: dict[int, float] = field(default_factory=dict)  # by rung, those at which it has one
    samples: int = 0  # taken until now
    second: int = 0  # taken when it came to its second rung with a value
    silent: bool = False  # it has no value though it has taken as many samples: it is not waited for


class Rungs(Rule):
    """One sweep's rungs. How a rung is decided is the subclass's.

    Attributes:
        metric: The logged number that decides.

    Args:
        metric: Name of the number that is compared.
    """

    def __init__(self, metric: str) -> None:
        super().__init__(metric)
        self._runners: dict[str, _Climber] = {}
        self._cohorts: list[list[str]] = []  # the names of each
        self._remarks: list[str] = []

    @abstractmethod
    def step_of(self, rung: int) -> int:
        """Return the step at which a rung lies, each further than the one before."""

    @abstractmethod
    def judge(self, rung: int, live: Sequence[str]) -> list[Cut]:
        """Decide a rung for a cohort. Called once for each cohort and rung, in their order.

        Args:
            rung: Which one, from 0.
            live: The cohort's live trials, in the order of their start; all have a value there.

        Returns:
            Those of them that are to be stopped.
        """

    @property
    def wanted(self) -> str:
        """What the trials have to do before any can be stopped early."""
        return f"{self.metric!r} was to be logged at step {self.step_of(0)}"

    @property
    def reached(self) -> bool:
        """Whether any trial has ever come to a rung."""
        return any(runner.reached for runner in self._runners.values())

    def values_at(self, rung: int) -> dict[str, float]:
        """Return the values that count at a rung, of all cohorts, in the order of their start."""
        return {name: r.values[rung] for name, r in self._runners.items() if rung in r.values}

    def start(self, names: Iterable[str]) -> None:
        """Take in trials that start together."""
        self._cohorts.append(list(names))
        for name in self._cohorts[-1]:
            self._runners[name] = _Climber(len(self._cohorts) - 1)

    def take(self, name: str, row: LoggedRow) -> list[Cut]:
        """Take what a trial logged; return the trials to stop."""
        if self.metric not in row.numbers:
            return []
        cuts, mine = self.log(name, row.step, row.numbers[self.metric]), self._runners[name]
        if len(mine.values) > 1:
            mine.second = mine.second or row.samples
        return cuts

    def learn(self, name: str, report: Mapping[str, Any]) -> None:
        """Note how many samples a trial has taken."""
        self._runners[name].samples = int(report.get("samples") or 0)

    def log(self, name: str, step: int, value: float) -> list[Cut]:
        """Take one logged value of the metric; return the trials to stop."""
        runner = self._runners[name]
        if not runner.live:
            return []
        if step >= self.step_of(runner.reached):
            while step >= self.step_of(runner.reached):
                runner.reached += 1
            runner.values[runner.reached - 1] = value
            if runner.silent:
                runner.silent = False
                runner.passed = max(r.passed for r in self._members(runner.cohort).values())
        return self._decide(runner.cohort)

    def end(self, name: str, *, withdrawn: bool) -> list[Cut]:
        """Note that a trial has ended; return the trials to stop now that no rung waits for it.

        Args:
            name: The trial.
            withdrawn: It failed, crashed or was stopped by hand: its values count no more.
        """
        runner = self._runners[name]
        if not runner.live:
            return []
        runner.live = False
        if withdrawn:
            runner.values = {}
        return self._decide(runner.cohort)

    def _members(self, cohort: int) -> dict[str, _Climber]:
        """Return the trials of one cohort: a sweep of thousands has many, and looks at one at a time."""
        runners = {name: self._runners[name] for name in self._cohorts[cohort]}
        return {name: runner for name, runner in runners.items() if runner.cohort == cohort}

    def _decide(self, cohort: int) -> list[Cut]:
        """Decide every rung that a cohort has reached as a whole."""
        cuts: list[Cut] = []
        while True:
            live = {n: r for n, r in self._members(cohort).items() if r.live}
            self._pass_over(live)
            live = {n: r for n, r in live.items() if not r.silent}
            rung = _due(list(live.values()))
            if rung is None:
                return cuts
            cuts += self._cut(rung, live)

    def _pass_over(self, live: Mapping[str, _Climber]) -> None:
        """Wait no more for trials without a value that have taken as many samples as the others to a second rung."""
        others = [runner.second for runner in live.values() if runner.values]
        mute = [
            name
            for name, runner in live.items()
            if not runner.values and not runner.silent and runner.samples >= max(others, default=0)
        ]
        if mute and others and all(others):
            for name in mute:
                live[name].silent = True
            have, them = ("has", "it") if len(mute) == 1 else ("have", "them")
            self._remarks.append(
                f"{', '.join(mute)} {have} logged no {self.metric!r} yet, so the other trials are compared "
                f"without {them}. Log it in all trials: tsnb.log({{{self.metric!r}: value}})"
            )

    def remarks(self) -> list[str]:
        """Return which trials are not waited for, each once."""
        fresh, self._remarks = self._remarks, []
        return fresh

    def _cut(self, rung: int, live: dict[str, _Climber]) -> list[Cut]:
        """Decide one rung for one cohort."""
        for runner in live.values():
            runner.values[rung] = runner.values[max(r for r in runner.values if r <= rung)]
            runner.passed = rung + 1
        cuts = self.judge(rung, list(live))
        for cut in cuts:
            gone = live[cut.name]
            gone.live = False
            # what it logged further up while it was judged here counts no more
            gone.values = {r: value for r, value in gone.values.items() if r <= rung}
        return cuts

    def check(self) -> None:
        """Check what always holds. Called by tests after every event.

        Raises:
            AssertionError: It does not.
        """
        for cohort in range(len(self._cohorts)):
            live = [r for r in self._members(cohort).values() if r.live and not r.silent]
            assert len({r.passed for r in live}) <= 1, "a cohort goes up together"
            assert _due(live) is None, "a rung waits though all are there"
        assert all(max(r.values, default=-1) < max(r.reached, r.passed) for r in self._runners.values())


def _due(live: Sequence[_Climber]) -> int | None:
    """Return the rung that a cohort can be judged at now: the first at which each has a value since the last one."""
    since = [min((r for r in runner.values if r >= runner.passed), default=None) for runner in live]
    if not live or None in since:
        return None
    rung = max(first for first in since if first is not None)
    return rung if all(runner.reached > rung for runner in live) else None


@dataclass(frozen=True)
class Halving:
    """Which trials of a sweep are stopped early. Made by `tsnb.search.halving`."""

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

    def begin(self, params: Mapping[str, Mapping[str, Any]], seed: Any) -> Ladder:
        """Return what prunes a sweep by this rule, whatever its trials' parameters and seed."""
        return Ladder(self)

    def kept(self, seen: int) -> int:
        """Return how many of `seen` values are good enough."""
        share = math.ceil(self.keep * seen - 1e-9)  # 0.1 * 30 is a little more than 3
        return max(self.at_least, share)


def halving(
    metric: str = "loss", *, every: int = 100, keep: float = 0.5, mode: str | None = None, at_least: int = 1
) -> Halving:
    """Stop the worse trials of a sweep early, at growing steps.

    At steps `every`, `every / keep`, `every / keep**2` and so on, the best `keep` of the trials continue.

    Example:
        >>> prune = tsnb.search.halving("loss", every=100)

    Args:
        metric: Number that the trials log with `tsnb.log`. Defaults to "loss".
        every: Step of the first comparison: as given to `tsnb.log(step=...)`, else the number of calls. Defaults to
            100.
        keep: Share of trials that continue, above 0 and below 1. Defaults to 0.5.
        mode: "min" if smaller is better, "max" if larger is. Defaults to `tsnb.records.direction`, else the
            metric's name.
        at_least: Number of trials that continue at every comparison. Defaults to 1.

    Returns:
        The rule for `prune=` of `tsnb.sweep`.

    Raises:
        ValueError: If a number is out of range, or `mode` is another word.
        UnknownDirection: If tsnb cannot tell whether a high or a low value of the metric is good.
    """
    if every < 1 or every != int(every):
        raise ValueError(f"every={every!r} is invalid. Pass the step of the first comparison, 1 or more.")
    if not 0.0 < keep < 1.0:
        raise ValueError(
            f"keep={keep!r} is invalid. Pass a share above 0 and below 1. For example, 0.5 keeps the "
            "better half."
        )
    if at_least < 1:
        raise ValueError(
            f"at_least={at_least!r} is invalid, because at least one trial must continue. Pass 1 or more."
        )
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
        """Return the trials of a cohort whose value at a rung is not among the best of all values seen there."""
        values = self.values_at(rung)
        # of equal ones the first started: sorted keeps their order
        ranking = sorted(values, key=lambda name: rank(values[name], self.rule.mode))
        good = self.rule.kept(len(ranking))
        cut = [name for name in live if ranking.index(name) >= good]
        return [
            Cut(name, self.step_of(rung), values[name], ranking.index(name) + 1, len(ranking)) for name in cut
        ]
