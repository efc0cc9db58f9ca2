"""The tape: what a panel remembers of a stream, and what it tells its front end.

Readings go in; out come a message a tick (a small JSON object and a frame, see `tsnb.panel.frames`) and,
on demand, everything so far: the *scene* (names, states, sentences) and the *history* (all frames in a row).
Neither a widget nor a thread is here, so a recorded log draws the same panel as a live stream.

```
tick   {"op": "tick", "n": 812}                                   and, only when they have changed:
       "state": "blocked"                                         the stream's
       "stream": {"name", "workers", "window", "slots", "epoch_batches", "failure", "mode", "weights"}
       "say": {"kind", "text", "lead", "pace"}                    the one plain sentence; its first `lead`
                                                                  characters say it all
       "lanes": {"2": {"name", "here", "since_s", "metrics",      only the lanes that changed
                       "awaits", "end", "error", "last"}}    how it ended, of what, and what it logged last
       "best": {"loss": 2}                                       the best lane by metric, now and then
       "marks": [[12.5, "joined", "resnet10", "resnet10 joined"]] only those that are new: time, kind, trial, text
       "gpus": ["NVIDIA H200"]                                    their names, in the frames' order
       "can": {"interrupt", "report"}                             which buttons there are
       "origin_s"                                                 once: what times count from, seconds since 1970
scene  {"n", "origin_s", "states", "recorded", "state", "stream", "say", "lanes": [...], "best", "marks", "gpus", "can"}
       `n` is the last tick that it holds, `states` the names behind the numbers in the frames
```
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any

from tsnb.panel.frames import Lane, Reel, frame
from tsnb.records.scores import leaders
from tsnb.telemetry.diagnosis import NOBODY, diagnose
from tsnb.telemetry.marks import Ends, Mark, Marker, Taken, mode_text, never_attached
from tsnb.telemetry.rates import UNKNOWN, Pace, RateWindow
from tsnb.telemetry.readings import ABSENT, CONSUMER_STATES, ConsumerReading, EndReading, StreamReading

__all__ = ["MARKS", "METRICS", "Message", "Tape"]

MARKS = 200
"""Marks kept: more would not be read, and a sweep of a thousand trials makes two of each."""

METRICS = 6
"""Logged numbers kept a lane (frames have room for 7); more would not fit, and `tsnb.results()` has them all."""

_BEST_S = 5.0
"""Who is the best is looked at this often, and when one has ended: it changes with every step of equal trials."""

_SENTENCE_S = 2.5
"""The sentence is rewritten this often at most, so that its numbers can be read..."""

_TURN_S = 1.5
"""... or this often, where it says something else than before; an end or a failure shows at once."""


@dataclass(frozen=True)
class Message:
    """One message for the front end."""

    content: dict[str, Any]
    """The JSON part."""
    frame: bytes = b""
    """The numbers; empty where only words have changed."""


class Tape:
    """What is known of one stream from what was read of it.

    Args:
        name: The stream's name as far as it is known; empty: whichever there will be.
        recorded: Whether what is fed happened at another time: no button is promised then.
    """

    def __init__(self, name: str = "", *, recorded: bool = False) -> None:
        self.recorded = recorded
        self.lanes: list[Lane] = []
        self.latest: StreamReading | None = None
        self.rates = RateWindow()
        self._numbers: dict[str, int] = {}
        self._ends = Ends()
        self._taken = Taken()
        self.best: dict[str, int] = {}
        self._best_s = -math.inf
        self._before: dict[str, ConsumerReading] = {}
        self._scores: dict[str, dict[str, float]] = {}
        self._reel = Reel()
        self._marker = Marker()
        self._marks: deque[list[Any]] = deque(maxlen=MARKS)
        self._gpus: list[str] = []
        self._can = {"interrupt": False, "report": False}
        self._ticks = 0
        self._origin_s: float | None = None
        self._stream: dict[str, Any] = {"name": name}
        self._state = ABSENT
        self._say: dict[str, Any] = {"kind": "starting", "text": "", "lead": 0, "pace": None}
        self._said_s = 0.0

    @property
    def name(self) -> str:
        """The stream's name; empty while it is unknown."""
        return str(self._stream["name"])

    @property
    def state(self) -> str:
        """One of `PRODUCER_STATES`, or `ABSENT`."""
        return self._state

    @property
    def sentence(self) -> str:
        """The one plain sentence on who waits for whom."""
        return str(self._say["text"])

    def feed(self, reading: StreamReading) -> Message:
        """Take in a reading; return what the front end must hear."""
        first = self._origin_s is None
        if first:
            self._origin_s = reading.time_s
        self.latest = reading
        self.rates.add(reading)
        changes = self._tell(reading.state, _stream_words(reading), self._diagnosis(), reading.time_s)
        if first:
            changes["origin_s"] = reading.time_s
        self._taken.feed(reading)
        ended = self._ended(reading, self._ends.feed(reading))
        rows, changed = self._rows(replace(reading, consumers=reading.consumers + ended))
        if changed:
            changes["lanes"] = {str(number): _lane_words(self.lanes[number]) for number in sorted(changed)}
        if ended or reading.time_s - self._best_s >= _BEST_S:
            changes |= self._mark_best(reading.time_s)
        changes |= self._happened(reading)
        paces = self.rates.batches_per_s(), self.rates.loader_alone_per_s(), self.rates.left_s()
        shown = replace(reading, consumers=reading.consumers + ended)
        numbers = frame(shown, self._origin_s or 0.0, *paces, rows, self._numbers)
        self._reel.add(reading.time_s, numbers, wanted=reading.host is not None)
        return self._message(changes, numbers)

    def note(self, state: str, text: str, name: str = "") -> Message | None:
        """Say something that no reading says (nobody serves it, it has ended).

        Args:
            state: The stream's state now.
            text: The sentence to show.
            name: The stream's name, if it has become known.

        Returns:
            What the front end must hear; None if it knows.
        """
        stream = {**self._stream, "name": name or self.name}
        changes = self._tell(state, stream, _say(state, text), -math.inf)
        return self._message(changes, b"") if changes else None

    def allow(self, **can: bool) -> Message | None:
        """Say which buttons there are: `interrupt`, `report`.

        Returns:
            What the front end must hear; None if it knows.
        """
        allowed = {**self._can, **can}
        if allowed == self._can:
            return None
        self._can = allowed
        return self._message({"can": allowed}, b"")

    def scene(self) -> dict[str, Any]:
        """Return all words as of the last tick."""
        return {
            "n": self._ticks,
            "origin_s": self._origin_s or 0.0,
            "states": CONSUMER_STATES,
            "recorded": self.recorded,
            "state": self._state,
            "stream": self._stream,
            "say": self._say,
            "best": self.best,
            "lanes": [_lane_words(lane) for lane in self.lanes],
            "marks": list(self._marks),
            "gpus": self._gpus,
            "can": self._can,
        }

    def history(self) -> bytes:
        """Return all frames, oldest first."""
        return self._reel.history()

    def paces(self) -> list[tuple[ConsumerReading, Pace]]:
        """Return the consumers of the last reading with their pace."""
        consumers = self.latest.consumers if self.latest else ()
        return [(consumer, self.rates.pace(consumer)) for consumer in consumers]

    def _message(self, changes: dict[str, Any], numbers: bytes) -> Message:
        self._ticks += 1
        return Message({"op": "tick", "n": self._ticks, **changes}, numbers)

    def _diagnosis(self) -> dict[str, Any]:
        earlier, later = self.rates.span
        found = diagnose(earlier, later, self.rates.host)
        return _say(found.kind, found.text, len(found.lead), found.pace)

    def _happened(self, reading: StreamReading) -> dict[str, Any]:
        """Return what changed since the reading before, where anything did."""
        changes: dict[str, Any] = {}
        if marks := [self._mark(mark) for mark in self._marker.feed(reading)]:
            self._marks.extend(marks)
            changes["marks"] = marks
        gpus = [gpu.name for gpu in reading.host.gpus] if reading.host else self._gpus
        if gpus != self._gpus:
            changes["gpus"] = self._gpus = gpus
        return changes

    def _mark(self, mark: Mark) -> list[Any]:
        time_s = round(mark.time_s - (self._origin_s or 0.0), 2)
        return [time_s, mark.kind, mark.consumer, mark.text]

    def _tell(self, state: str, stream: dict[str, Any], say: dict[str, Any], time_s: float) -> dict[str, Any]:
        """Return the words that differ from what was said before, and keep them."""
        changes: dict[str, Any] = {}
        if state != self._state:
            changes["state"] = self._state = state
        if stream != self._stream:
            changes["stream"] = self._stream = stream
        if say != self._say and self._may_say(say, time_s - self._said_s):
            changes["say"] = self._say = say
            self._said_s = time_s
        return changes

    def _may_say(self, say: dict[str, Any], since_s: float) -> bool:
        urgent = {say["kind"], self._say["kind"]} & {"failed", "gone", ABSENT, "starting"}
        another = (say["kind"], say["pace"]) != (self._say["kind"], self._say["pace"])
        # while somebody reads, nobody may read below that nobody is attached
        urgent |= {words["text"][:lead] for words in (say, self._say) if (lead := words["lead"])} & {NOBODY}
        return bool(urgent) or not 0.0 <= since_s < (_TURN_S if another else _SENTENCE_S)

    def _rows(self, reading: StreamReading) -> tuple[list[tuple[int, Lane, Pace]], set[int]]:
        """Return number, lane and pace of each consumer, and the numbers of the lanes whose words changed."""
        now_s = reading.time_s - (self._origin_s or 0.0)
        changed: set[int] = set()
        rows = []
        for consumer in reading.consumers:
            number = self._lane(consumer.name, now_s)
            lane, here = self.lanes[number], consumer.state != "gone"
            if self._update(lane, here, consumer.metrics, now_s, consumer.awaits):
                changed.add(number)
            self._scores[consumer.name] = {**self._scores.get(consumer.name, {}), **consumer.metrics}
            epochs = self._taken.epochs(consumer.name)
            lane.epochs = -1.0 if math.isnan(epochs) else epochs
            rows.append((number, lane, self.rates.pace(consumer) if here else UNKNOWN))
        heard = {number for number, _, _ in rows}
        for number, lane in enumerate(self.lanes):
            if number not in heard and self._update(lane, False, {}, now_s):
                changed.add(number)
        return rows, changed

    def _ended(self, reading: StreamReading, news: dict[str, EndReading]) -> tuple[ConsumerReading, ...]:
        """Return a last reading of each consumer that has ended, with the last that it logged."""
        here = {consumer.name for consumer in reading.consumers}
        before = {name: consumer for name, consumer in self._before.items() if name not in here}
        self._before |= {consumer.name: consumer for consumer in reading.consumers}
        found = []
        for name, end in news.items():
            if name not in here:
                last = replace(before.get(name) or never_attached(end), name=name, state="gone")
                found.append(replace(last, metrics={**last.metrics, **end.metrics}))
        return tuple(found)

    def _mark_best(self, now_s: float) -> dict[str, Any]:
        """Note which lane is the best in each metric; return it where that has changed."""
        self._best_s = now_s
        trials = [
            (lane.name, lane.end, {name: value for name, value in scores.items() if name in lane.metrics})
            for lane in self.lanes
            if (scores := self._scores.get(lane.name))
        ]
        best = {metric: self._numbers[name] for metric, name in leaders(trials).items()}
        if best == self.best:
            return {}
        self.best = best
        return {"best": best}

    def _lane(self, name: str, now_s: float) -> int:
        number = self._numbers.setdefault(name, len(self.lanes))
        if number == len(self.lanes):
            self.lanes.append(Lane(name, False, now_s, []))
        return number

    def _update(
        self, lane: Lane, here: bool, metrics: dict[str, float], now_s: float, awaits: str = ""
    ) -> bool:
        new = [name for name in metrics if name not in lane.metrics][: METRICS - len(lane.metrics)]
        end = self._ends.by_name.get(lane.name)
        told = (end.state, end.error, end.metrics) if end is not None else ("", "", {})
        if (here, awaits, *told) == (lane.here, lane.awaits, lane.end, lane.error, lane.last) and not new:
            return False
        lane.end, lane.error, lane.last = told
        lane.awaits = awaits
        if here != lane.here:
            lane.here, lane.since_s = here, round(now_s, 2)
        # a new list: the scene on its way to the front end may still hold the old one
        lane.metrics = [*lane.metrics, *new]
        return True


def _lane_words(lane: Lane) -> dict[str, Any]:
    """Return what the front end is told of a lane; its epochs travel in the frames."""
    words = asdict(lane)
    del words["epochs"]
    return words


def _say(kind: str, text: str, lead: int = 0, pace: str | None = None) -> dict[str, Any]:
    return {"kind": kind, "text": text, "lead": lead, "pace": pace}


def _stream_words(reading: StreamReading) -> dict[str, Any]:
    return {
        "name": reading.name,
        "workers": reading.workers,
        "window": reading.window,
        "slots": reading.slots,
        "epoch_batches": reading.epoch_batches,
        "failure": reading.failure,
        "mode": mode_text(reading),
        "weights": reading.weights if reading.mode == "weights" else {},
    }
