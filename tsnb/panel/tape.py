"""The tape: what a panel tells its front end of a stream.

The stream's state is a `telemetry.shown.view.StreamView`: the watch's, which it has kept since it began, or one of
the tape's own. Out come a message a tick (a small JSON object and a frame) and, on demand,
everything so far: the *scene* (names, states, sentences), the *history* (all frames in a row) and the *curves* (all
that was logged). Nothing is computed anew for a page that opens late. Neither a widget nor a thread is here, so a
recorded log draws the same panel as a live stream.

```
tick   {"op": "tick", "n": 812}                                   and, only when they have changed:
       "state": "blocked"                                         the stream's
       "stream": {"name", "workers", "window", "epoch_batches", "failure", "pacing", "weights",
                  "cache",                                        what its cache does, empty: served without one
                  "unrepeatable"}                                 why an epoch cannot be given again, empty: it can
       "say": {"kind", "text", "lead", "pace", "at"}              the one plain sentence; its first `lead`
                                                                  characters say it all; `at`: the time of the frame
                                                                  whose shares it tells, null where it tells none;
               "limited"                                          once all trials have ended, and only then: what
                                                                  limited the stream in all, as its report says
               "duels"                                            what its duels have found, or find so far, if any
       "lanes": {"2": {"name", "here", "since_s", "metrics",      only the lanes that changed
                       "sparse",                                  names of metrics that are logged once an epoch
                       "run", "awaits", "end", "error", "last",   which run, how it ended, of what, its last numbers
                       "part",                                    which samples it takes, empty: all
                       "whole",                                   samples/s and shares of all its time (computing,
                                                                  waiting, held), once it has left or all is over
                       "pending", "unknown",                      of one that is not attached yet, and only then: state
                                                                  and reason; that it is not known any more
                       "paused_at"}}                              of one that is paused, and only then: since when
       "rule": "churn"                                            the number by which the rules of sweeps decide, if any
       "ways": {"loss": -1}                                       which way a metric is good: 1 high, -1 low
       "marks": [[12.5, "joined", "resnet10", "resnet10 joined"]] only those that are new: time, kind, trial, text
       "gpus": ["NVIDIA H200"]                                    their names, in the frames' order
       "can": {"interrupt", "report"}                             which buttons there are
       "origin_s"                                                 once: what times count from, seconds since 1970
scene  {"n", "origin_s", "states", "recorded", "state", "stream", "say", "lanes": [...], "ways", "marks", "gpus", "can"}
       `n` is the last tick that it holds, `states` the names behind the numbers in the frames
```

A panel of several streams has a tape of each (`tsnb.panel.shown_stream`): its ticks say by `at` which they are of (0 is
left out), and its scene is {"streams": [scene, ...], "lengths": [[bytes of history, of curves], ...]}, laid end to end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tsnb.show.words import LIVE, cache_text
from tsnb.telemetry.lives.limits import limited
from tsnb.telemetry.readings import ABSENT, CONSUMER_STATES, StreamReading
from tsnb.telemetry.shown.history import History
from tsnb.telemetry.shown.marks import Mark, pacing_text
from tsnb.telemetry.shown.outcome import duels_said
from tsnb.telemetry.shown.rates import UNKNOWN
from tsnb.telemetry.shown.rows import Row
from tsnb.telemetry.shown.view import StreamNews, StreamView
from tsnb.text.foreign import as_json

__all__ = ["Message", "Tape"]


@dataclass(frozen=True)
class Message:
    """One message for the front end."""

    content: dict[str, Any]
    """The JSON part."""
    frame: bytes = b""
    """The numbers; empty where only words have changed."""


class Tape:
    """What a panel has told its front end of one stream.

    Args:
        name: The stream's name as far as it is known; empty: whichever there will be.
        recorded: Whether the readings are of another time: buttons are left out then.
    """

    def __init__(self, name: str = "", *, recorded: bool = False) -> None:
        self.recorded = recorded
        self.view = StreamView()
        self._history = History()
        self._seen = 0
        self._name = name
        self._can = {"interrupt": False, "report": False}
        self._ticks = 0
        self._told: dict[str, Any] = {}
        self._lanes: list[dict[str, Any]] = []
        self._lanes_of: list[tuple[Any, ...]] = []
        """What each of those was made of."""
        self._shares = False

    def share(self, view: StreamView, history: History) -> None:
        """Use a view and history that another object feeds, with all that they hold."""
        self.view, self._history, self._shares = view, history, True
        self._seen = history.added
        self._ticks += history.added
        with view.lock:
            self._told, _ = self._words(), self._changed_lanes()

    @property
    def name(self) -> str:
        """The stream's name; empty while it is unknown."""
        return self.view.latest.name if self.view.latest else self._name

    @property
    def latest(self) -> StreamReading | None:
        """The stream's last reading."""
        return self.view.latest

    @property
    def state(self) -> str:
        """One of `PRODUCER_STATES`, or `ABSENT`."""
        return self.view.state

    @property
    def sentence(self) -> str:
        """The one plain sentence on which trial waits for which."""
        return self.view.say.text

    def call(self, name: str) -> None:
        """Know the stream's name before its first reading."""
        self._name = name

    @property
    def ticks(self) -> int:
        """The number of the last tick."""
        return self._ticks

    @property
    def can(self) -> dict[str, bool]:
        """Which buttons there are."""
        return self._can

    def feed(self, reading: StreamReading) -> Message:
        """Take in a reading of this tape's own view; return what the front end must hear."""
        tick = self.view.feed(reading)
        self._history.add(tick.reading, tick.frame, bool(tick.marks))
        return self.tell(tick)

    def tell(self, tick: StreamNews) -> Message:
        """Return what the front end must hear of what the view was fed."""
        self._seen += 1
        changes = self._news()
        if tick.marks:
            changes["marks"] = [self._mark(mark) for mark in tick.marks]
        return self._message(changes, tick.frame)

    def note(self, state: str, text: str, name: str = "") -> Message | None:
        """Say something that no reading says (it is not served, it has ended).

        Args:
            state: The stream's state now.
            text: The sentence to show.
            name: The stream's name, if it has become known.

        Returns:
            What the front end must hear; None if it knows.
        """
        self._name = name or self._name
        self.view.note(state, text)
        changes = self._news()
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

    def scene(self, *, over: bool = False) -> dict[str, Any]:
        """Return all words as of the last tick.

        Args:
            over: Whether nothing follows: what each trial did in all belongs to it.
        """
        with self.view.lock:
            return {
                "n": self._ticks,
                "origin_s": self.view.origin_s or 0.0,
                "states": CONSUMER_STATES,
                "recorded": self.recorded,
                "gpus": [],
                **self._words(),
                "lanes": self._lane_words(over or self.recorded or self._over),
                "marks": [self._mark(mark) for mark in self.view.marks],
                "can": self._can,
            }

    def history(self) -> bytes:
        """Return all frames, oldest first, those of a long life in part."""
        return self._history.frames(self._seen)

    def curves(self) -> bytes:
        """Return all that was logged (`telemetry.shown.curves.Curves`)."""
        with self.view.lock:
            return self.view.curves.to_bytes()

    def _message(self, changes: dict[str, Any], numbers: bytes) -> Message:
        self._ticks += 1
        return Message({"op": "tick", "n": self._ticks, **changes}, numbers)

    def _words(self) -> dict[str, Any]:
        """Return the stream's words as of now."""
        view, say = self.view, self.view.say
        said = None if view.said_s is None else round(view.said_s - (view.origin_s or 0.0), 2)
        words: dict[str, Any] = {
            "state": view.state,
            "stream": _stream_words(view.latest) if view.latest else {"name": self._name},
            "say": {"kind": say.kind, "text": say.text, "lead": len(say.lead), "pace": say.pace, "at": said},
            "ways": view.compared.ways,
        }
        if not self._shares:  # else who feeds it has seen to that
            limited(view, self._history)
        if view.limited:
            words["say"]["limited"] = view.limited
        if duels := duels_said(view.rows.keys(), view.compared.told):
            words["say"]["duels"] = duels
        if view.is_over and (trained := view.ends.trained) is not None:
            first_s, last_s = (at_s - (view.origin_s or 0.0) for at_s in trained)
            busy_s = last_s - first_s - view.ends.idle_s
            words["say"]["trained"] = [round(seconds, 2) for seconds in (first_s, last_s, busy_s)]
        if view.compared.rule or self._told.get("rule"):
            words["rule"] = view.compared.rule
        if view.origin_s is not None:
            words["origin_s"] = view.origin_s
        if view.host is not None and view.host.gpus:
            words["gpus"] = [gpu.name for gpu in view.host.gpus]
        return words

    def _lane_words(self, over: bool) -> list[dict[str, Any]]:
        begin_s = self.view.origin_s or 0.0
        return [_lane(row, begin_s, over) for row in self.view.rows.values()]

    @property
    def _over(self) -> bool:
        """Whether nothing more happens to any trial."""
        return self.view.state not in LIVE

    def _news(self) -> dict[str, Any]:
        """Return the words that differ from what was said before, and keep them."""
        with self.view.lock:
            words, changed = self._words(), self._changed_lanes()
        before = self._told or {"state": ABSENT, "ways": {}}
        changes = {key: value for key, value in words.items() if before.get(key) != value}
        if changed:
            changes["lanes"] = changed
        self._told = words
        return changes

    def _changed_lanes(self) -> dict[str, dict[str, Any]]:
        """Return the words of the lanes that have changed, and keep them; the view's lock is held."""
        begin_s = self.view.origin_s or 0.0
        changed = {}
        for k, row in enumerate(self.view.rows.values()):
            made_of = _made_of(row, self._over)
            if k < len(self._lanes_of) and made_of == self._lanes_of[k]:
                continue
            lane = _lane(row, begin_s, self._over)
            if k == len(self._lanes):
                self._lanes.append({})
                self._lanes_of.append(())
            if lane != self._lanes[k]:
                changed[str(k)] = lane
            self._lanes[k], self._lanes_of[k] = lane, made_of
        return changed

    def _mark(self, mark: Mark) -> list[Any]:
        time_s = round(mark.time_s - (self.view.origin_s or 0.0), 2)
        return [time_s, mark.kind, mark.consumer, mark.text]


def _made_of(row: Row, over: bool) -> tuple[Any, ...]:
    """Return all that a lane's words follow from: most lanes are as they were, and this is cheaper than the words."""
    # a row's names are only added to, and frames have the numbers of those that are here
    return (
        row.here,
        row.came_s,
        len(row.places),
        row.sparse,
        row.run,
        row.reading.awaits,
        row.end,
        row.error,
        None if row.here else dict(row.metrics),
        row.reading.part,
        row.pending,
        row.unknown,
        row.state == "paused" and row.since_s,
        None if row.here and not over else row.whole,
    )


def _lane(row: Row, begin_s: float, over: bool) -> dict[str, Any]:
    """Return the message to the front end about a lane; numbers travel in the frames."""
    whole = UNKNOWN if row.here and not over else row.whole.pace
    # as many digits as the frames' numbers have: with four, 74.496 % was 75 % here and 74 % in the report
    apart = whole.joining, whole.paused, whole.timed_out
    numbers = whole.samples_per_s, whole.computing, whole.waiting, whole.held, *apart
    told = [float(f"{one:.7g}") for one in numbers]
    return {
        "name": row.name,
        "here": row.here,
        "since_s": round(row.came_s - begin_s, 2),
        "metrics": list(row.places),
        "sparse": list(row.sparse),
        "run": row.run,
        "awaits": row.reading.awaits if row.here else "",
        "end": row.end,
        "error": row.error,
        "last": {name: as_json(value) for name, value in row.metrics.items()} if not row.here else {},
        "part": row.reading.part,
        **({} if math.isnan(whole.computing) else {"whole": told}),
        **({"pending": row.pending} if row.pending else {}),
        **({"unknown": True} if row.unknown else {}),
        **({"paused_at": round(row.since_s - begin_s, 2)} if row.here and row.state == "paused" else {}),
    }


def _stream_words(reading: StreamReading) -> dict[str, Any]:
    return {
        "name": reading.name,
        "workers": reading.workers,
        "window": reading.window,
        "epoch_batches": reading.epoch_batches,
        "failure": reading.failure,
        "pacing": pacing_text(reading),
        "weights": reading.weights if reading.pacing == "weights" else {},
        "cache": cache_text(reading),
        "unrepeatable": reading.unrepeatable,
    }
