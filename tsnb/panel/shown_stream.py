"""One stream of a panel, from what feeds it to the messages about it.

A panel shows one stream, or several of one notebook, as training and validation. Each has its tape, and is
told by the watch of its stream, which it shares with reports. A message of any but the first says `at`, its number.

```
watch of "train" ── tell, note ──▶ first stream  ─┐
                                                  ├─ deliver ──▶ Panel ──▶ pages
watch of "val"   ── tell, note ──▶ second stream ─┘
```

One without a name waits for the one stream that is served, or is told which it shall show (`be`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tsnb.panel.tape import Tape
from tsnb.planners.timeline import newest_on
from tsnb.show.view_text import as_text
from tsnb.telemetry.following import Follower
from tsnb.telemetry.observer import balance
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.view import StreamNews
from tsnb.telemetry.watching import Watch, listen, unlisten, watched

if TYPE_CHECKING:
    from tsnb.panel.widget import Panel
    from tsnb.telemetry.shown.view import StreamView

__all__ = ["ShownStream"]


class ShownStream:
    """One stream of a panel.

    Attributes:
        tape: What the front end was told of the stream.

    Args:
        name: The stream's; empty: the one that is served, once there is exactly one.
        lock: Guards the tapes of a panel: readings arrive on other threads than state requests and clicks.
        panel: Takes the messages; the lock is held then.
        recorded: Whether it will be fed what happened at another time.
    """

    def __init__(self, name: str, lock: threading.Lock, panel: Panel, *, recorded: bool = False) -> None:
        self.tape = Tape(name, recorded=recorded)
        self._lock = lock
        self._panel = panel
        self._follower: Follower | None = None
        self._listens = False
        self._closed = False

    @property
    def name(self) -> str:
        """The stream's name; empty while it is unknown."""
        return self.tape.name

    @property
    def view(self) -> StreamView:
        """The stream as every screen shows it."""
        return self.tape.view

    @property
    def watch(self) -> Watch | None:
        """What watches the stream in this process."""
        return watched().get(self.tape.name)

    def follow(self) -> None:
        """Show the stream from now on, until `close()`, with what this process already knows of it."""
        if self.tape.name:
            self._listen(self.tape.name)
        else:
            self._follower = Follower(None, self._found, self.note)
            self._follower.start()

    def be(self, name: str) -> None:
        """Show that stream: none was named, and none found so far."""
        if self._follower is not None:
            self._follower.close()
        self._listen(name)

    def _found(self, reading: StreamReading) -> None:
        """Know the stream's name. Called once, on the follower's thread."""
        self.be(reading.name)

    def _listen(self, name: str) -> None:
        with self._lock:
            if self._closed or self._listens:
                return
            self._listens = True
            known = listen(name, self)
            self.tape.share(known.view, known.history)
            self.tape.call(name)
            if known.note:
                self.tape.note(*known.note)
            if known.history.added or known.note:
                self._panel.deliver_all()

    def feed(self, reading: StreamReading) -> None:
        """Show a reading of a stream that this process does not watch."""
        with self._lock:
            self._panel.deliver(self, self.tape.feed(reading))
            self._panel.pictured(self, reading)

    def tell(self, tick: StreamNews) -> None:
        """Show what a reading has brought. Called on the watch's thread."""
        with self._lock:
            self._panel.deliver(self, self.tape.tell(tick))
            self._panel.pictured(self, tick.reading)

    def note(self, state: str, text: str, name: str = "") -> None:
        """Show a state and a sentence that no reading carries (see `Tape.note`)."""
        with self._lock:
            message = self.tape.note(state, text, name)
            if message:
                self._panel.deliver(self, message)
                self._panel.pictured(self, None)

    def act(self, ask: Callable[[Watch], None]) -> None:
        """Ask the stream for something over its watch's connection; nothing where nobody watches it."""
        if (watch := self.watch) is not None:
            ask(watch)

    def balance(self, wish: Mapping[str, Any]) -> None:
        """Divide the stream's compute in another way: by the weights that were given, else by those that it has.

        Args:
            wish: What the page sent: `pacing`, and `weights` by name.

        Raises:
            ValueError, ProducerNotFound, ProducerGone, TsnbError: As `observer.balance`.
        """
        pacing, latest, weights = str(wish.get("pacing", "")), self.tape.latest, wish.get("weights")
        if not isinstance(weights, dict):
            weights = latest.weights if latest and pacing == "weights" else None
        balance(self.name, pacing, weights)

    def pid_of(self, name: str) -> int | None:
        """Return the process of a consumer; a group's name stands for its ranks. None: it is not there."""
        latest = self.tape.latest
        found = () if latest is None else latest.consumers
        return next((c.pid for c in found if c.name == name or c.name.startswith(f"{name}[")), None)

    def plan(self) -> dict[str, Any] | None:
        """Return the newest plan of this process, if trials of it took batches of the stream."""
        latest, origin_s, there = self.tape.latest, self.view.origin_s, self.watch
        if latest is None or origin_s is None or self.tape.recorded:
            return None
        # a view goes on with the next stream of its name, a watch knows when the one that it follows began
        since_s = origin_s if there is None or math.isinf(there.since_s) else there.since_s
        found = newest_on(latest.name, since_s, latest.time_s)
        return None if found is None else found.to_dict()

    def text(self, *, brief: bool = False) -> str:
        """Return the stream as plain text, for clients that show no panel.

        Args:
            brief: Its name alone: what else there is to say stands beside it.
        """
        what = f"tsnb panel of the stream {self.name}" if self.name else "tsnb panel, no stream chosen"
        return what if brief else as_text(self.view, what, recorded=self.tape.recorded)

    def close(self) -> None:
        """Follow no longer."""
        with self._lock:
            self._closed = True
        if self._follower:
            self._follower.close()
        if self.tape.name:
            unlisten(self.tape.name, self)
