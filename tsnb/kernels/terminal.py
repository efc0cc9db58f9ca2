"""What trials print, on its way to this process's stdout and stderr: no trial waits for whoever reads those.

```
hub's thread   a trial prints ──▶ write ──▶ queue, 1,000,000 characters
terminal's thread                            └──▶ stdout, stderr
```

A pipe that is full, a pager or Ctrl-S holds up the terminal's thread only. A stream that takes no text at all (closed,
None, a full disk) is reported once, and the trials run on. The log of each trial has all of its output.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

__all__ = ["Terminal"]

MOST_CHARACTERS = 1_000_000
"""Text that waits for a reader; what comes after that is left out."""
PATIENT_S = 0.5
"""How long `write` waits for a stream that takes nothing. After that it waits no more until all has been written."""
LAST_S = 30.0
"""At the end of the process: how long nothing is read before what is left is given up."""
PIECE = 1024
"""Characters that a descriptor which is ready takes at once, whatever they are encoded to: 4096 bytes of a pipe."""

_LEFT_OUT = (
    "[tsnb] Some output of trials is missing here because it was not read in time. The log of each trial "
    "has all of it.\n"
)


class Terminal:
    """Writes text to the streams of this process, in order, on a thread of its own. Used from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Any, str]] = deque()
        self._characters = 0  # in the queue, and in what is just being written
        self._left_out: Any = None
        self._moved_s = 0.0
        self._stuck = False
        self._thread: threading.Thread | None = None
        self._broken: Any = None

    def write(self, stream: Any, text: str) -> None:
        """Write text, and return when it is written; soon, if the stream does not take it. Never raises.

        Args:
            stream: Takes text by its `write`; None takes none.
            text: What it gets.
        """
        with self._changed:
            if self._characters + len(text) > MOST_CHARACTERS and self._characters:
                self._left_out = stream
                return
            self._waiting.append((stream, text))
            self._characters += len(text)
            if not self._started():
                self._stuck = True  # no thread can be had: better late than a trial that waits
                return
            self._changed.notify_all()
            if not self._stuck:
                self._stuck = not self._changed.wait_for(lambda: not self._characters, PATIENT_S)

    def _started(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="tsnb-terminal", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no thread for it now
                return False
            self._thread = thread
        return True

    def drain(self) -> None:
        """Return when all is written, or nothing has been read for `LAST_S`. At the end of the process."""
        with self._changed:
            self._moved_s = time.monotonic()
            while self._characters and self._started() and time.monotonic() - self._moved_s < LAST_S:
                self._changed.wait(0.1)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                stream, text = self._waiting.popleft()
            for piece in _pieces(stream, _fitting(stream, text)):
                if not self._put(stream, piece):
                    break
                self._moved_s = time.monotonic()
            with self._changed:
                self._characters -= len(text)
                if not self._characters:
                    self._catch_up()
                self._changed.notify_all()

    def _catch_up(self) -> None:
        """All is written: say what is missing, and wait for the stream again."""
        stream, self._left_out = self._left_out, None
        self._stuck = stream is not None
        if stream is not None:
            self._waiting.append((stream, _LEFT_OUT))
            self._characters = len(_LEFT_OUT)

    def _put(self, stream: Any, text: str) -> bool:
        """Write to a stream that is ready; return whether it takes text at all."""
        if stream is None:
            return False
        try:
            stream.write(text)
            if hasattr(stream, "flush"):
                stream.flush()
        except Exception as error:  # noqa: BLE001 (any object may stand for stdout, and raise anything)
            # `| head`: nobody reads on, and that is meant
            if not isinstance(error, BrokenPipeError) and self._broken is not stream:
                self._broken = stream
                self._tell(error)
            return False
        return True

    @staticmethod
    def _tell(error: Exception) -> None:
        with contextlib.suppress(Exception):  # stderr may be as broken
            logging.getLogger("tsnb").warning(
                "The output of trials cannot be shown here (%s). The trials continue, and their logs "
                "have all of it.",
                error,
            )


def _fitting(stream: Any, text: str) -> str:
    """Return the text in letters that the stream has: an ASCII terminal shows others by their numbers."""
    encoding = getattr(stream, "encoding", None)
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding) if encoding else text
    except (LookupError, TypeError, ValueError):
        return text


def _pieces(stream: Any, text: str) -> Iterator[str]:
    """Give the text in pieces, each when the stream's descriptor takes it: a thread that waits holds no lock of it."""
    try:
        descriptor = stream.fileno()
        ready = select.poll()
        ready.register(descriptor, select.POLLOUT)
    except (AttributeError, OSError, TypeError, ValueError):
        yield text
        return
    for start in range(0, len(text), PIECE):
        ready.poll()
        yield text[start : start + PIECE]
