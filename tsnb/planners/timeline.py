"""When trials start and end: as was planned first, as it was, and as is foretold now. Pure.

Plans and planned sweeps tell here what they are (`show`); figures and reports, which stand below them, draw the newest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tsnb.text.printable import harmless
from tsnb.text.words import duration, text_table

__all__ = ["HELD", "PlannedTrial", "Span", "Timeline", "held_up", "newest", "newest_on", "show"]

Span = tuple[float, float]
"""Start and end, in seconds from the beginning of a plan."""

WIDE = 40
"""Characters of the bars."""

PLANNED, ACTUAL, AHEAD = "█", "▒", "░"

HELD = "waits for a paused trial"
"""What is said of a trial in place of a time."""


@dataclass(frozen=True)
class PlannedTrial:
    """One trial's place in time."""

    name: str
    """Its name."""
    planned: Span | None
    """From start to end, as the first plan had it that it was in."""
    actual: Span | None = None
    """From its start to its end, or until now; None: it has not started."""
    ahead: Span | None = None
    """What is still to come of it, as foretold last; None: it has ended, is paused, or waits for one that is."""
    paused: bool = False
    """Whether it is paused: nobody knows when it ends."""
    held: bool = False
    """Whether it waits for the place of a paused trial: nobody knows when it starts."""

    @property
    def end_s(self) -> float:
        """When it ends, as far as is known."""
        return max(
            span[1] for span in (self.planned, self.actual, self.ahead, (0.0, 0.0)) if span is not None
        )


@dataclass(frozen=True)
class Timeline:
    """The trials of one plan."""

    title: str
    """What was planned: "plan", "sweep 'train'"."""
    trials: tuple[PlannedTrial, ...]
    """In the order in which they start."""
    streams: tuple[str, ...] = ()
    """What they take their batches from; empty: none of them has been started."""
    began_s: float | None = None
    """When it was begun, seconds since 1970; None: it was not."""
    off: float = 0.0
    """How far what is foretold may be off, as a share of the time until then, in four of five cases; 0: not known."""
    basis: str = ""
    """From what it is foretold, in words."""

    @property
    def end_s(self) -> float:
        """When the last one ends, as far as is known."""
        return max((trial.end_s for trial in self.trials), default=0.0)

    def concerns(self, stream: str, begin_s: float, end_s: float) -> bool:
        """Whether its trials took batches of a stream within some time.

        Args:
            stream: Its name.
            begin_s: Seconds since 1970.
            end_s: Seconds since 1970.
        """
        if self.began_s is None or stream not in self.streams:
            return False
        ran = [trial.actual for trial in self.trials if trial.actual is not None]
        return any(self.began_s + first <= end_s and self.began_s + last >= begin_s for first, last in ran)

    def bars(self) -> str:
        """Return bars of text: as planned, and below it what was (▒) and what is still to come (░)."""
        scale = WIDE / max(self.end_s, 1e-9)
        rows = []
        for trial in self.trials:
            if trial.planned is not None:
                rows.append([trial.name, _bar([(trial.planned, PLANNED)], scale), duration(trial.planned[1])])
            parts = [(trial.actual, ACTUAL), (trial.ahead, AHEAD)]
            known = [(span, mark) for span, mark in parts if span is not None]
            # what has not started and is where it was planned to be needs no second bar
            if trial.actual is not None or (known and trial.ahead != trial.planned):
                word = "so far, paused" if trial.paused else "actual" if trial.ahead is None else "predicted"
                said = f"{duration(known[-1][0][1])} {word}"
                rows.append(["" if trial.planned is not None else trial.name, _bar(known, scale), said])
            elif trial.held:
                rows.append(["" if trial.planned is not None else trial.name, "", HELD])
        return "\n".join(text_table(rows))

    def __repr__(self) -> str:
        lines = [self.title, self.bars()]
        if self.off and self.trials:
            basis = f": from {self.basis}" if self.basis else ""
            lines.append(
                f"Predictions are within {self.off:.0%} of the time until then (80% interval){basis}."
            )
        return harmless("\n".join(lines))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def held_up(
    starts_s: Mapping[str, float], ends_s: Mapping[str, float], paused: Collection[str]
) -> frozenset[str]:
    """Return the trials that have no known start as long as others are paused, whose places they wait for.

    A plan takes it that a paused trial goes on at once. What starts at that one's end or later waits for it,
    since trials start in the plan's order.

    Args:
        starts_s: When each trial that has not started is to start, by the plan.
        ends_s: When each is to be done, by the same plan.
        paused: Those that are paused.
    """
    first_s = min((ends_s[name] for name in paused if name in ends_s), default=math.inf)
    return frozenset(name for name, start_s in starts_s.items() if start_s >= first_s)


def _bar(spans: Iterable[tuple[Span, str]], scale: float) -> str:
    line = ""
    for (start_s, end_s), mark in spans:
        start, end = max(len(line), round(start_s * scale)), round(end_s * scale)
        line = line.ljust(start) + mark * max(1, end - start)
    return line


_newest: list[Callable[[], Timeline]] = []


def show(make: Callable[[], Timeline]) -> None:
    """Have this plan drawn from now on.

    Args:
        make: Returns it as it is when it is drawn.
    """
    _newest[:] = [make]


def newest() -> Timeline | None:
    """Return the newest plan of this process as it is now; None: there was none."""
    return _newest[-1]() if _newest else None


def newest_on(stream: str, begin_s: float, end_s: float) -> Timeline | None:
    """Return the newest plan of this process, if trials of it took batches of a stream within some time.

    Args:
        stream: Its name.
        begin_s: Seconds since 1970.
        end_s: Seconds since 1970.
    """
    found = newest()
    return found if found is not None and found.concerns(stream, begin_s, end_s) else None
