"""How long each trial of a stream still takes, and all of them: estimated from readings, corrected as they come. Pure.

With k batches left of an epoch, e whole epochs after it, n batches in an epoch, s seconds inside epochs a batch over
the window, and g seconds between two epochs (validation, checkpoints):

    left = (k + e n) s + (e + 1) g

s is measured over the last two thirds of what the trial has done, so that noise is averaged, but not from before its
circumstances changed: a trial came or went, the loader has other workers, cores were moved. g is the mean of the gaps
that it has made; before its first epoch has ended no gap is known, and the interval is wider upwards. Time in which it
stands still because it is paused or parked counts nowhere.
n is how many batches its last epochs began apart, since a loop may `break`; before that, what the loader says.

How many epochs a trial takes its code says, or its parameter `epochs` (`ConsumerReading.planned`). If neither does,
or if it has gone on beyond that number, the estimate goes to the end of its epoch only, and says so.

Others on the stream end before: from then on it goes at another pace. Which, what each trial and the loader cost says
(`pace_model`); so the trials are played to their ends together, each in its own seconds a batch times the change. Other
streams on the machine end, too, and their cores come free for those that go on: when, their own estimates say
(`StreamReading.beside`).

The interval is to hold four times in five: 1.5 standard errors of what is left, as the blocks of the window differ,
those that come being as unlike each other; `LEAST_OFF` at least; and `UNSURE` of what others' ends will change.

Where a plan has started it, the plan's word counts too (`eta`): alone, until it has shown its pace.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tsnb.telemetry.forecast.eta import LEAST_OFF, NO_ETA, Eta, all_left, planned_left, weighed
from tsnb.telemetry.forecast.pace_model import PaceModel
from tsnb.telemetry.readings import STANDING, BesideReading, ConsumerReading, PlannedReading, StreamReading

__all__ = ["Etas"]

SHARE = 0.67
"""The window's length, as a share of what the trial has done inside epochs."""
LONG_S = 20.0
"""So many seconds inside epochs are better than the mean of a longer past."""
ENOUGH_S = 4.0
"""After a change of circumstances a window of this many seconds is better than a long one from before."""
LEAST_BATCHES = 4
"""Fewer say nothing about a pace..."""
LEAST_S = 1.0
"""... nor do fewer seconds: those are first steps, beside others that are just starting."""
BLOCKS = 5
"""Into which the window is cut to see how much it varies."""
NO_GAP_OFF = 0.2
"""By how much it is wider upwards until a gap between two epochs has been seen."""
UNSURE = 0.25
"""Of the seconds that others' ends save or cost: how far off that may be, either way."""
FOUR_IN_FIVE = 1.5
"""Standard errors either way that hold four times in five, where they are estimated from five blocks."""
KEPT = 240
"""Points of a trial's past: when there are more, every other one goes, so that they reach back to its start."""

_IDLE = STANDING | {"gone", "joining"}
"""States in which a trial takes no batches."""


class _Point(NamedTuple):
    """Where a trial was when it took a batch."""

    clock_s: float
    """Seconds since its first batch, less those in which it was paused or parked."""
    inside_s: float
    """Of them, inside epochs."""
    batches: int
    """Taken or given up so far."""


class _Left(NamedTuple):
    """What is still to come of a trial, at today's pace."""

    steps_s: float
    """Seconds inside epochs."""
    between_s: float
    """Seconds between epochs."""
    off: float
    """How far off that may be downwards, as a share."""
    upwards: float
    """How far off that may be upwards, as a share."""
    epochs: int
    """That it takes in all; 0: not known, and it goes to the end of its epoch only."""

    def seconds(self, change: float) -> float:
        """Return it with batches that take so many times as long."""
        return self.steps_s * change + self.between_s


_inside_s = operator.attrgetter("inside_s")
_batches = operator.attrgetter("batches")


@dataclass
class _Course:
    """What is known of one trial on one stream."""

    last: ConsumerReading
    time_s: float
    still_s: float = 0.0
    """Seconds in which it was paused or parked."""
    begun: int = 0
    """Epochs of attachments before this one."""
    batches: int = 0
    """Batches of attachments before this one."""
    inside_s: float = 0.0
    """Seconds inside epochs of attachments before this one."""
    long: int | None = None
    """Batches after which it left its last epochs."""
    points: list[_Point] = field(default_factory=list)
    changed_s: float = 0.0
    """Its seconds inside epochs when the circumstances changed last."""
    enough_s: float = LONG_S
    """So many seconds since then are better than what was before: in the beginning only its mean is known of that."""
    change: float = 1.0
    """By how many times its batches take as long since then, as was foretold."""
    first_epoch: int = 0
    """In which the first point lies."""
    point_epoch: int = 0
    """In which the last one does."""
    told: PlannedReading | None = None
    """What its plan said last of it; None: it has none."""
    told_still_s: float = 0.0
    """`still_s` when that was said."""

    @property
    def epoch(self) -> int:
        """Epochs that it has begun."""
        return self.begun + self.last.epochs

    def here(self) -> _Point:
        """Return where it is now."""
        inside_s = self.last.computing_s + self.last.waiting_s + self.last.held_s
        return _Point(
            self.time_s - self.still_s,
            self.inside_s + inside_s,
            self.batches + self.last.batches + self.last.skipped,
        )

    def feed(self, reading: ConsumerReading, time_s: float) -> None:
        """Take in the next reading."""
        before = self.last
        if (
            reading.batches + reading.skipped < before.batches + before.skipped
            or reading.epochs < before.epochs
        ):
            same = reading.epoch == before.epoch and 0 < before.position <= reading.position + 1
            self.begun += before.epochs - (1 if same else 0)  # it goes on in the middle of that epoch
            self.batches += before.batches + before.skipped
            self.inside_s += before.computing_s + before.waiting_s + before.held_s
        elif reading.epochs > before.epochs > 0:
            # not where the last reading found it: an epoch may be as short as the time between two of them
            apart = _start_of(reading) - _start_of(before)
            self.long = round(apart / (reading.epochs - before.epochs)) or self.long
        if before.state == reading.state and reading.state in STANDING:
            self.still_s += time_s - self.time_s
        self.last, self.time_s = reading, time_s
        if self.points and self.batches + reading.batches + reading.skipped <= self.points[-1].batches:
            return
        here = self.here()
        if not self.points:
            self.first_epoch = self.point_epoch = self.epoch
            if here.batches:
                since_s = here.inside_s - self.inside_s
                if (
                    since_s >= ENOUGH_S
                ):  # before anybody looked: its counters tell the mean pace of that, but no gaps
                    self.points.append(_Point(here.clock_s - since_s, self.inside_s, self.batches))
                    self.changed_s = here.inside_s
                self.points.append(here)
        else:
            self.points.append(here)
            self.point_epoch = self.epoch
            if len(self.points) > KEPT:
                del self.points[1 : KEPT // 2 * 2 : 2]

    def changes(self, times: float) -> None:
        """Note that from now on its batches take so many times as long."""
        inside_s = self.here().inside_s
        soon = (
            inside_s - self.changed_s < self.enough_s
        )  # the window still reaches back to before the last change
        self.change, self.changed_s = times * (self.change if soon else 1.0), inside_s
        self.enough_s = ENOUGH_S

    def window(self) -> Sequence[_Point]:
        """Return the points of the window, oldest first."""
        first, last = self.points[0], self.points[-1]
        back_s = SHARE * (last.inside_s - first.inside_s)
        if last.inside_s - self.changed_s >= self.enough_s:
            back_s = min(back_s, last.inside_s - self.changed_s)
        # the oldest point that is no further back; or more, for enough batches
        by_time = bisect_right(self.points, last.inside_s - back_s, key=_inside_s)
        by_batches = bisect_right(self.points, last.batches - LEAST_BATCHES, key=_batches)
        at = max(0, min(by_time, by_batches - 1))
        since_s = last.inside_s - self.points[at].inside_s
        if at and since_s < LEAST_S and self.points[at].inside_s - self.points[at - 1].inside_s >= ENOUGH_S:
            at -= 1  # a time before anybody looked: better than a moment
        return self.points[at:]

    def hear(self, told: PlannedReading | None) -> None:
        """Take in what its plan says last."""
        if told != self.told:
            self.told, self.told_still_s = told, self.still_s

    def weighed(self, seen: Eta) -> Eta:
        """Return how long it still takes, with its plan's word, which knew of no time in which it stands still.

        Args:
            seen: What is seen of it.
        """
        if self.told is None or not self.last.planned or self.last.state in STANDING:
            return seen
        now_s = self.time_s - (self.still_s - self.told_still_s)
        planned = planned_left(self.told, now_s, self._whole(self.last.planned))
        return weighed(seen, planned, self.told.end_s - self.told.start_s)

    def left(self, epoch_batches: int | None) -> _Left | None:
        """Return what is still to come; None: that is not known."""
        long = self.long or epoch_batches
        if not long or len(self.points) < 2 or self.last.state in _IDLE:
            return None
        window = self.window()
        first, last, here = window[0], window[-1], self.here()
        batches, seconds = last.batches - first.batches, last.inside_s - first.inside_s
        if batches < LEAST_BATCHES or seconds < LEAST_S:
            return None
        before_s = min(seconds, max(0.0, self.changed_s - first.inside_s))
        step_s = (seconds + before_s * (self.change - 1)) / batches
        since_s = max(0.0, here.inside_s - last.inside_s)
        if since_s > 2 * step_s:  # it takes longer over this one: that counts as soon as it is seen
            step_s = (seconds + since_s) / (batches + 1)
        return self._left(long, step_s, window, since_s)

    def _left(self, long: int, step_s: float, window: Sequence[_Point], since_s: float) -> _Left:
        planned = self.last.planned if self.last.planned >= self.epoch else 0
        after = planned - self.epoch if planned else 0
        of_this = max(0, long - self.last.position)
        gaps = self.point_epoch - self.first_epoch
        last = self.points[-1]
        outside_s = (last.clock_s - self.points[0].clock_s) - (last.inside_s - self.points[0].inside_s)
        gap_s = max(0.0, outside_s) / gaps if gaps > 0 else 0.0
        between_s = 0.0
        if planned:
            here = self.here()
            gone_s = max(0.0, (here.clock_s - last.clock_s) - (here.inside_s - last.inside_s))
            between_s = after * gap_s + (max(0.0, gap_s - gone_s) if not of_this else gap_s)
        batches = of_this + after * long
        steps_s = max(batches * step_s - min(since_s, step_s), 0.0)
        off = _spread(window, batches)
        upwards = off + (NO_GAP_OFF if planned and not gaps else 0.0)
        return _Left(steps_s, between_s, off, upwards, self._whole(planned))

    def _whole(self, planned: int) -> int:
        """Return how many epochs it takes in all, those counted in that a clone goes on from; 0: not known."""
        return planned and planned + self.last.epochs_before


def _start_of(reading: ConsumerReading) -> int:
    """Return how many batches it had taken or given up when its epoch began; less where it came in the midst of it."""
    return reading.batches + reading.skipped - reading.position


def _step_s(window: Sequence[_Point]) -> float:
    """Return the seconds inside epochs of a batch."""
    first, last = window[0], window[-1]
    return (last.inside_s - first.inside_s) / max(1, last.batches - first.batches)


def _error(window: Sequence[_Point]) -> float:
    """Return the standard error of a pace over a window, as a share of it: its blocks differ by as much."""
    first, last = window[0], window[-1]
    blocks = min(BLOCKS, len(window) - 1, (last.batches - first.batches) // 2)
    paces, at = [], 0
    for k in range(1, blocks + 1):
        until_s = first.inside_s + (last.inside_s - first.inside_s) * k / blocks
        to = min(bisect_left(window, until_s - 1e-9, at, key=_inside_s), len(window) - 1)
        if to > at:
            paces.append(_step_s(window[at : to + 1]))
            at = to
    if len(paces) < 2:
        return 0.4
    # not by `statistics`, which reckons in fractions: this is looked at for each trial
    mean = math.fsum(paces) / len(paces)
    off = math.sqrt(math.fsum((pace - mean) ** 2 for pace in paces) / (len(paces) - 1))
    return off / math.sqrt(len(paces)) / max(mean, 1e-12)


def _spread(window: Sequence[_Point], left: int) -> float:
    """Return how far off the time for so many batches may be four times in five, as a share of it."""
    done = window[-1].batches - window[0].batches
    coming = math.sqrt(1 + min(8.0, done / max(1, left)))
    return min(1.0, math.hypot(LEAST_OFF, FOUR_IN_FIVE * coming * _error(window)))


def _ends(beside: Collection[BesideReading], now_s: float) -> list[tuple[float, float]]:
    """Return in how many seconds other streams end, the soonest first, and how many cores come free here with each.

    Those that go on have their part of them: as much as this one.
    """
    staying = {each.name: each.cores for each in beside}
    found = []
    for end_s, name in sorted((each.end_s, each.name) for each in beside if each.end_s is not None):
        part = staying.pop(name) / (1 + len(staying))
        staying = {other: cores + part for other, cores in staying.items()}
        found.append((end_s - now_s, part))
    return found


def _eta(left: _Left, left_s: float) -> Eta:
    """Return what is still to come of a trial as an estimate, with its interval.

    Args:
        left: It, at today's pace.
        left_s: Seconds that it takes, as others end.
    """
    unsure_s = UNSURE * abs(left.seconds(1.0) - left_s)
    low_s, high_s = left_s * max(0.0, 1 - left.off) - unsure_s, left_s * (1 + left.upwards) + unsure_s
    return Eta(left_s, max(0.0, low_s), high_s, left.epochs)


class Etas:
    """How long the trials of one stream still take, from its readings."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}
        self._here: tuple[str, ...] = ()
        self._circumstances: tuple[object, ...] = ()
        self._active: tuple[str, ...] = ()
        self._beside: dict[str, BesideReading] = {}
        self._last: StreamReading | None = None
        self._told: dict[str, PlannedReading] = {}
        """What plans say last, by the trial's name."""
        self._model = PaceModel()
        self._known: dict[str, Eta] | None = {}  # None: to be found, when somebody asks

    def feed(self, reading: StreamReading) -> None:
        """Take in the next reading."""
        self._last, self._known = reading, None
        self._told = {each.name: each for plan in reading.plans for each in plan.trials}
        for consumer in reading.consumers:
            course = self._courses.get(consumer.name)
            if course is None or course.last.pid != consumer.pid:
                course = self._courses[consumer.name] = _Course(consumer, reading.time_s)
            course.feed(consumer, reading.time_s)
            told = self._told.get(consumer.name)
            if told is not course.told:
                course.hear(told)
        self._here = tuple(reading.attached)
        before, active = self._active, tuple(c.name for c in reading.consumers if c.state not in _IDLE)
        self._active = active
        self._model.feed(reading, active)
        were, self._beside = self._beside, {each.name: each for each in reading.beside}
        ended = [each.cores for name, each in were.items() if name not in self._beside]
        freed = sum(ended) / (1 + len(self._beside))
        moved_s = reading.moves[-1].time_s if reading.moves else 0.0
        around = active, frozenset(self._beside)
        had, circumstances = self._circumstances, (around, reading.workers, reading.pacing, moved_s)
        self._circumstances = circumstances
        if had and circumstances != had:
            was_s, is_s = self._model.batch_s(before), self._model.batch_s(active, freed)
            # nobody's pace is none, and not the loader's
            change = is_s / was_s if before and active and was_s > 0 and is_s > 0 else 1.0
            for course in self._courses.values():
                course.changes(change)

    def of(self, name: str) -> Eta:
        """Return how long a trial still takes; `NO_ETA` while it is not there."""
        if self._known is None:
            seen = self._played()
            self._known = {each: self._courses[each].weighed(seen.get(each, NO_ETA)) for each in self._here}
        return self._known.get(name, NO_ETA)

    def coming(self, name: str) -> Eta:
        """Return how long a trial takes that a plan has started and that has not been there since; else `NO_ETA`."""
        told = self._told.get(name)
        if told is None or self._last is None or self._met(told):
            return NO_ETA
        return planned_left(told, self._last.time_s)

    def all(self) -> Eta:
        """Return when the last trial ends, of those too that a plan is still to start; `NO_ETA` where nobody knows."""
        if self._last is None:
            return NO_ETA
        here = {name: self.of(name) for name in self._here}
        return all_left(here, self._last, {name for name, told in self._told.items() if self._met(told)})

    def _met(self, told: PlannedReading) -> bool:
        """Whether a trial has been there since a plan started it."""
        course = self._courses.get(told.name)
        return course is not None and course.time_s >= told.start_s

    def _played(self) -> dict[str, Eta]:
        """Play the trials to their ends, all together; return how long each takes, by name."""
        if self._last is None:
            return {}
        whole, time_s = self._last.epoch_batches, self._last.time_s
        lefts = {name: left for name in self._here if (left := self._courses[name].left(whole))}
        now_s = self._model.batch_s(self._active)
        found: dict[str, Eta] = {}
        # of those whose end is not known nobody can say that the others will be without them
        staying = set(self._active)
        to_do = dict.fromkeys(lefts, 1.0)
        ends = _ends(self._beside.values(), time_s)[::-1]
        passed_s = free = 0.0
        while to_do:
            change = self._model.batch_s(staying, free) / now_s if now_s > 0 and staying else 1.0
            takes_s = {name: share * lefts[name].seconds(change) for name, share in to_do.items()}
            first = min(takes_s, key=takes_s.__getitem__)
            until_s = max(0.0, ends[-1][0] - passed_s) if ends else math.inf
            if until_s < takes_s[first]:
                free += ends.pop()[1]
            step_s = min(takes_s[first], until_s)
            passed_s += step_s
            for name, whole_s in takes_s.items():
                to_do[name] *= 1 - step_s / whole_s if whole_s > 0 else 0.0
            for name in [name for name, share in to_do.items() if share < 1e-9]:
                del to_do[name]
                left = lefts[name]
                staying -= {name} if left.epochs else set()
                found[name] = _eta(left, passed_s)
        return found
