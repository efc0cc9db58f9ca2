"""Which of the trials that see the same batches is ahead now, with a bound that may be looked at after every batch.

Trials on one stream are **paired**: each batch gives a difference of two losses that owes nothing to which samples were
easy. `Racing` holds the differences of all pairs of a sweep; `race_table.Race` is what a person has in hand.

`difference` explains how a pair is decided. All pairs together have the error that was asked for: the pairs of the
k-th that takes part have `error / (k * (k - 1))`.

Nothing is concluded where trials are not paired, and the reason is said: they have no seed, or not the same one; they
began with other weights (another architecture); they had no batch in common. Weights are known by a hash of them, or by
the first values where no optimizer of torch takes a step. With 3 seeds or more each, seeds are the blocks: then a
configuration is ahead if the mean difference of its seeds is, by the same kind of evidence for normally distributed
numbers of unknown spread (Wang and Ramdas, "Anytime-valid t-tests", 2023).

Pure: it is told of trials, and asks none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tsnb.conducting.rule import Cut, Rule
from tsnb.records.writes import LoggedRow
from tsnb.sweeps.pruning.difference import BLOCK, Difference, decided_by_seeds, window_share

__all__ = ["Racing", "Verdict"]

SEEDS = 3
"""So many seeds of each of two configurations are compared where one is not enough."""

SAME = 1e-3
"""First values that differ by a larger share come from different weights, where a hash of these is not known."""

SOON, LONG = 32, 1024
"""After so many batches it is said which trials cannot be compared, and of which it is still open who is ahead."""


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

    @property
    def sure(self) -> str:
        """How sure it is where it is decided, in per cent."""
        return f"{100 * (1 - self.error):.6g}%"

    def __str__(self) -> str:
        if self.decided:
            return f"{self.ahead} is ahead of {self.behind} now, {self.sure}, after {self.batches} batches"
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
    weights: str = ""  # a hash of those it began with; empty: not known
    seen: int = 0
    first: tuple[_Key, float] | None = None
    last: tuple[int, float] = (0, math.nan)  # step, value
    pending: dict[_Key, float] = field(default_factory=dict)  # those that another one may still come to


class Racing(Rule):
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
        self._look = False
        self._said: set[str] = set()

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

    def learn(self, name: str, report: Mapping[str, Any]) -> None:
        """Note which stream a trial trains on, and with which weights it began, as far as that is known."""
        mine = self._runners[name]
        mine.stream = str(report.get("stream", "")) or mine.stream
        mine.weights = str(report.get("weights", "")) or mine.weights

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
        if value is None or row.stream_epoch is None or row.batch is None or not mine.live:
            return []
        key = _Key(row.stream_epoch, row.batch, row.samples)
        mine.last = row.step, value
        mine.first = mine.first or (key, value)
        mine.seen += 1
        self._look = self._look or mine.seen in (SOON, LONG)
        if key in mine.pending:
            return []
        mine.pending[key] = value
        changed = [pair for pair in self._pairs if name in pair and self._compare(pair, key)]
        self._forget(key)
        return changed

    def remarks(self) -> list[str]:
        """Return why trials cannot be compared, once for each kind of reason, and which are open for long."""
        if not self._look:
            return []
        self._look = False
        found: dict[str, str] = {}
        for verdict in self.verdicts():
            names = verdict.ahead_trials + verdict.behind_trials
            seen = min(self._runners[name].seen for name in names)
            if verdict.reason and seen >= SOON:
                kind = verdict.reason.partition(" (")[0]
                found.setdefault(
                    kind, f"{verdict.ahead} and {verdict.behind} cannot be compared: {verdict.reason}"
                )
            elif not verdict.decided and seen >= LONG:
                found.setdefault(
                    "open",
                    f"{verdict.ahead} and {verdict.behind} are close: after {verdict.batches} batches tsnb "
                    f"cannot tell which is ahead. Wait longer, or train each with {SEEDS} seeds",
                )
        fresh = [line for kind, line in found.items() if kind not in self._said]
        self._said.update(found)
        return fresh

    def _compare(self, pair: tuple[str, str], key: _Key) -> bool:
        one, other = (self._runners[name].pending.get(key) for name in pair)
        if one is None or other is None:
            return False
        difference = self._pairs[pair]
        level = (abs(one) + abs(other)) / 2 if one * other > 0 else 0.0
        difference.add(self._sign * _less(other, one, self._sign), level)
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
            return f"{len(pairs)} seeds in common, and with several seeds tsnb needs {SEEDS} of each"
        a, b = self._runners[mine[0]], self._runners[others[0]]
        if a.stream and b.stream and set(a.stream.split(", ")).isdisjoint(b.stream.split(", ")):
            return f"they train on two streams, {a.stream!r} and {b.stream!r}, which share no batch"
        if a.seed is None or b.seed is None:
            return "they start with different weights. Train all of them with the same seed"
        if a.seed != b.seed:
            return f"they start with different weights. Train both with the same seed, or with {SEEDS} seeds each"
        if a.first is None or b.first is None:
            return ""
        if why := self._weights_differ(a, b):
            return why
        if a.first[0] != b.first[0] and not any(held.batches for held in pairs.values()):
            return (
                "they share no batch, because they started at different batches or with different batch sizes"
            )
        return ""

    def _weights_differ(self, a: _Racer, b: _Racer) -> str:
        """Return why two did not begin with the same weights; empty if they did, as far as is known."""
        if a.weights and b.weights:
            told = (
                f"train different weights. Train each with {SEEDS} seeds, or set the seed right before the "
                "network is created"
            )
            return "" if a.weights == b.weights else f"they start with different weights, or {told}"
        if a.first is None or b.first is None:
            return ""
        (key, value), (its_key, its_value) = a.first, b.first
        if key != its_key or key.batch != 1 or _same(value, its_value):
            return ""
        return (
            f"they start with different weights ({self.metric} {value:.4g} and {its_value:.4g} at the first "
            f"batch), as different architectures do. Train each with {SEEDS} seeds"
        )


def _less(a: float, b: float, sign: float) -> float:
    """Return a - b, where no number is worse than every number: `sign` is 1 if small ones are good."""
    if math.isfinite(a) and math.isfinite(b):
        return a - b
    worse_a, worse_b = not math.isfinite(a), not math.isfinite(b)
    return 0.0 if worse_a and worse_b else sign * (math.inf if worse_a else -math.inf)


def _same(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= SAME * max(abs(a), abs(b)) or (math.isnan(a) and math.isnan(b))
