"""What a duel's blocks say: better, worse, no difference found, or undecided; with the effect, and what it is about.

| verdict | when |
|---|---|
| better, worse | the evidence for that side passes 2 / level |
| no difference found | a mean of one standard deviation is excluded, or the interval is within `min_delta` |
| undecided | the blocks or the time are spent, it was stopped, or an arm could not be compared |

A block's difference is that of the last values that its arms logged, or of those at the same samples or time. No number
(nan, an infinite value, an arm whose code raised) is worse than any number. Where both arms have none, they are equal.
If code raises, the arm that has taken more samples by its end is the better one. The other need not go on after that.
A block whose process was killed or stopped says nothing and does not count.

Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tsnb.duels.evidence import Evidence, excluded, interval
from tsnb.text.words import strict

__all__ = ["BETTER", "NONE", "OPEN", "SHOWN", "WORSE", "Block", "DuelVerdict", "Rules", "judge"]

BETTER, WORSE, NONE, OPEN = "better", "worse", "no difference found", "undecided"

SHOWN = 8
"""Duels that a screen shows at most, the newest: a night has many, and a page asks for them every few seconds."""

BROKEN = 2
"""So many first blocks in which one arm's code raised end a duel: it would in the others too."""


@dataclass(frozen=True)
class Block:
    """One seed: what both arms came to."""

    number: int
    """Number of the block, from 1."""
    seed: int
    """Seed of both arms."""
    incumbent: float
    """Metric of the incumbent; nan if it has none."""
    candidate: float
    """Metric of the candidate; nan if it has none."""
    samples: tuple[int, int] = (0, 0)
    """Samples that the two have taken."""
    batches: tuple[int, int] = (0, 0)
    """Batches that the two have taken."""
    raised: tuple[str, str] = ("", "")
    """First line of the error of each arm whose code raised."""
    paired: str = ""
    """"weights" if both had the same batches and first weights, "batches" if only these; empty: not known."""
    outlasted: str = ""
    """The arm that took more samples than the other one, whose code raised; empty: no arm's code raised sooner."""

    def difference(self, mode: str) -> float:
        """Return how much better the candidate is; infinite if only one of the two has a number.

        Args:
            mode: "min" or "max": which values are better.
        """
        if self.outlasted:
            return math.inf if self.outlasted == "candidate" else -math.inf
        there = math.isfinite(self.incumbent), math.isfinite(self.candidate)
        if there == (True, True):
            return (self.candidate - self.incumbent) * (1 if mode == "max" else -1)
        return 0.0 if there[0] == there[1] else math.copysign(math.inf, there[1] - there[0])


@dataclass(frozen=True)
class Rules:
    """What was asked of a duel."""

    metric: str
    """Logged number that is compared."""
    mode: str
    """"min" or "max": which values are better."""
    level: float = 0.05
    """Chance of a verdict better or worse though the change makes no difference."""
    most: int = 40
    """Largest number of blocks."""
    min_delta: float | None = None
    """Smallest difference that matters, in units of the metric."""
    equal: str = ""
    """"samples" or "time" if values at the same samples or seconds are compared; empty: the last ones."""


@dataclass(frozen=True)
class DuelVerdict:
    """What a duel says after some blocks.

    Example:
        >>> duel = tsnb.duel(train, changed, metric="loss").wait()
        >>> duel.verdict.word
    """

    word: str
    """"better", "worse", "no difference found" or "undecided": of the candidate."""
    effect: float
    """Mean of the blocks' differences, candidate minus incumbent, in units of the metric."""
    interval: tuple[float, float]
    """Range of the effect, valid however often one looks."""
    evidence: float
    """Evidence for the side that has more: at most 1 in the mean if the change makes no difference."""
    needed: float
    """Evidence that decides."""
    blocks: tuple[Block, ...]
    """Blocks that count."""
    rules: Rules = field(repr=False)
    """What was asked."""
    why: str = ""
    """Why it is undecided."""
    over_time: tuple[float, ...] = field(default=(), repr=False)
    """Base-2 logarithm of the evidence after each block: above 0 for better, below 0 for worse."""

    @property
    def wins(self) -> tuple[int, int, int]:
        """Blocks in which the candidate was better, worse, and equal."""
        found = [block.difference(self.rules.mode) for block in self.blocks]
        return sum(x > 0 for x in found), sum(x < 0 for x in found), sum(x == 0 for x in found)

    @property
    def decided(self) -> bool:
        """Whether it is anything but undecided."""
        return self.word != OPEN

    @property
    def spread(self) -> float:
        """Standard deviation of the blocks' differences; nan with fewer than two."""
        found = [x for block in self.blocks if math.isfinite(x := block.difference("max"))]
        return statistics.stdev(found) if len(found) > 1 else math.nan

    @property
    def pairing(self) -> float:
        """Standard deviation of a difference of unpaired runs, as a multiple of the blocks'; nan if not known.

        2 means that pairs tell as much as four times as many separate runs.
        """
        found = [b for b in self.blocks if math.isfinite(b.incumbent) and math.isfinite(b.candidate)]
        if len(found) < 2 or not self.spread:
            return math.nan
        apart = statistics.variance(b.incumbent for b in found) + statistics.variance(
            b.candidate for b in found
        )
        return math.sqrt(apart) / self.spread

    @property
    def fewest(self) -> int:
        """Blocks that are needed at least, whatever they bring; 0 if it is decided.

        A block at most doubles the evidence, and adds at most a half to the logarithm of the evidence that no mean of
        one standard deviation is there.
        """
        if self.decided:
            return 0
        number = len(self.blocks)
        apart = math.ceil(math.log2(self.needed / self.evidence) - 1e-9)
        whole = math.log2(self.needed) if self.rules.min_delta else -2 * math.log(self.rules.level)
        return max(1, min(apart, math.ceil(whole - 1e-9) - number))

    @property
    def still(self) -> int | None:
        """Blocks that are still needed at the present pace; 0 if it is decided, None if no pace shows."""
        if self.decided:
            return 0
        number, rates = len(self.blocks), [(math.log(self.evidence), math.log(self.needed))]
        if self.rules.min_delta is None:
            sure = excluded([block.difference(self.rules.mode) for block in self.blocks])
            rates.append((sure, -math.log(self.rules.level)))
        left = [number * (goal / got - 1) for got, goal in rates if number > 2 and got > 0.1 * number]
        return max(self.fewest, math.ceil(min(left))) if left else None

    @property
    def needs(self) -> str:
        """How many more seeds are needed, in a sentence; empty if no more come."""
        if self.decided or self.why:
            return ""
        left = self.rules.most - len(self.blocks)
        if self.still is None:
            seeds = f"{self.fewest} more seed{' is' if self.fewest == 1 else 's are'} needed"
            return f"At least {seeds}. The seeds so far do not tell how many."
        said = f"About {self.still} more seed{' is' if self.still == 1 else 's are'} needed at this pace"
        return f"{said}. Only {left} are left." if self.still > left else f"{said}."

    @property
    def about(self) -> str:
        """What the verdict is about, in one sentence."""
        compared = f"the last {self.rules.metric}"
        if self.rules.equal:
            compared = f"{self.rules.metric} at equal {self.rules.equal}"
        kinds = {block.paired for block in self.blocks}
        both = "the same first weights and the same batches" if kinds == {"weights"} else "the same seed"
        if kinds == {"batches"}:
            both = "the same batches but other first weights"
        return (
            f"It compares {compared} on this data, over {len(self.blocks)} random seeds, with {both} for both "
            "arms of each seed."
        )

    @property
    def unequal(self) -> str:
        """How many times the samples of the incumbent the candidate took, in words; empty if as many."""
        mine, theirs = (sum(block.samples[arm] for block in self.blocks) for arm in (1, 0))
        if not theirs or not mine or abs(mine / theirs - 1) < 0.01 or self.rules.equal == "samples":
            return ""
        return f"The candidate took {mine / theirs:.2g} times the samples of the incumbent."

    def to_dict(self) -> dict[str, object]:
        """Return the verdict as plain values, for JSON.

        Example:
            >>> duel.verdict.to_dict()["verdict"]
        """
        low, high = self.interval
        return {
            "verdict": self.word, "effect": self.effect, "interval": [low, high], "metric": self.rules.metric,
            "mode": self.rules.mode, "evidence": self.evidence, "needed": self.needed,
            "level": self.rules.level, "seeds": len(self.blocks), "wins": self.wins[0], "losses": self.wins[1],
            "ties": self.wins[2], "spread": self.spread, "pairing": self.pairing,
            "samples": sum(sum(block.samples) for block in self.blocks),
            "batches": sum(sum(block.batches) for block in self.blocks),
            "still": self.still, "why": self.why, "about": f"{self.about} {self.unequal}".strip(),
        }  # fmt: skip

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What each block came to and says, as every screen and file names it."""
        found = []
        for block, log in zip(self.blocks, self.over_time, strict=True):
            found.append(
                {
                    "block": block.number, "seed": block.seed, "incumbent": block.incumbent,
                    "candidate": block.candidate, "difference": block.candidate - block.incumbent,
                    "favours": _side(block.difference(self.rules.mode)), "evidence": 2.0 ** abs(log),
                    "for": _side(log),
                }
            )  # fmt: skip
        return found

    def told(self, name: str, *, over: bool) -> dict[str, Any]:
        """Return all that screens show of a duel, as strict JSON: numbers that are none become null.

        Args:
            name: The duel's.
            over: Whether the verdict is final.
        """
        state = self.word if over or self.decided else "running"
        said = f"So far {self}" if state == "running" else str(self)
        facts = {
            "duel": name, "over": over, "state": state, "said": said, "needs": "" if over else self.needs
        }  # fmt: skip
        found = strict({**facts, **self.to_dict(), "most": self.rules.most, "blocks": self.rows})
        assert isinstance(found, dict)
        return found

    def __str__(self) -> str:
        wins, losses, ties = self.wins
        seeds = f"{len(self.blocks)} seed{'' if len(self.blocks) == 1 else 's'}"
        said = f"{self.word} after {seeds}"
        if self.blocks:
            low, high = self.interval
            range_ = f" ({low:+.3g} to {high:+.3g})" if math.isfinite(low + high) else ""
            said += f": {self.rules.metric} {self.effect:+.3g}{range_}, {wins} better, {losses} worse"
            said += f", {ties} equal" if ties else ""
        if self.why:
            said += f". {self.why[0].upper()}{self.why[1:]}"
        return said


def judge(blocks: Sequence[Block], rules: Rules, *, ended: str = "") -> DuelVerdict:
    """Return what some blocks say.

    Example:
        >>> rules = Rules("acc", "max")
        >>> judge([Block(k, k, 0.5, 0.5 + 0.01 * k) for k in range(1, 8)], rules).word
        'better'

    Args:
        blocks: Those that count, in the order in which they ended: to swap the arms of a block changes nothing of it.
            Later ones never change a verdict that stands.
        rules: What was asked.
        ended: Why no more come; empty while they do.
    """
    differences = [block.difference(rules.mode) for block in blocks]
    found = Evidence(differences)
    needed = math.log(2 / rules.level)
    word, number = OPEN, len(blocks)
    for at in range(number):
        if max(found.above[at], found.below[at]) >= needed:
            word, number = (BETTER if found.above[at] > found.below[at] else WORSE), at + 1
        elif _nothing(differences[: at + 1], rules, last=at + 1 == number):
            word, number = NONE, at + 1
        if word != OPEN:
            break
    counted = tuple(blocks[:number])
    broken = _broken(counted) if word == OPEN else ""
    most = f"all {rules.most} seeds are spent" if word == OPEN and number >= rules.most else ""
    last = max(found.above[number - 1], found.below[number - 1]) if number else 0.0
    return DuelVerdict(
        word,
        _mean(counted),
        _range(differences[:number], rules),
        math.exp(min(last, 700.0)),
        2 / rules.level,
        counted,
        rules,
        why="" if word != OPEN else broken or most or ended,
        over_time=tuple(
            (above if above >= below else -below) / math.log(2)
            for above, below in zip(found.above[:number], found.below[:number], strict=True)
        ),
    )


def _nothing(differences: Sequence[float], rules: Rules, *, last: bool) -> bool:
    """Return whether a difference that matters is excluded."""
    if rules.min_delta is not None:
        if not last:  # it was looked at when this block was the last
            return False
        low, high = interval(differences, rules.level)
        return -rules.min_delta < low and high < rules.min_delta
    return excluded(differences) >= -math.log(rules.level)


def _broken(blocks: Sequence[Block]) -> str:
    """Return which arm's code raises; empty if it is neither, or there are too few blocks to know."""
    for arm, name in enumerate(("incumbent", "candidate")):
        errors = [block.raised[arm] for block in blocks if block.raised[arm]]
        if len(errors) == len(blocks) >= BROKEN:
            return f"the {name} failed with every seed: {errors[-1]}"
    return ""


def _side(value: float) -> str:
    return BETTER if value > 0 else WORSE if value < 0 else ""


def _mean(blocks: Sequence[Block]) -> float:
    found = [b.candidate - b.incumbent for b in blocks if math.isfinite(b.candidate - b.incumbent)]
    return statistics.fmean(found) if found else math.nan


def _range(differences: Sequence[float], rules: Rules) -> tuple[float, float]:
    low, high = interval(differences, rules.level)
    return (low, high) if rules.mode == "max" else (-high, -low)
