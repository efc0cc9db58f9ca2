"""Which of the trials that see the same batches is ahead now, with a bound that may be looked at after every batch.

Trials on one stream are **paired**: each batch gives a difference of two losses that owes nothing to which samples were
easy. `Racing` holds the differences of all pairs of a sweep; `Race` is what a person has in hand, and the rule for
`tsnb.sweep(..., prune=...)`.

`difference` explains how a pair is decided. All pairs together have the error that was asked for: the pairs of the
k-th that takes part have `error / (k * (k - 1))`.

Nothing is concluded where trials are not paired, and the reason is said: they have no seed, or not the same one; their
first values differ, so they began with other weights (another architecture); they had no batch in common. With 3 seeds
or more each, seeds are the blocks: then a configuration is ahead if the mean difference of its seeds is, by the same
kind of evidence for normally distributed numbers of unknown spread (Wang and Ramdas, "Anytime-valid t-tests", 2023).

Pure, except for `Race.look`, which reads the trials of this process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

from tsnb.experiments import trials as board
from tsnb.experiments.trial import ENDED, Trial
from tsnb.records.scores import direction_of
from tsnb.records.writes import LoggedRow
from tsnb.sweeps.difference import BLOCK, Difference, decided_by_seeds, window_share
from tsnb.sweeps.rungs import Cut, Pruner
from tsnb.words import html_table, text_table

__all__ = ["Race", "Racing", "Verdict", "race"]

SEEDS = 3
"""So many seeds of each of two configurations are compared where one is not enough."""

SAME = 1e-3
"""First values that differ by a larger share come from different weights."""


@dataclass(frozen=True)
class Verdict:
    """The state of two trials, or of two configurations by several seeds."""

    ahead: str
    """The one that is ahead now; of two that are level, the one that was there first."""
    behind: str
    """The other one."""
    decided: bool
    """Whether it is so, with the wanted error."""
    error: float
    """The chance that any verdict of this race is wrong."""
    batches: int
    """How many batches both have seen, each at the same place of its training."""
    reason: str = ""
    """Why nothing can be concluded, and what to do; empty where it can, or could with more batches."""
    ahead_trials: tuple[str, ...] = ()
    """The names of all trials that `ahead` stands for: one, or one for each seed."""
    behind_trials: tuple[str, ...] = ()
    """The names of all trials that `behind` stands for."""

    def __str__(self) -> str:
        if self.decided:
            return (
                f"{self.ahead} is ahead of {self.behind} now, {_percent(self)}, after {self.batches} batches"
            )
        why = self.reason or f"open after {self.batches} batches"
        return f"{self.ahead} and {self.behind}: {why}"


class _Key(NamedTuple):
    """A place in the training: two that have one in common have seen the same batch, at the same age."""

    epoch: int
    batch: int
    samples: int


@dataclass
class _Racer:
    """One trial of a race."""

    configuration: str
    seed: Any
    stream: str
    live: bool = True
    first: tuple[_Key, float] | None = None
    last: tuple[int, float] = (0, math.nan)  # step, value
    pending: dict[_Key, float] = field(default_factory=dict)  # those that another one may still come to


class Racing(Pruner):
    """All pairs of one race.

    Args:
        metric: The logged number that decides.
        mode: Which of its values are better: "min" or "max".
        error: The chance that any verdict is wrong, ever.
        about: Returns a trial's parameters and its seed.
    """

    def __init__(
        self,
        metric: str,
        mode: str,
        error: float,
        about: Callable[[str], tuple[Mapping[str, Any], Any]] = lambda _: ({}, None),
    ) -> None:
        super().__init__(metric)
        self.error = error
        self._about = about
        self._sign = 1.0 if mode == "min" else -1.0
        self._runners: dict[str, _Racer] = {}
        self._configurations: list[str] = []
        self._pairs: dict[tuple[str, str], Difference] = {}

    @property
    def wanted(self) -> str:
        """What the trials have to do before any can be stopped early."""
        return f"{self.metric!r} was to be logged by two trials at the same batches"

    @property
    def reached(self) -> bool:
        """Whether any two have been compared."""
        return any(pair.batches for pair in self._pairs.values())

    def enter(self, name: str, params: Mapping[str, Any], seed: Any, stream: str = "") -> None:
        """Take a trial in; one of that name before is forgotten.

        Args:
            name: Its name.
            params: Its parameters.
            seed: What its random numbers began with; None: nothing in particular.
            stream: The stream that it trains on, or several with ", " between them; empty: not known yet.
        """
        if name in self._runners:
            del self._runners[name]
            self._pairs = {pair: held for pair, held in self._pairs.items() if name not in pair}
        configuration = repr(sorted((word, repr(value)) for word, value in params.items() if word != "seed"))
        if configuration not in self._configurations:
            self._configurations.append(configuration)
        mine = _Racer(configuration, params.get("seed", seed), stream)
        for other, runner in self._runners.items():
            if runner.configuration != configuration and runner.seed == mine.seed is not None:
                self._pairs[other, name] = Difference(self._error_of(runner.configuration, configuration))
        self._runners[name] = mine

    def trains_on(self, name: str, stream: str) -> None:
        """Note which stream a trial trains on, where that was not known when it was taken in."""
        self._runners[name].stream = stream

    def _error_of(self, one: str, other: str) -> float:
        later = max(self._configurations.index(one), self._configurations.index(other)) + 1
        return self.error / (later * (later - 1) ** 2)

    def start(self, names: Iterable[str]) -> None:
        """Take in trials that start together."""
        for name in names:
            params, seed = self._about(name)
            self.enter(name, params, seed)

    def take(self, name: str, row: LoggedRow) -> list[Cut]:
        """Take what a trial logged; return the trials to stop: those that another is ahead of now."""
        return self._cuts(self.watch(name, row))

    def watch(self, name: str, row: LoggedRow) -> list[tuple[str, str]]:
        """Take what a trial logged; return the pairs of which there may be something new to say."""
        mine, value = self._runners[name], row.numbers.get(self.metric)
        if value is None or row.epoch is None or row.batch is None or not mine.live:
            return []
        key = _Key(row.epoch, row.batch, row.samples)
        mine.last = row.step, value
        mine.first = mine.first or (key, value)
        if key in mine.pending:
            return []
        mine.pending[key] = value
        changed = [pair for pair in self._pairs if name in pair and self._compare(pair, key)]
        self._forget(key)
        return changed

    def _compare(self, pair: tuple[str, str], key: _Key) -> bool:
        one, other = (self._runners[name].pending.get(key) for name in pair)
        if one is None or other is None:
            return False
        difference = self._pairs[pair]
        difference.add(self._sign * _less(other, one, self._sign))
        return difference.batches % BLOCK == 0

    def _forget(self, key: _Key) -> None:
        """Let go of values that everybody has come to."""
        there = [runner for runner in self._runners.values() if runner.live]
        if len(there) > 1 and all(key in runner.pending for runner in there):
            for runner in self._runners.values():
                runner.pending.pop(key, None)

    def _cuts(self, changed: Iterable[tuple[str, str]]) -> list[Cut]:
        there = {frozenset(self._runners[name].configuration for name in pair) for pair in changed}
        pairs = [pair for pair in self._in_order() if frozenset(pair) in there]
        cuts = []
        for name, verdict in self.losers([self._verdict(*pair) for pair in pairs]):
            self._runners[name].live = False
            step, value = self._runners[name].last
            cuts.append(Cut(name, step, value, 2, 2, str(verdict)))
        return cuts

    def losers(self, verdicts: Iterable[Verdict]) -> list[tuple[str, Verdict]]:
        """Return the running trials that another running one is ahead of, each once, with the verdict that says so.

        A trial that an earlier verdict stops is running no more for the later ones: one is always left.
        """
        found: dict[str, Verdict] = {}
        running = {name for name, runner in self._runners.items() if runner.live}
        for verdict in verdicts:
            if verdict.decided and not running.isdisjoint(verdict.ahead_trials):
                lost = [name for name in verdict.behind_trials if name in running]
                found.update(dict.fromkeys(lost, verdict))
                running.difference_update(lost)
        return [*found.items()]

    def end(self, name: str, *, withdrawn: bool) -> list[Cut]:
        """Note that a trial has ended: others stay as they are.

        Args:
            name: The trial.
            withdrawn: It failed or was stopped by hand.
        """
        self._runners[name].live = False
        return []

    def _members(self, configuration: str) -> tuple[str, ...]:
        return tuple(name for name, runner in self._runners.items() if runner.configuration == configuration)

    @staticmethod
    def _label(names: Sequence[str]) -> str:
        first, *others = names
        return f"{first} (with {len(others)} further seeds)" if others else first

    def verdicts(self) -> list[Verdict]:
        """Return the state of every two trials, or of two configurations by their seeds."""
        return [self._verdict(one, other) for one, other in self._in_order()]

    def _in_order(self) -> list[tuple[str, str]]:
        """Return every two configurations that have trials."""
        there = [one for one in self._configurations if self._members(one)]
        return [(one, other) for at, other in enumerate(there) for one in there[:at]]

    def _verdict(self, one: str, other: str) -> Verdict:
        pairs = {
            (a, b): held
            for (a, b), held in self._pairs.items()
            if {self._runners[a].configuration, self._runners[b].configuration} == {one, other}
        }
        batches = min((held.batches for held in pairs.values()), default=0)
        if len(pairs) >= SEEDS:
            side = self._by_seeds(one, other, pairs)
            reason = ""
        else:
            reason = self._unpaired(one, other, pairs)
            held = next(iter(pairs.values()), None)
            side = 0 if reason or held is None else held.ahead
            if pairs and self._runners[next(iter(pairs))[0]].configuration != one:
                side = -side
        ahead, behind = (self._members(one), self._members(other))[:: 1 if side >= 0 else -1]
        return Verdict(
            self._label(ahead), self._label(behind), side != 0, self.error, batches, reason, ahead, behind
        )

    def _by_seeds(self, one: str, other: str, pairs: Mapping[tuple[str, str], Difference]) -> int:
        """Return 1 if the first of two configurations is ahead, -1 if the other one is, 0 if that is open."""
        windows = min(len(held.means) for held in pairs.values())
        if not windows:
            return 0
        means = [
            held.means[windows - 1] * (1 if self._runners[names[0]].configuration == one else -1)
            for names, held in pairs.items()
        ]
        return decided_by_seeds(means, self._error_of(one, other) * window_share(windows - 1))

    def _unpaired(self, one: str, other: str, pairs: Mapping[tuple[str, str], Difference]) -> str:
        """Return why two configurations cannot be compared; empty if they can."""
        mine, others = self._members(one), self._members(other)
        if len(mine) > 1 or len(others) > 1:
            return f"{len(pairs)} seeds in common; {SEEDS} of each are needed where there is more than one"
        a, b = self._runners[mine[0]], self._runners[others[0]]
        if a.stream and b.stream and set(a.stream.split(", ")).isdisjoint(b.stream.split(", ")):
            return f"they train on two streams, {a.stream!r} and {b.stream!r}: no batch is the same"
        if a.seed is None or b.seed is None:
            return "they begin with different weights: give all of them the same seed"
        if a.seed != b.seed:
            return f"they begin with different weights: give both one seed, or {SEEDS} seeds each"
        if a.first is None or b.first is None:
            return ""
        (key, value), (its_key, its_value) = a.first, b.first
        if key.batch == its_key.batch == 1 and key == its_key and not _same(value, its_value):
            return (
                f"they begin with different weights ({self.metric} {value:.4g} and {its_value:.4g} at the first "
                f"batch), as different architectures do: give each {SEEDS} seeds"
            )
        if key != its_key and not any(held.batches for held in pairs.values()):
            return "they have no batch in common: they began at different ones, or with different batch sizes"
        return ""


def _less(a: float, b: float, sign: float) -> float:
    """Return a - b, where no number is worse than every number: `sign` is 1 if small ones are good."""
    if math.isfinite(a) and math.isfinite(b):
        return a - b
    worse_a, worse_b = not math.isfinite(a), not math.isfinite(b)
    return 0.0 if worse_a and worse_b else sign * (math.inf if worse_a else -math.inf)


def _same(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= SAME * max(abs(a), abs(b)) or (math.isnan(a) and math.isnan(b))


class Race:
    """Which trials are ahead now: shows as a table of verdicts, up to date each time it is shown. Made by `tsnb.race`.

    Attributes:
        metric: The logged number that decides.
        error: The chance that any verdict is wrong, however often it is looked at.
        mode: Which values are better: "min" or "max".

    Args:
        metric: The same.
        error: The same.
        mode: The same.
        of: Names of the trials; None: those of this notebook that run, and those that ran when it was last shown.
    """

    def __init__(self, metric: str, error: float, mode: str, of: Sequence[str] | None = None) -> None:
        self.metric = metric
        self.error = error
        self.mode = mode
        self._of = None if of is None else tuple(of)
        self._racing = Racing(metric, mode, error)
        self._taken: dict[str, tuple[int, int]] = {}  # the trial's run, and how many of its rows

    def begin(self, params: Mapping[str, Mapping[str, Any]], seed: Any) -> Racing:
        """Return what prunes a sweep by this rule.

        Args:
            params: The parameters of each trial by its name; may grow.
            seed: What the random numbers of all begin with; None: nothing in particular.

        Raises:
            ValueError: The trials would begin with different weights, so that nothing could be concluded.
        """
        if seed is None and any("seed" not in own for own in params.values()):
            raise ValueError(
                "prune=tsnb.race(...) compares trials that begin with the same weights: give the sweep a seed "
                f"(seed=0), or {SEEDS} and more as a parameter (grid={{'seed': [0, 1, 2]}}). Nothing was started."
            )
        return Racing(self.metric, self.mode, self.error, lambda name: (params[name], seed))

    def look(self) -> list[Verdict]:
        """Return the state of every two trials now: those that are decided first.

        Raises:
            NoSuchTrial: No trial has a given name.
        """
        if self._of is not None:
            some = [board[name] for name in self._of]
        else:
            some = [
                trial
                for trial in board.values()
                if trial.state in {"running", "paused"} or trial.name in self._taken
            ]
        rows = {trial: trial.metrics.rows for trial in some}
        for (
            trial
        ) in some:  # all of them, before the first is read: nothing is forgotten that one may still come to
            self._enter(trial, bool(rows[trial]))
        for trial in some:
            self._read(trial, rows[trial])
        return sorted(self._racing.verdicts(), key=lambda verdict: not verdict.decided)

    def _enter(self, trial: Trial, logs: bool) -> None:
        stream = str(trial.report.get("stream", ""))
        if logs and self._taken.get(trial.name, (0, 0))[0] != trial.number:
            self._racing.enter(trial.name, trial.params, trial.options.get("seed"), stream)
            self._taken[trial.name] = trial.number, 0
        elif trial.name in self._taken and stream:
            # a trial's first rows may come before the report that says it
            self._racing.trains_on(trial.name, stream)

    def _read(self, trial: Trial, rows: Sequence[LoggedRow]) -> None:
        if trial.name not in self._taken:
            return
        for row in rows[self._taken[trial.name][1] :]:
            self._racing.watch(trial.name, row)
        self._taken[trial.name] = trial.number, len(rows)
        if trial.state in ENDED:
            self._racing.end(trial.name, withdrawn=False)

    def end_losers(self) -> list[str]:
        """Stop every running trial that another running one is ahead of now; return their names."""
        behind = [name for name, _ in self._racing.losers(self.look())]
        for name in behind:
            board[name].stop()
        return behind

    def _rows(self) -> list[list[str]]:
        rows = [["now", "sure", "batches"]]
        for verdict in self.look():
            if verdict.decided:
                now, sure = f"{verdict.ahead} is ahead of {verdict.behind}", _percent(verdict)
            else:
                now, sure = f"{verdict.ahead}, {verdict.behind}", verdict.reason or "open"
            rows.append([now, sure, str(verdict.batches)])
        return rows

    def __repr__(self) -> str:
        rows = self._rows()
        return "\n".join(text_table(rows)) if rows[1:] else f"no two trials have logged {self.metric!r} yet"

    def _repr_html_(self) -> str:
        rows = self._rows()
        return html_table(rows) if rows[1:] else f"<p>{escape(repr(self))}</p>"


def _percent(verdict: Verdict) -> str:
    return f"{100 * (1 - verdict.error):.6g} %"


def race(
    metric: str = "loss", *, error: float = 0.01, mode: str | None = None, trials: Sequence[str] | None = None
) -> Race:
    """Say which trials are ahead now, and end those that are behind: `tsnb.sweep(..., prune=tsnb.race("loss"))`.

    Trials on one stream are compared batch by batch. A verdict may be looked at after every batch: the chance that any
    of them is ever wrong is at most `error`. A trial that is ahead now need not be at the end;
    for that compare at the end of an epoch, or use `tsnb.halving`, which leaves the rest more time at each step.

    Args:
        metric: A number that the trials log for every batch with `tsnb.log`.
        error: The chance that a verdict is wrong, above 0 and below 0.5.
        mode: "min" if smaller is better, "max" if larger is; left out: as `tsnb.direction` or the name says.
        trials: Names of the trials to compare; left out: those of this notebook that run.

    Returns:
        A table of verdicts that is up to date each time it is shown; `look()`, `end_losers()`. Also the rule for
        `prune=`.

    Raises:
        ValueError: `error` is out of its range, or `mode` is another word.
        UnknownDirection: Nothing says whether a high or a low value of the metric is good.
    """
    if not 0.0 < error < 0.5:
        raise ValueError(
            f"error={error!r}: give the chance of a wrong verdict, above 0 and below 0.5; 0.01 is 1 %."
        )
    return Race(metric, error, direction_of(metric, mode), trials)
