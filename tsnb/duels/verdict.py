"""What a duel's blocks say: better, worse, no difference found, or undecided; with the effect, and what it is about.

| verdict | when |
|---|---|
| better, worse | the evidence for that side passes 2 / level |
| no difference found | a mean of one standard deviation is excluded, or the interval is within `min_delta` |
| undecided | the blocks or the time are spent, it was stopped, or an arm could not be compared |

A block's difference is that of the last values that its arms logged, or of those at the same samples or time. No number
(nan, an infinite value, an arm whose code raised) is worse than any number. Where both arms have none, the block says
nothing: it is no tie, and no part of the evidence. This keeps the error, because the rule treats both arms alike.
If code raises, the arm that has taken more samples by its end is the better one. The other need not go on after that.
A block whose process was killed or stopped does not count.

Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from tsnb.duels.evidence import Evidence, excluded, interval
from tsnb.duels.seeds import ARMS, Block, Rules, broken
from tsnb.text.words import strict

__all__ = ["BETTER", "NONE", "OPEN", "SHOWN", "WORSE", "DuelVerdict", "judge", "signed"]

BETTER, WORSE, NONE, OPEN = "better", "worse", "no difference found", "undecided"

SHOWN = 8
"""Duels that a screen shows at most, the newest: a night has many, and a page asks for them every few seconds."""


@dataclass(frozen=True)
class DuelVerdict:
    """What a duel says after some blocks.

    Example:
        >>> duel = tsnb.duel(train, changed, metric="loss").wait()
        >>> duel.verdict.word
    """

    word: str
    """"better", "worse", "no difference found" or "undecided": of the candidate."""
    effect: float | None
    """Mean of the blocks' differences, candidate minus incumbent, in units of the metric; None if there is none."""
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
    over_time: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    """Logarithms of the evidence after each block: for better, and for worse. Both may be below 0."""
    name: str = field(default="", repr=False)
    """The duel's name, which the names of its trials begin with."""

    @property
    def differences(self) -> list[float]:
        """How much better the candidate is, of each block that says something."""
        return [block.difference(self.rules.mode) for block in self.blocks if not block.silent]

    @property
    def wins(self) -> tuple[int, int, int]:
        """Blocks in which the candidate was better, worse, and equal."""
        found = self.differences
        return sum(x > 0 for x in found), sum(x < 0 for x in found), sum(x == 0 for x in found)

    @property
    def neither(self) -> int:
        """Blocks in which neither arm has a number: they say nothing."""
        return sum(block.silent for block in self.blocks)

    @property
    def broken(self) -> bool:
        """Whether an arm failed in every block, or neither has a number in any of them."""
        return not self.decided and bool(broken(self.blocks, self.rules))

    @property
    def compared(self) -> bool:
        """Whether the blocks compare the two arms: some have a number, and no arm failed in all of them."""
        return bool(self.differences) and not self.broken

    @property
    def same(self) -> bool:
        """Whether both arms have exactly the same number in every block."""
        return bool(self.blocks) and not self.neither and not any(self.differences)

    @property
    def decided(self) -> bool:
        """Whether it is anything but undecided."""
        return self.word != OPEN

    @property
    def spread(self) -> float | None:
        """Standard deviation of the blocks' differences; None with fewer than two."""
        found = [x for x in self.differences if math.isfinite(x)]
        return statistics.stdev(found) if len(found) > 1 else None

    @property
    def pairing(self) -> float | None:
        """Standard deviation of a difference of unpaired runs, as a multiple of the blocks'.

        2 means that pairs tell as much as four times as many separate runs. None with fewer than two pairs, and if all
        differences are equal.
        """
        found = [b for b in self.blocks if math.isfinite(b.incumbent) and math.isfinite(b.candidate)]
        if len(found) < 2 or not self.spread:
            return None
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
        number = len(self.differences)
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
            sure = excluded(self.differences)
            rates.append((sure, -math.log(self.rules.level)))
        left = [number * (goal / got - 1) for got, goal in rates if number > 2 and got > 0.1 * number]
        return max(self.fewest, math.ceil(min(left))) if left else None

    @property
    def needs(self) -> str:
        """What it takes to decide, in a sentence or two; empty if it is decided.

        While the duel runs, how many more seeds are needed. At an undecided end, how to go on too.
        """
        return _needs(self)

    @property
    def about(self) -> str:
        """What the verdict is about, in one sentence; empty if the blocks do not compare the arms."""
        if not self.compared:
            return ""
        compared = f"the last {self.rules.metric}"
        if self.rules.equal:
            compared = f"{self.rules.metric} at equal {self.rules.equal}"
        kinds = {block.paired for block in self.blocks}
        both = "the same seed" if "" in kinds else "the same batches"
        if kinds == {"weights"}:
            both = "the same first weights and the same batches"
        if kinds == {"other weights"}:
            both = "the same batches but other first weights"
        return (
            f"It compares {compared} on this data, over {len(self.blocks)} random seeds, with {both} for both "
            "arms of each seed."
        )

    @property
    def unequal(self) -> str:
        """How many times the samples of the incumbent the candidate took, in words; empty if as many."""
        mine, theirs = (sum(block.samples[arm] for block in self.blocks) for arm in (1, 0))
        if self.rules.equal or not self.compared or not theirs or not mine or abs(mine / theirs - 1) < 0.01:
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
            "ties": self.wins[2], "neither": self.neither, "spread": self.spread, "pairing": self.pairing,
            "samples": sum(sum(block.samples) for block in self.blocks),
            "batches": sum(sum(block.batches) for block in self.blocks),
            "still": self.still, "why": self.why, "needs": self.needs,
            "about": f"{self.about} {self.unequal}".strip(),
        }  # fmt: skip

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What each block came to and says, as every screen and file names it."""
        found = []
        for block, (better, worse) in zip(self.blocks, self.over_time, strict=True):
            most = max(better, worse)
            found.append(
                {
                    "block": block.number, "seed": block.seed, "incumbent": block.incumbent,
                    "candidate": block.candidate, "difference": block.candidate - block.incumbent,
                    "favours": _side(block.difference(self.rules.mode)), "evidence": math.exp(min(most, 700.0)),
                    "for": _side(better - worse) if most > 0 else "",
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
        facts = {"duel": name, "over": over, "state": state, "said": self.sentence(over=over)}
        found = strict({**facts, **self.to_dict(), "most": self.rules.most, "blocks": self.rows})
        assert isinstance(found, dict)
        return found

    def sentence(self, *, over: bool) -> str:
        """Return `said`, and before a verdict is final that it is what was found so far.

        Args:
            over: Whether the duel has ended.
        """
        return self.said if over or self.decided else f"So far {self.said}"

    @property
    def said(self) -> str:
        """The verdict in a sentence or two, without what to do next (`needs`)."""
        return _said(self)

    def __str__(self) -> str:
        return f"{self.said.rstrip('.')}. {self.needs}" if self.why and self.needs else self.said


def judge(blocks: Sequence[Block], rules: Rules, *, ended: str = "", name: str = "") -> DuelVerdict:
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
        name: The duel's name.
    """
    said = [block.difference(rules.mode) for block in blocks if not block.silent]
    found, counts = Evidence(said), list(accumulate(not block.silent for block in blocks))
    above, below = ([side[n - 1] if n else 0.0 for n in counts] for side in (found.above, found.below))
    needed = math.log(2 / rules.level)
    word, number = OPEN, len(blocks)
    for at, count in enumerate(counts):
        if max(above[at], below[at]) >= needed:
            word, number = (BETTER if above[at] > below[at] else WORSE), at + 1
        elif _nothing(said[:count], rules, last=at + 1 == number):
            word, number = NONE, at + 1
        if word != OPEN:
            break
    counted = tuple(blocks[:number])
    failed = broken(counted, rules) if word == OPEN else ""
    most = f"all {rules.most} seeds are spent" if word == OPEN and number >= rules.most else ""
    last = max(above[number - 1], below[number - 1]) if number else 0.0
    return DuelVerdict(
        word,
        _mean(counted),
        _range(said[: counts[number - 1]] if number else [], rules),
        math.exp(min(last, 700.0)),
        2 / rules.level,
        counted,
        rules,
        why="" if word != OPEN else failed or most or ended,
        over_time=tuple(zip(above[:number], below[:number], strict=True)),
        name=name,
    )


def _nothing(differences: Sequence[float], rules: Rules, *, last: bool) -> bool:
    """Return whether a difference that matters is excluded."""
    if rules.min_delta is not None:
        if not last:  # it was looked at when this block was the last
            return False
        low, high = interval(differences, rules.level)
        return -rules.min_delta < low and high < rules.min_delta
    return excluded(differences) >= -math.log(rules.level)


def _side(value: float) -> str:
    return BETTER if value > 0 else WORSE if value < 0 else ""


def _mean(blocks: Sequence[Block]) -> float | None:
    found = [b.candidate - b.incumbent for b in blocks if math.isfinite(b.candidate - b.incumbent)]
    return statistics.fmean(found) if found else None


def _range(differences: Sequence[float], rules: Rules) -> tuple[float, float]:
    if not any(map(math.isfinite, differences)):
        return -math.inf, math.inf
    low, high = interval(differences, rules.level)
    return (low, high) if rules.mode == "max" else (0.0 - high, 0.0 - low)  # 0 stays 0, and not -0


def signed(value: float) -> str:
    """Return a difference as texts have it: with its sign, and 0 without one.

    Example:
        >>> signed(0.5), signed(-0.0)
        ('+0.5', '0')

    Args:
        value: The difference.
    """
    return f"{value:+.3g}" if value else "0"


def _said(verdict: DuelVerdict) -> str:
    """Return a verdict in a sentence or two, without what to do next."""
    number, why = len(verdict.blocks), verdict.why
    found = f"{verdict.word} after {number} seed{'' if number == 1 else 's'}"
    if verdict.same:
        found += f": both arms have exactly the same {verdict.rules.metric} with every seed"
        found += _changes_nothing(verdict.rules) if verdict.decided or why else ""
    elif verdict.compared:
        found += f": {', '.join(_numbers(verdict))}"
        found += _too_small(verdict)
    return f"{found}. {why[0].upper()}{why[1:]}" if why else found


def _changes_nothing(rules: Rules) -> str:
    metric, later = rules.metric, "takes effect later, " if rules.equal else ""
    return (
        f". The change does nothing to {metric}: it probably {later}never reaches the training, or {metric} is too "
        "coarse to show it. Check that the candidate runs the changed code"
    )


def _too_small(verdict: DuelVerdict) -> str:
    """Return that a sure difference is smaller than what matters; empty if it may matter, or none was named."""
    low, high = verdict.interval
    least = verdict.rules.min_delta
    if verdict.word not in {BETTER, WORSE} or least is None or max(-low, high) >= least:
        return ""
    return f". The difference is sure, but smaller than min_delta={least:g}"


def _numbers(verdict: DuelVerdict) -> list[str]:
    """Return the effect with its range, and in how many blocks the candidate was what."""
    found = []
    if verdict.effect is not None:
        low, high = verdict.interval
        range_ = f" ({signed(low)} to {signed(high)})" if math.isfinite(low + high) else ""
        found.append(f"{verdict.rules.metric} {signed(verdict.effect)}{range_}")
    wins, losses, ties = verdict.wins
    found += [f"{wins} better", f"{losses} worse", *([f"{ties} equal"] if ties else [])]
    return [*found, *([f"{verdict.neither} without a number in both arms"] if verdict.neither else [])]


def _needs(verdict: DuelVerdict) -> str:
    """Return what it takes to decide, as `DuelVerdict.needs` has it."""
    if verdict.decided or (verdict.why and not verdict.compared):
        return _cure(verdict)
    number = len(verdict.blocks)
    many, left = verdict.still or verdict.fewest, verdict.rules.most - number
    about, more = "About" if verdict.still else "At least", f"more seed{'' if many == 1 else 's'}"
    be = "would be" if verdict.why else "is" if many == 1 else "are"
    pace = (
        f", if they are like the {number} so far."
        if verdict.still
        else ". The seeds so far do not tell how many."
    )
    found = f"{about} {many} {more} ({2 * many} trials) {be} needed for a verdict{pace}"
    if verdict.why:
        seeds = f" with seeds={len(verdict.blocks) + many} or more" if many > left else ""
        return f"{found} To continue, run the same duel again under the same name{seeds}."
    if not verdict.still or many <= left:
        return found
    return f"{found} Only {left} {'is' if left == 1 else 'are'} left. A larger seeds= can continue the duel after that."


def _cure(verdict: DuelVerdict) -> str:
    """Return what to do where the blocks do not compare the arms; empty if it is decided, or there is no block."""
    if verdict.decided or not verdict.blocks:
        return ""
    arms = [name for arm, name in enumerate(ARMS) if all(block.raised[arm] for block in verdict.blocks)]
    last = f"{verdict.name or 'NAME'}-{verdict.blocks[-1].number}"
    logs = " and ".join(f"`tsnb logs {last}-{name}`" for name in arms or ARMS)
    if not arms:
        return f"Look for a loss that diverges ({logs}), correct both trainings, and run the duel again."
    whom = "both trainings" if len(arms) == 2 else f"the {arms[0]}"
    return f"Read the traceback ({logs}), correct {whom}, and run the duel again."
