"""One stream as every screen shows it: rows, rates, the sentence and its pace, marks, ends, the best. Pure.

Panel, `tsnb top`, `tsnb status` and `%tensorsocket status` each feed readings to a `StreamView`, or share the one that
a watch feeds (`telemetry.watching`), and draw what it says; reports tell a whole life from the same parts (`Ends`,
`Taken`, `diagnose`). So a fact is the same number everywhere. `tsnb.show` has the words for it.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from tsnb.machine.energy import NOT_MEASURABLE
from tsnb.records.scores import leaders
from tsnb.telemetry.forecast.eta import NO_ETA, Eta
from tsnb.telemetry.forecast.etas import Etas
from tsnb.telemetry.readings import ABSENT, STANDING, ConsumerReading, EndReading, HostReading, StreamReading
from tsnb.telemetry.shown.curves import Curve, Curves
from tsnb.telemetry.shown.diagnosis import AT_ONCE, AT_TIMES, Diagnosis, MeanHost, diagnose
from tsnb.telemetry.shown.ends import Ends
from tsnb.telemetry.shown.frames import Logged, frame
from tsnb.telemetry.shown.history import without_profiled
from tsnb.telemetry.shown.marks import Mark, Marker, Taken, in_order
from tsnb.telemetry.shown.outcome import Compared, outcome, with_lost
from tsnb.telemetry.shown.rates import UNKNOWN, RateWindow, energy_use
from tsnb.telemetry.shown.rows import Row, TimeSpent, life_of, never_attached, newly_logged

__all__ = ["MARKS", "StreamNews", "StreamView"]

MARKS = 200
"""Marks kept: more would not be read, and a sweep of a thousand trials makes two of each."""

_PASSING = frozenset({"streaming", "waiting", "held back", "sets the pace", "skipping", "awaits turn"})
"""States that change with every batch: of these the most frequent of the last ticks is shown."""

_SENTENCE_S = 2.5
"""The sentence is rewritten this often at most, so that its numbers can be read..."""

_TURN_S = 1.5
"""... or this often, where it says something else than before; an end or a failure shows at once."""

_WAYS_S = 5.0
"""Whether a metric is good when it is high or low is looked at this often: `tsnb.records.direction` may come late."""

_PACES_EVERY = 8
"""Ticks: what a batch costs a trial changes seldom, and is looked at seldom."""

_URGENT = frozenset({"failed", "gone", "starting", ABSENT})

_NOT_SERVED = frozenset({"gone", ABSENT})

_LOOKS = 15
"""Looks at the machine over which energy is told: half a minute."""

_NAMES = 1000
"""Metrics of one trial that are shown."""


class StreamNews(NamedTuple):
    """What one reading has brought."""

    reading: StreamReading
    frame: bytes
    """It as numbers."""
    marks: list[Mark]
    """What changed."""


class StreamView:
    """A stream's state, drawn from its readings.

    May be fed from one thread and looked at from others, which hold its `lock` meanwhile: so all that they read is of
    one moment.

    Attributes:
        compared: How its trials compare.
        lock: Held while it is fed. May be taken again by the thread that has it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.latest: StreamReading | None = None
        self.host: HostReading | None = None
        self._mean_host = MeanHost()
        self.state = ABSENT
        self.say = Diagnosis("starting", "", None, "")
        self.rates = RateWindow()
        self._etas = Etas()
        self._left: dict[str, Eta] = {}  # as of the last reading, as far as somebody has asked
        self._all: Eta | None = None
        self.marks: deque[Mark] = deque(maxlen=MARKS)
        self.rows: dict[str, Row] = {}
        self.compared = Compared()
        self._limited: tuple[Any, str] = (None, "")
        self._best: dict[str, str] | None = None
        self._ways_s = -math.inf
        self._frames = 0
        self._names = 0  # curves when they were learnt
        self.curves = Curves()
        self.origin_s: float | None = None
        self.ends = Ends()
        self._marker, self._taken = Marker(), Taken()
        self._awaited = False  # whether a trial is here, or is to come
        self._said_s = -math.inf
        self._said_per_s = math.nan
        self._looks: deque[StreamReading] = deque(maxlen=_LOOKS)

    @property
    def energy(self) -> str:
        """Joules for 1,000 samples over the last looks at the machine; empty where nothing is measured."""
        with self.lock:
            text = energy_use(self._looks).text
        return "" if text == NOT_MEASURABLE else text

    @property
    def busy_cores(self) -> float | None:
        """Cores that its trials and its loader keep busy; None: it has no trials, or they cannot be seen from here."""
        with self.lock:
            here, host = [row.reading for row in self.rows.values() if row.here], self.host
            if host is None or not here:
                return None
            # those of one process have the same numbers
            trials = {each.pid: host.consumers[each.name].cpu for each in here if each.name in host.consumers}
            workers = 0 if self.latest is None else self.latest.workers
        return sum(trials.values()) + host.loader_cpu(workers)

    def feed(self, reading: StreamReading) -> StreamNews:
        """Take in a reading; return what it has brought."""
        with self.lock:
            return self._feed(reading)

    def _feed(self, reading: StreamReading) -> StreamNews:
        reading = without_profiled(reading)
        news = self.ends.feed(reading)
        reading = reading if not reading.pending else replace(reading, pending=self.ends.to_come(reading))
        self.origin_s = reading.time_s if self.origin_s is None else self.origin_s
        self.latest, self.state = reading, reading.state
        self.rates.add(reading)
        self._mean_host.feed(reading)
        if reading.host is not None:
            self.host = reading.host
            self._looks.append(reading)
        marks = self._changed(reading)
        self._taken.feed(reading)
        self._etas.feed(reading)
        self._left, self._all = {}, None
        logged: list[Logged] = []
        here = {consumer.name for consumer in reading.consumers if consumer.state != "gone"}
        drawn = []
        for consumer in reading.consumers:
            row = self._update(consumer, reading.time_s)
            logged += self._log(row, consumer, reading.time_s)
            drawn.append(row)
        left = {name for name, row in self.rows.items() if row.here and name not in here}
        # told while it was still attached, it counts when it leaves
        news |= {name: end for name in left if (end := self.ends.by_name.get(name)) is not None}
        for name, end in news.items():
            if name not in here:
                row = self._ended(name, end, reading.time_s)
                logged += self._log(row, end, reading.time_s)
                if row not in drawn:
                    drawn.append(row)
        for name in [name for name in reading.pending if name not in self.rows]:  # in their order
            self._row(never_attached(EndReading(name, "", reading.time_s)), reading.time_s)
        self._leave(here, reading)
        self._awaited = bool(here or reading.pending)
        if not (here and self._lately_said(reading)):
            self._speak(self._found(), reading.time_s)
        self._agree(drawn)
        self._best = None
        known = self._names == len(self.curves) and self.compared.told == reading.outcome
        if not known or reading.time_s - self._ways_s >= _WAYS_S:
            self._learn_ways(reading)
        return StreamNews(reading, self._frame(reading, drawn, logged), marks)

    def _agree(self, rows: Iterable[Row]) -> None:
        """Have rows show the one that the sentence names as setting the pace; none where it says that none waits."""
        pace = self.say.pace
        if pace is None and self.say.kind in AT_TIMES:
            return
        for row in rows:
            if row.here and (row.reading.name == pace) != (row.state == "sets the pace"):
                row.agree(pace)

    def _changed(self, reading: StreamReading) -> list[Mark]:
        if marks := self._marker.feed(reading):
            self.marks = deque(in_order([*self.marks, *marks]), maxlen=MARKS)
        return marks

    @property
    def eta(self) -> Eta:
        """How long all trials still take, until the last one ends; of those still to attach only a plan knows."""
        with self.lock:
            if self._all is None:
                self._all = self._etas.all()
            return NO_ETA if self.state in ("gone", ABSENT) else self._all  # a plan may have ended with it

    def coming(self, name: str) -> Eta:
        """Return how long a trial still takes that has not attached yet, as its plan says; `NO_ETA`: it has none."""
        with self.lock:
            return NO_ETA if self.state in ("gone", ABSENT) else self._etas.coming(name)

    def _left_of(self, name: str) -> Eta:
        with self.lock:
            if name not in self._left:
                self._left[name] = self._etas.of(name) if self.rows[name].here else NO_ETA
            return self._left[name]

    def note(self, state: str, text: str) -> None:
        """Take in a state that no reading carries: the stream is not served, or has ended."""
        with self.lock:
            self.state = state
            if state in _NOT_SERVED:
                for row in self.rows.values():
                    row.pending = ""
            self.say = Diagnosis(state, text, None, text)
            self._said_s = -math.inf

    def over(self) -> StreamReading | None:
        """Return what is fed when the stream has ended: see `Ends.over`."""
        with self.lock:
            return self.ends.over(self.latest) if self.latest else None

    def settle(self) -> None:
        """Say what the last reading means, however short ago something else was said."""
        with self.lock:
            if self.latest:
                self._said_s = -math.inf
                self._speak(self._found(), self.latest.time_s)

    def shown(self, most: int) -> list[Row]:
        """Return the trials for a screen of so many rows: the current ones, and those that left last."""
        with self.lock:
            rows = [row for row in self.rows.values() if not row.unknown]
        here = [row for row in rows if row.here]
        left = sorted((row for row in rows if not row.here), key=lambda row: row.came_s)
        room = max(0, most - len(here))
        return sorted(here + (left[-room:] if room else []), key=lambda row: row.number)

    @property
    def said_s(self) -> float | None:
        """The time of the reading with the shares that the sentence names; None: it names none."""
        return self._said_s if math.isfinite(self._said_s) and self.say.kind not in _URGENT else None

    @property
    def told_per_s(self) -> float:
        """Batches a second of the loader when the sentence was said last, so that a header beside it says the same.

        Those of now where none were known then.
        """
        known = self.said_s is not None and math.isfinite(self._said_per_s)
        return self._said_per_s if known else self.rates.batches_per_s()

    def _found(self) -> Diagnosis:
        """Say who failed or logs nan, and what limits the stream now, in the numbers of the rows."""
        paces = {name: row.pace for name, row in self.rows.items() if row.here}
        say = diagnose(*self.rates.span, self._mean_host.host, paces=paces)
        return with_lost(say, self.rows.values(), self.ends.by_name)

    def _frame(self, reading: StreamReading, drawn: list[Row], logged: list[Logged]) -> bytes:
        loader = self.rates.batches_per_s(), self.rates.loader_alone_per_s(), self.rates.left_s()
        lanes = {name: row.number for name, row in self.rows.items()} if reading.host else {}
        rows = [
            (row.reading, row.number, row.pace, row.epochs if row.epochs >= 0 else -1.0, row.batches)
            for row in drawn
        ]
        self._frames += 1
        seldom = None
        if self._frames % _PACES_EVERY == 0:
            seldom = {-1: self.eta, **{row.number: row.eta for row in drawn}}
        return frame(reading, self.origin_s or 0.0, loader, rows, lanes, logged, etas=seldom)

    def _row(self, reading: ConsumerReading, now_s: float) -> Row:
        row = self.rows.get(reading.name)
        if row is None:
            row = self.rows[reading.name] = Row(
                len(self.rows), reading, since_s=now_s, came_s=now_s, left=self._left_of
            )
        return row

    def _update(self, consumer: ConsumerReading, now_s: float) -> Row:
        row = self._row(consumer, now_s)
        here = consumer.state != "gone"
        if here and consumer.pid != row.reading.pid and (row.reading.pid or row.end):
            self._begin_run(row)
        if here != row.here:
            row.here, row.came_s, row.told = here, now_s, UNKNOWN
        row.pace = self.rates.pace(consumer) if here else UNKNOWN
        if consumer.state == "sets the pace" and row.pace.held > 0.5:  # it waits for others itself
            consumer = replace(consumer, state="held back")
        row.reading = consumer
        row.epochs, row.batches = self._taken.of(consumer.name)
        if here:
            row.lives(now_s, consumer, self.latest.pid if self.latest else 0)
            if consumer.state in STANDING and row.state not in STANDING and self.say.tells_of(consumer.name):
                self._said_s = -math.inf
            if math.isnan(row.told.computing) or consumer.state in STANDING:
                row.told = row.pace
            row.end = row.error = ""
            self._steady(row, consumer.state, now_s, consumer.pause_s)
        return row

    def _begin_run(self, row: Row) -> None:
        """Begin with no numbers: what another run of a trial's name has logged is its former run's."""
        row.run += 1
        row.told, row.life, row.before = UNKNOWN, None, TimeSpent()
        row.metrics.clear()
        row.logged_at.clear()
        row.sparse = ()
        self.curves.begin_anew(row.number)

    def _steady(self, row: Row, state: str, now_s: float, pause_s: float) -> None:
        if state not in _PASSING:
            row.states.clear()
        else:
            row.states.append(state)
            if 2 * row.states.count(state) < len(row.states):
                most = Counter(row.states)
                state = max(reversed(row.states), key=lambda one: most[one])
        if state != row.state:
            row.state, row.since_s = state, now_s - pause_s

    def _ended(self, name: str, end: EndReading, now_s: float) -> Row:
        """Note how one ended that is not here any more, and what it logged last; a failure is said at once."""
        self._said_s = -math.inf if end.state in ("failed", "crashed") else self._said_s
        nothing = replace(never_attached(end), name=name)
        row = self._row(nothing, min(now_s, end.time_s))
        if row.reading.pid not in (0, end.pid) and end.time_s > row.came_s:
            # another run, which never attached: the numbers are of the one before
            self._begin_run(row)
            row.reading, row.epochs, row.batches = nothing, math.nan, 0
        if math.isnan(row.epochs) and end.batches:  # it left before the first reading
            row.epochs, row.batches = self._taken.of(name)
        metrics = {**row.reading.metrics, **end.metrics}
        row.reading, row.pace = replace(row.reading, state="gone", metrics=metrics), UNKNOWN
        if row.life is None:
            row.before = life_of(end).parts
        else:
            row.life.ended(end)
        return row

    def _leave(self, here: set[str], reading: StreamReading) -> None:
        now_s = reading.time_s
        for name, row in self.rows.items():
            row.pending = reading.pending.get(name, "") if name not in here else ""
            if name in here:
                continue
            row.leaves()
            if row.here:
                row.here, row.came_s, row.pace, row.told = False, now_s, UNKNOWN, UNKNOWN
                self._said_s = -math.inf if self.say.tells_of(name) else self._said_s
            end = None if row.pending else self.ends.by_name.get(name)
            row.end, row.error = ("", "") if end is None else (end.state, end.error)
            row.state = row.pending.partition(":")[0] or row.end or "gone"

    def _log(self, row: Row, its: ConsumerReading | EndReading, now_s: float) -> list[Logged]:
        """Keep the new ones of a trial's logged numbers; return them as a frame has them."""
        if its.metrics == row.metrics and its.logged_at == row.logged_at:
            return []
        found, lane, places = [], row.number, row.places
        whole = self.latest.epoch_batches if self.latest else None
        if its.logged_at:
            row.sparse = its.sparse
        for name, at, value, part in newly_logged(row.metrics, row.logged_at, its):
            metric = places.get(name)
            if metric is None:
                if len(places) >= _NAMES:
                    continue
                metric = places[name] = len(places)
            batches = row.batches if at is None else self._taken.at(row.name, at)
            epochs = batches / whole if whole else -1.0 if math.isnan(row.epochs) else row.epochs
            at_all = now_s - (self.origin_s or 0.0), float(batches), epochs
            self.curves.add(lane, metric, at_all, value, part)
            found.append((lane, metric, value, None if batches == row.batches else batches, part))
        return found

    def logged(self) -> dict[str, dict[str, Curve]]:
        """Return all curves, by logged name and then by trial."""
        found: dict[str, dict[str, Curve]] = {}
        with self.lock:
            for row in self.rows.values():
                for name, place in row.places.items():
                    if points := self.curves.points(row.number, place):
                        found.setdefault(name, {})[row.name] = Curve(points, name in row.sparse)
        return found

    def _learn_ways(self, reading: StreamReading) -> None:
        names = dict.fromkeys(name for row in self.rows.values() for name in row.places)
        self.compared = Compared(reading.outcome, names)
        self._ways_s, self._names = reading.time_s, len(self.curves)

    @property
    def best(self) -> dict[str, str]:
        """The best trial by metric, of the very numbers that are shown."""
        with self.lock:
            if self._best is None:
                trials = [(name, row.end, row.metrics) for name, row in self.rows.items() if row.metrics]
                self._best = leaders(trials, self.compared.elsewhere)
            return self._best

    @property
    def is_over(self) -> bool:
        """Whether all trials have ended, or the stream has, and it is known how one of them did."""
        if self._awaited and self.state != "gone":  # most ticks
            return False
        with self.lock:
            now_s = math.inf if self.state == "gone" or self.latest is None else self.latest.time_s
            rows = [row for row in self.rows.values() if not row.here]
            return any(row.end for row in rows) and not any(row.left_at(now_s) for row in rows)

    @property
    def outcome(self) -> tuple[str, str]:
        """Once it is over, what came out, in place of the sentence. Two empty texts before."""
        with self.lock:
            rows = self.rows.values() if self.is_over else ()
            return outcome([row for row in rows if not row.unknown], self.compared.told)

    def limit(self, find: Callable[[], str]) -> str:
        """Find what limited it in all, once it is over and anew for each further end; return that, empty before."""
        with self.lock:
            if not self.is_over:
                return ""
            made_of = self.state, [(row.run, row.end) for row in self.rows.values()]
            if self._limited[0] != made_of:
                self._limited = made_of, find()
            return self._limited[1]

    @property
    def limited(self) -> str:
        """Once it is over, what limited it in all: as it was told by who has followed it for longest, else as found."""
        with self.lock:
            return (self.compared.limited or self._limited[1]) if self.is_over else ""

    def _lately_said(self, reading: StreamReading) -> bool:
        """Whether the sentence stands, whatever limits the stream now: most ticks nothing need be found out."""
        urgent = not _URGENT.isdisjoint((reading.state, self.say.kind)) or self.say.lead in AT_ONCE
        return not urgent and reading.state != "stopping" and 0.0 <= reading.time_s - self._said_s < _TURN_S

    def _speak(self, found: Diagnosis, now_s: float) -> None:
        # while somebody reads, nobody may read below that nobody is attached
        urgent = {found.kind, self.say.kind, found.lead, self.say.lead} & {*_URGENT, *AT_ONCE}
        another = (found.kind, found.pace) != (self.say.kind, self.say.pace)
        if urgent or not 0.0 <= now_s - self._said_s < (_TURN_S if another else _SENTENCE_S):
            self.say, self._said_s, self._said_per_s = found, now_s, self.rates.batches_per_s()
            for row in self.rows.values():
                row.told = row.pace
