"""What has been heard of a stream so far, as far as one screen needs it. Knows no terminal."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tsnb.records.scores import leaders
from tsnb.telemetry.diagnosis import NOBODY, Diagnosis, diagnose
from tsnb.telemetry.energy import NOT_MEASURABLE, energy_use
from tsnb.telemetry.marks import Ends, Mark, Marker, Taken, never_attached
from tsnb.telemetry.rates import UNKNOWN, Pace, RateWindow
from tsnb.telemetry.readings import ABSENT, ConsumerReading, EndReading, HostReading, StreamReading

__all__ = ["Row", "Story"]

_PASSING = frozenset({"streaming", "waiting", "held back", "sets the pace", "skipping"})
"""States that change with every batch..."""

_STEADY = 8
"""... so that the one shown is the most frequent of this many ticks: it agrees with the rates beside it."""

_ROWS = 12
"""Rows on the screen: those who are here, and of those who left the latest."""

_SENTENCE_S = 2.5
"""The sentence is rewritten this often at most, so that its numbers can be read..."""

_TURN_S = 1.5
"""... or this often, where it says something else than before; an end or a failure shows at once."""

_LOOKS = 15
"""Looks at the machine over which energy is told: half a minute."""

_URGENT = frozenset({"failed", "gone", "starting", ABSENT})


@dataclass
class Row:
    """One trial on the screen."""

    number: int
    """In the order of first appearance: its colour."""
    reading: ConsumerReading
    """The last that was heard of it."""
    here: bool = True
    """Whether it is attached."""
    pace: Pace = UNKNOWN
    """Of the last seconds."""
    state: str = "joining"
    """What to show: one of `CONSUMER_STATES`, or of `END_STATES`."""
    since_s: float = 0.0
    """Since when it is in that state; wall clock."""
    error: str = ""
    """What it failed of, one line."""
    epochs: float = math.nan
    """Epochs that it has taken."""
    best: frozenset[str] = frozenset()
    """Logged numbers in which it is the best."""
    states: deque[str] = field(default_factory=lambda: deque(maxlen=_STEADY))
    """Its states of the last ticks."""


class Story:
    """What one screen knows of a stream."""

    def __init__(self) -> None:
        self.latest: StreamReading | None = None
        self.host: HostReading | None = None
        self.state = ABSENT
        self.say = Diagnosis("starting", "", None, "")
        self.rates = RateWindow()
        self.marks: deque[Mark] = deque(maxlen=50)
        self._rows: dict[str, Row] = {}
        self._marker = Marker()
        self._ends = Ends()
        self._taken = Taken()
        self._said_s = 0.0
        self._looks: deque[StreamReading] = deque(maxlen=_LOOKS)

    @property
    def energy(self) -> str:
        """Joules for 1,000 samples over the last looks at the machine; empty where nothing is measured."""
        text = energy_use(self._looks).text
        return "" if text == NOT_MEASURABLE else text

    def feed(self, reading: StreamReading) -> None:
        """Take in a reading."""
        self.latest, self.state = reading, reading.state
        self.rates.add(reading)
        self.host = reading.host or self.host
        if reading.host is not None:
            self._looks.append(reading)
        self.marks += self._marker.feed(reading)
        self._speak(diagnose(*self.rates.span, self.host), reading.time_s)
        for row in self._rows.values():
            row.here = False
        for consumer in reading.consumers:
            if consumer.state != "gone":
                self._update(consumer, reading.time_s)
        self._end(self._ends.feed(reading))
        self._taken.feed(reading)
        for name, row in self._rows.items():
            row.epochs = self._taken.epochs(name)
        best = leaders([(name, row.state, row.reading.metrics) for name, row in self._rows.items()])
        for name, row in self._rows.items():
            row.best = frozenset(metric for metric, leader in best.items() if leader == name)

    def _end(self, news: Mapping[str, EndReading]) -> None:
        """Note how those ended that are not here any more, and what they logged last."""
        for name, end in news.items():
            row = self._rows.setdefault(name, Row(len(self._rows), never_attached(end), here=False))
            row.reading = replace(row.reading, metrics={**row.reading.metrics, **end.metrics})
        for name, row in self._rows.items():
            if not row.here:
                ended = self._ends.by_name.get(name)
                row.state, row.error = ("gone", "") if ended is None else (ended.state, ended.error)

    def note(self, state: str, text: str) -> None:
        """Take in what no reading says: nobody serves the stream, it has ended."""
        self.state = state
        self.say = Diagnosis(state, text, None, text)

    def settle(self) -> None:
        """Say what the last reading means, however short ago something else was said."""
        if self.latest:
            self._said_s = 0.0
            self._speak(diagnose(*self.rates.span, self.host), self.latest.time_s)

    def rows(self) -> list[Row]:
        """Return the trials to show, in the order of first appearance."""
        here = [row for row in self._rows.values() if row.here]
        left = [row for row in self._rows.values() if not row.here]
        room = max(0, _ROWS - len(here))
        return sorted(here + (left[-room:] if room else []), key=lambda row: row.number)

    def metrics(self) -> list[str]:
        """Return the two logged numbers to show: a loss before an accuracy before others."""
        names = list(dict.fromkeys(name for row in self.rows() for name in row.reading.metrics))
        lowered = {name: name.lower() for name in names}
        order = {name: 0 if "loss" in low else 1 if "acc" in low else 2 for name, low in lowered.items()}
        return sorted(names, key=lambda name: order[name])[:2]

    def _update(self, consumer: ConsumerReading, now_s: float) -> None:
        row = self._rows.setdefault(consumer.name, Row(len(self._rows), consumer))
        row.error = ""
        row.here, row.reading, row.pace = True, consumer, self.rates.pace(consumer)
        state = consumer.state
        if state not in _PASSING:
            row.states.clear()
        else:
            row.states.append(state)
            most = Counter(row.states)
            state = max(reversed(row.states), key=lambda s: most[s])
        if state != row.state:
            row.state, row.since_s = state, now_s

    def _speak(self, found: Diagnosis, now_s: float) -> None:
        urgent = {found.kind, self.say.kind, found.lead, self.say.lead} & {*_URGENT, NOBODY}
        another = (found.kind, found.pace) != (self.say.kind, self.say.pace)
        if urgent or not 0.0 <= now_s - self._said_s < (_TURN_S if another else _SENTENCE_S):
            self.say, self._said_s = found, now_s
