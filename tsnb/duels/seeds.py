"""One seed of a duel: what both arms came to; and what was asked. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ARMS", "Block", "Rules", "broken"]

ARMS = ("incumbent", "candidate")
"""What the arms are called, the first function's first."""

BROKEN = 2
"""So many first blocks in which one arm's code raised end a duel: it would in the others too."""

SILENT = 3
"""So many first blocks in which neither arm has a number end a duel."""


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
    """What both had in common: "weights" (and batches), "other weights" (with the same batches), "batches"; empty: not
    known."""
    outlasted: str = ""
    """The arm that took more samples than the other one, whose code raised; empty: no arm's code raised sooner."""

    @property
    def silent(self) -> bool:
        """Whether neither arm has a number, and neither outlasted the other: then the block says nothing."""
        return not (self.outlasted or math.isfinite(self.incumbent) or math.isfinite(self.candidate))

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


def broken(blocks: Sequence[Block], rules: Rules) -> str:
    """Return which arms' code raises, or why no block says anything; empty if some may, or there are too few.

    Args:
        blocks: Those that count.
        rules: What was asked.
    """
    raised = [[block.raised[arm] for block in blocks if block.raised[arm]] for arm in range(2)]
    failed = [arm for arm, errors in enumerate(raised) if len(errors) == len(blocks) >= BROKEN]
    last = [raised[arm][-1].rstrip(".") for arm in failed]
    if len(failed) == 1:
        return f"the {ARMS[failed[0]]} failed with every seed: {last[0]}"
    if failed:
        both = "both arms failed with every seed"
        return (
            f"{both}: {last[0]}"
            if last[0] == last[1]
            else f"{both}. Incumbent: {last[0]}. Candidate: {last[1]}"
        )
    if len(blocks) >= SILENT and all(block.silent for block in blocks):
        return f"neither arm has a finite {rules.metric} with any seed"
    return ""
