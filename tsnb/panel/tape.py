"""The tape: what a panel remembers of a stream, and what it tells its front end.

Readings go in; out come a message a tick (a small JSON object and a frame, see `tsnb.panel.frames`) and,
on demand, everything so far: the *scene* (names, states, sentences) and the *history* (all frames in a row).
Neither a widget nor a thread is here, so a recorded log draws the same panel as a live stream.

```
tick   {"op": "tick", "n": 812}                                   and, only when they have changed:
       "state": "blocked"                                         the stream's
       "stream": {"name", "workers", "window", "slots", "epoch_batches", "failure"}
       "say": {"kind", "text", "pace"}                            the one plain sentence
       "lanes": {"2": {"name", "here", "since_s", "metrics"}}     only the lanes that changed
scene  {"n", "origin_s", "states", "state", "stream", "say", "lanes": [...]}
       `n` is the last tick that it holds, `states` the names behind the numbers in the frames
```
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from tsnb.panel.frames import Lane, frame
from tsnb.telemetry.diagnosis import diagnose
from tsnb.telemetry.rates import Pace, RateWindow
from tsnb.telemetry.readings import ABSENT, CONSUMER_STATES, ConsumerReading, StreamReading

__all__ = ["HISTORY_TICKS", "METRICS", "Message", "Tape"]

HISTORY_TICKS = 2400
"""Ten minutes at four ticks a second; about 0.4 MB for three trials."""

METRICS = 6
"""Logged numbers kept a lane; more would not fit the panel, and `tsnb.results()` has them all."""

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
    """What is known of one stream since the panel was opened.

    Args:
        name: The stream's name as far as it is known; empty: whichever there will be.
    """

    def __init__(self, name: str = "") -> None:
        self.lanes: list[Lane] = []
        self.latest: StreamReading | None = None
        self.rates = RateWindow()
        self._frames: deque[bytes] = deque(maxlen=HISTORY_TICKS)
        self._ticks = 0
        self._origin_s: float | None = None
        self._stream: dict[str, Any] = {"name": name}
        self._state = ABSENT
        self._say: dict[str, Any] = {"kind": "starting", "text": "", "pace": None}
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
        if self._origin_s is None:
            self._origin_s = reading.time_s
        self.latest = reading
        self.rates.add(reading)
        changes = self._tell(reading.state, _stream_words(reading), self._diagnosis(), reading.time_s)
        rows, changed = self._rows(reading)
        if changed:
            changes["lanes"] = {str(number): asdict(self.lanes[number]) for number in sorted(changed)}
        numbers = frame(reading, self._origin_s, self.rates.batches_per_s(), rows)
        self._frames.append(numbers)
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
        changes = self._tell(state, stream, {"kind": state, "text": text, "pace": None}, -math.inf)
        return self._message(changes, b"") if changes else None

    def scene(self) -> dict[str, Any]:
        """Return all words as of the last tick."""
        return {
            "n": self._ticks,
            "origin_s": self._origin_s or 0.0,
            "states": CONSUMER_STATES,
            "state": self._state,
            "stream": self._stream,
            "say": self._say,
            "lanes": [asdict(lane) for lane in self.lanes],
        }

    def history(self) -> bytes:
        """Return all frames, oldest first."""
        return b"".join(self._frames)

    def paces(self) -> list[tuple[ConsumerReading, Pace]]:
        """Return the consumers of the last reading with their pace."""
        consumers = self.latest.consumers if self.latest else ()
        return [(consumer, self.rates.pace(consumer)) for consumer in consumers]

    def _message(self, changes: dict[str, Any], numbers: bytes) -> Message:
        self._ticks += 1
        return Message({"op": "tick", "n": self._ticks, **changes}, numbers)

    def _diagnosis(self) -> dict[str, Any]:
        earlier, later = self.rates.span
        found = diagnose(earlier, later)
        return {"kind": found.kind, "text": found.text, "pace": found.pace}

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
        return bool(urgent) or not 0.0 <= since_s < (_TURN_S if another else _SENTENCE_S)

    def _rows(self, reading: StreamReading) -> tuple[list[tuple[int, Lane, Pace]], set[int]]:
        """Return number, lane and pace of each consumer, and the numbers of the lanes whose words changed."""
        now_s = reading.time_s - (self._origin_s or 0.0)
        changed: set[int] = set()
        rows = []
        for consumer in reading.consumers:
            number = self._lane(consumer.name, now_s)
            if self._update(self.lanes[number], consumer.state != "gone", consumer.metrics, now_s):
                changed.add(number)
            rows.append((number, self.lanes[number], self.rates.pace(consumer)))
        here = {number for number, _, _ in rows}
        for number, lane in enumerate(self.lanes):
            if number not in here and self._update(lane, False, {}, now_s):
                changed.add(number)
        return rows, changed

    def _lane(self, name: str, now_s: float) -> int:
        for number, lane in enumerate(self.lanes):
            if lane.name == name:
                return number
        self.lanes.append(Lane(name, False, now_s, []))
        return len(self.lanes) - 1

    def _update(self, lane: Lane, here: bool, metrics: dict[str, float], now_s: float) -> bool:
        new = [name for name in metrics if name not in lane.metrics][: METRICS - len(lane.metrics)]
        if here == lane.here and not new:
            return False
        if here != lane.here:
            lane.here, lane.since_s = here, round(now_s, 2)
        # a new list: the scene on its way to the front end may still hold the old one
        lane.metrics = [*lane.metrics, *new]
        return True


def _stream_words(reading: StreamReading) -> dict[str, Any]:
    return {
        "name": reading.name,
        "workers": reading.workers,
        "window": reading.window,
        "slots": reading.slots,
        "epoch_batches": reading.epoch_batches,
        "failure": reading.failure,
    }
