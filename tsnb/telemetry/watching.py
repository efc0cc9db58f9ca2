"""Watch: one follower a stream and process, so that a report knows the stream's life from its start.

```
watch(name) ── a thread follows the stream ─┬─ it is stopped: the thread ends, the history stays
                                            └─ the producer goes ─┬─ and is back within AWAIT_S: the same history
                                                                  └─ is not: as if it had been stopped
```

A watch costs a reading four times a second and keeps no more than a `History` holds. It ends with the stream, or
with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tsnb.errors import ProducerNotFound
from tsnb.telemetry.following import Connection, Follower
from tsnb.telemetry.history import History
from tsnb.telemetry.observer import Observer
from tsnb.telemetry.readings import ABSENT, StreamReading

__all__ = ["Watch", "watch", "watched"]

AWAIT_S = 75.0
"""How long a stream that has gone may take to come back: a producer that is started again has 60 s."""

ENDED_KEPT = 8
"""Streams that have ended and whose history is kept; the oldest are forgotten first."""

_watches: dict[str, Watch] = {}
_lock = threading.Lock()


class Watch:
    """Follows one stream and keeps its readings.

    Attributes:
        name: The stream's name.

    Args:
        name: The stream's.
        connect: Opens a connection by name; raises ProducerNotFound.
        await_s: Seconds that a stream that has gone may take to come back.
    """

    def __init__(
        self, name: str, connect: Callable[[str | None], Connection] = Observer, await_s: float = AWAIT_S
    ) -> None:
        self.name = name
        self._history = History()
        self._connect_to = connect
        self._await_s = await_s
        self._absent_s = time.monotonic()
        self._first = threading.Event()
        self._state = ABSENT
        self._over = threading.Event()
        self._follower = Follower(name, self._take, self._note, self._connect)
        self._follower.start()

    @property
    def state(self) -> str:
        """The stream's state at its last reading; "gone" after its end, "absent" before its first."""
        return self._state

    @property
    def over(self) -> bool:
        """Whether nobody follows any more: the stream has ended, or the watch was closed."""
        return self._over.is_set()

    def readings(self, timeout_s: float = 0.0) -> list[StreamReading]:
        """Return what is known of the stream, oldest first.

        Args:
            timeout_s: Seconds to wait for the first reading where there is none yet.
        """
        if timeout_s > 0:
            self._first.wait(timeout_s)
        return self._history.readings()

    def close(self) -> None:
        """Follow no longer; what was read stays."""
        self._over.set()
        self._follower.close()

    def _take(self, reading: StreamReading) -> None:
        self._state = reading.state
        self._history.add(reading)
        self._first.set()

    def _note(self, state: str, text: str, name: str) -> None:
        self._state = state
        if state != ABSENT:
            self._absent_s = time.monotonic()
            if self._follower.ended_for_good:
                self.close()

    def _connect(self, name: str | None) -> Connection:
        """Connect for the follower, on its thread; end it when the stream has been gone for too long."""
        try:
            return self._connect_to(name)
        except ProducerNotFound:
            if time.monotonic() - self._absent_s > self._await_s:
                self.close()
            raise


def watch(name: str, *, anew: bool = False) -> Watch:
    """Return the watch of a stream in this process; the first to ask starts it.

    Args:
        name: The stream's name.
        anew: Begin a new history: another stream of that name has been started.
    """
    with _lock:
        there = _watches.get(name)
        if there is not None and not anew and not there.over:
            return there
        if there is not None:
            there.close()
        # at the end of the dictionary, which is in the order in which streams were started
        _watches.pop(name, None)
        _watches[name] = Watch(name)
        _forget()
        return _watches[name]


def watched() -> dict[str, Watch]:
    """Return every watch of this process by the stream's name, those of streams that have ended too."""
    with _lock:
        return dict(_watches)


def _forget() -> None:
    """Let go of the oldest that have ended. Called under the lock."""
    ended = [name for name, there in _watches.items() if there.over]
    for name in ended[: max(0, len(ended) - ENDED_KEPT)]:
        del _watches[name]
