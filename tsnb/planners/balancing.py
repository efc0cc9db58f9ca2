"""When cores and threads move between the trials of a stream and its loader, and when they are given back. Pure.

`step(observed)` is called every few seconds and returns what to do. It goes round like this:

    watch --a plan promises more--> settle --> judge --helped--> watch (from the new pace on)
      ^                                          |
      +------ after a while, another plan <--not-+ (undone)

- Nothing is decided on less than `Timing.measure_s` inside epochs of every trial and `parties.BATCHES` batches.
- A plan is tried if it promises `GAIN` or more; it stays if it was measured to give `HELPED` or more than the better of
  two measurements before it (paces vary by themselves, and no move is to be praised for that); else the former
  state comes back, and plans of its kind are left alone for `Timing.retry_s`, then twice as long, and so on.
- When a trial comes or goes, or the pacing changes, everything is given back; measuring begins anew.
- It is given back, too, when the pace falls below the one before anything was moved.

By pacing. `together`: the pace of the slowest trial is to rise, by cores and threads for it, or for the loader where
that is the limit. `weights`: cores in proportion to weights, whatever the pace. `free`: nothing is moved: the system's
scheduler gives equal shares to equal processes, and whatever is moved between trials that do not wait for each other
is taken from one of them.

Every move is described in plain words, with its numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tsnb.planners.dividing import Division, home, shared, split, weighted
from tsnb.planners.parties import (
    LOADER,
    Allot,
    Instruction,
    Measured,
    Moved,
    Observed,
    Span,
    measure,
    parallel_share,
)

__all__ = ["GAIN", "HELPED", "MOST_MOVES", "Balancer", "Timing", "change", "pace_effect", "why"]

WAITS = 0.3
"""A slowest trial that waits for the loader for more of its time than this is not what limits the stream."""


def change(seen: Observed, allotments: tuple[Allot, ...], span: Span) -> tuple[str, str]:
    """Return the party that gains by a plan, and what it gains, in a few words.

    Args:
        seen: Before it.
        allotments: The plan.
        span: What was measured before it.
    """
    has = {p.name: p for p in (*seen.trials, seen.loader)}
    made = {a.name: a for a in allotments}
    wanted = LOADER if span.waiting > WAITS and LOADER in made else span.slowest
    if wanted not in made:
        wanted = max(made, key=lambda name: len(made[name].cores))
    its, had = made[wanted], has[wanted]
    if its.cores != had.cores and len(its.cores) < len(had.home):
        return wanted, f"{_count(len(its.cores), 'core')} only for {_called(wanted)}"
    if its.threads > had.threads and wanted != LOADER:
        return wanted, f"{_count(its.threads, 'thread')} for {_called(wanted)}"
    fewer = [name for name, a in made.items() if a.threads < has[name].threads]
    if fewer:
        return wanted, f"fewer threads for {', '.join(_called(name) for name in fewer)}"
    return wanted, "all cores to all"


def why(span: Span, gains: str) -> str:
    """Say what a move is for."""
    if gains == LOADER:
        return f"{span.slowest} waits for the loader {span.waiting:.0%} of its time"
    if gains == span.slowest:
        return f"it sets the pace at {span.pace:.1f} batches/s, computing {span.computing:.0%} of its time"
    return f"{span.slowest} sets the pace at {span.pace:.1f} batches/s"


def pace_effect(before: float, after: float, kept: bool) -> str:
    """Say what a move has done to the pace of the slowest, in batches a second."""
    digits = 1 if max(before, after) >= 1 else 2
    said = f"pace {before:.{digits}f} -> {after:.{digits}f} batches/s"
    return said if kept else f"{said}, so it was undone"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _called(name: str) -> str:
    return "the loader" if name == LOADER else name


GAIN = 1.12
"""A plan that promises less is not worth the disturbance."""
WORTH_A_TRY = 0.95
"""... unless there are so many threads that they stand in each other's way, which no prediction knows the price of."""
CROWDED = 1.5
"""That many threads a core are."""
HELPED = 1.04
"""A plan that gave less did not help: paces that are measured one after the other differ by some per cent."""
MOST_MOVES = 10
"""Between two changes of the set of trials. Each kept move gained something, so this is never met in practice."""


@dataclass(frozen=True)
class Timing:
    """How patient a balancer is."""

    measure_s: float = 12.0
    """Seconds that every trial must have spent inside epochs for a pace to be believed."""
    settle_s: float = 4.0
    """Seconds after a move that do not count."""
    stale_s: float = 120.0
    """A measurement that takes longer begins anew: the trials stand still, or do something else."""
    retry_s: float = 600.0
    """A kind of plan that did not help is left alone for so long."""


@dataclass
class _OnTrial:
    """A move that is being judged."""

    number: int
    plan: Division
    before: Division
    """What comes back if it does not help."""
    span: Span
    """What was measured before it."""
    pace: float
    """The better one of the two paces measured before it."""


class Balancer:
    """Decides for one stream.

    Args:
        timing: How patient it is.

    Attributes:
        now: What everybody has, as far as this knows; None before the first step.
        moves: Moves so far.
    """

    def __init__(self, timing: Timing | None = None) -> None:
        self.timing = timing or Timing()
        self.now: Division | None = None
        self.moves = 0
        self._key: object = None
        self._pacing = ""
        self._forget()

    def _forget(self) -> None:
        """Forget all measurements of the parties."""
        self._start: Observed | None = None
        self._settled_s = 0.0
        self._judging: _OnTrial | None = None
        self._home_pace = 0.0
        self._paces: list[float] = []  # measured one after the other, with nothing moved in between
        self._parallel: dict[str, float] = {}
        self._tried: dict[str, tuple[float, int]] = {}  # kind: not before, how often it failed
        self._since = 0

    def step(self, seen: Observed) -> list[Instruction]:
        """Look at the stream; return what to do, in this order.

        Args:
            seen: Now; times never go back.
        """
        key = _composition(seen)
        if self.now is None or key != self._key:
            known, pacing = self.now is not None, self._pacing
            self._key, self._pacing = key, seen.pacing
            why_back = (
                f"the pacing is now {seen.pacing}"
                if known and pacing != seen.pacing
                else "the set of trials changed"
            )
            out = self.give_back(seen, why_back) if known else []
            self.now = home(seen)
            self._begin(seen, self.timing.settle_s)
            return out
        if seen.pacing == "free" or not seen.trials:
            return []
        if self._start is None:
            if seen.time_s >= self._settled_s:
                self._start = seen
            return []
        span = measure(self._start, seen, self._parallel, self.timing.measure_s)
        if span is None:
            if seen.time_s - self._start.time_s > self.timing.stale_s:
                self._start = seen
            return []
        self._start = seen
        if self._judging is not None:
            return self._judge(seen, span, self._judging)
        if seen.pacing == "weights":
            return self._weigh(seen, span)
        return self._improve(seen, span)

    def give_back(self, seen: Observed, reason: str) -> list[Instruction]:
        """Return what lets everybody run as if nothing had ever been moved; what was learned is forgotten.

        Args:
            seen: The current observation.
            reason: Why, for the log.
        """
        moved = self.now is not None and self.now.kind != "home"
        judging = self._judging
        self._forget()
        self.now = home(seen)
        if not moved:
            return []
        self.moves += 1
        out: list[Instruction] = [*self.now.allotments]
        if judging is not None:
            out.append(Measured(judging.number, "not measured", kept=False))
        return [*out, Moved(self.moves, LOADER, "all cores to all", reason)]

    # -- inside a step -----------------------------------------------------------------------------------

    def _begin(self, seen: Observed, after_s: float) -> None:
        """Measure anew, some time from now."""
        self._start, self._settled_s = None, seen.time_s + after_s
        self._paces = []

    def _improve(self, seen: Observed, span: Span) -> list[Instruction]:
        assert self.now is not None
        self._paces = [*self._paces, span.pace][-2:]
        if len(self._paces) < 2:
            return []
        if self.now.kind == "home":
            self._home_pace = min(self._paces)
        elif max(self._paces) < self._home_pace / HELPED:
            kind = self.now.kind
            out = self.give_back(
                seen, f"pace {span.pace:.1f} batches/s, less than {self._home_pace:.1f} before"
            )
            self._tried[kind] = (seen.time_s + self.timing.retry_s, 1)
            self._begin(seen, self.timing.settle_s)
            return out
        plan = self._best(seen, span)
        return [] if plan is None else self._move(seen, span, plan)

    def _best(self, seen: Observed, span: Span) -> Division | None:
        """Return the plan to try next, if one promises enough; cores of its own for everybody come first."""
        if self._since >= MOST_MOVES:
            return None
        for plan in (split(seen, span), shared(seen, span)):
            if plan is None or self.now is None or plan.allotments == self.now.allotments:
                continue
            not_before_s, _ = self._tried.get(plan.kind, (0.0, 0))
            promises = plan.pace >= (WORTH_A_TRY if _crowded(seen) else GAIN) * span.pace
            if seen.time_s >= not_before_s and promises and self._differs(seen, plan):
                return plan
        return None

    def _differs(self, seen: Observed, plan: Division) -> bool:
        """Whether a plan gives anybody anything else than it has."""
        has = {p.name: (p.cores, p.threads) for p in (*seen.trials, seen.loader)}
        return any(has[a.name] != (a.cores, a.threads) for a in plan.allotments)

    def _move(self, seen: Observed, span: Span, plan: Division) -> list[Instruction]:
        assert self.now is not None
        self.moves += 1
        self._since += 1
        name, text = change(seen, plan.allotments, span)
        self._judging = _OnTrial(self.moves, plan, self.now, span, max([span.pace, *self._paces]))
        self.now = plan
        self._begin(seen, self.timing.settle_s)
        reason = "the cores follow the weights" if plan.kind == "weighted" else why(span, name)
        return [*plan.allotments, Moved(self.moves, name, text, reason)]

    def _judge(self, seen: Observed, span: Span, moved: _OnTrial) -> list[Instruction]:
        """Say what a move has done; undo it where it did not help."""
        self._judging = None
        if moved.plan.kind == "split":
            self._learn(moved, span)
        kept = moved.plan.kind == "weighted" or span.pace >= HELPED * moved.pace
        told = Measured(moved.number, pace_effect(moved.pace, span.pace, kept), kept)
        if kept:
            return [told]
        failed = self._tried.get(moved.plan.kind, (0.0, 0))[1] + 1
        self._tried[moved.plan.kind] = (seen.time_s + self.timing.retry_s * 2 ** (failed - 1), failed)
        self.now = moved.before
        self._begin(seen, self.timing.settle_s)
        return [*_back(seen, moved.before), told]

    def _learn(self, moved: _OnTrial, span: Span) -> None:
        """Note how steps scale for trials that got several cores of their own."""
        for made in moved.plan.allotments:
            one, cores = moved.span.estimates.get(made.name), min(made.threads, len(made.cores))
            if one is not None and made.name in span.estimates and made.name != LOADER and cores > 1:
                step_s = span.estimates[made.name].step_s
                self._parallel[made.name] = parallel_share(one.work_s, one.blocked_s, step_s, cores)

    def _weigh(self, seen: Observed, span: Span) -> list[Instruction]:
        plan = weighted(seen, span.loader_busy)
        if plan is None or self.now is None or self.now.kind == "weighted" or not self._differs(seen, plan):
            return []
        return self._move(seen, span, plan)


def _back(seen: Observed, plan: Division) -> tuple[Allot, ...]:
    return home(seen).allotments if plan.kind == "home" else plan.allotments


def _crowded(seen: Observed) -> bool:
    return sum(p.threads for p in seen.trials) + seen.loader.threads > CROWDED * len(seen.cores)


def _composition(seen: Observed) -> object:
    """Return what must stay the same for a plan to hold."""
    trials = tuple((p.name, p.attachment, p.home, p.weight, p.fixed, p.movable) for p in seen.trials)
    return seen.pacing, seen.cores, (seen.loader.home, seen.loader.threads, seen.loader.movable), trials
