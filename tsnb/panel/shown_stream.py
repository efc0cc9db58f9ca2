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

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tsnb.panel.tape import Tape
from tsnb.telemetry.following import Follower
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.view import StreamNews
from tsnb.telemetry.watching import Watch, listen, unlisten, watched

if TYPE_CHECKING:
    from tsnb.panel.widget import Panel
    from tsnb.telemetry.view import StreamView

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

    def close(self) -> None:
        """Follow no longer."""
        with self._lock:
            self._closed = True
        if self._follower:
            self._follower.close()
        if self.tape.name:
            unlisten(self.tape.name, self)
