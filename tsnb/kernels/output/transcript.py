"""What a background kernel has printed, as a terminal would show it: to be looked at as a whole, or in parts.

A transcript is bounded and in memory. It is written by the relay that takes the output, or from a log file that the
kernel itself writes (`FollowedLog`: a trial that outlives its notebook). Any thread may read it.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import threading
from collections import deque
from pathlib import Path
from typing import NamedTuple

from tsnb.kernels.output.screen import Screen
from tsnb.private.files import open_private

__all__ = ["TRANSCRIPT_CHARACTERS", "FollowedLog", "PrintedPart", "Transcript"]

TRANSCRIPT_CHARACTERS = 1_000_000
"""What can be looked back on."""


class PrintedPart(NamedTuple):
    """A part of a log: settled text from a position on, and the lines behind it that may still change."""

    start: int
    """Where `text` starts: characters settled before it. Later than what was asked for if that is forgotten."""
    text: str
    """Text that will not change."""
    open: str
    """The last lines, as they are now."""


class Transcript:
    """The last million characters of a kernel's output."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._screen = Screen()
        self._texts: deque[str] = deque()
        self._kept = 0  # characters in them
        self._settled = 0  # characters, ever

    def feed(self, text: str) -> str:
        """Add text; return what has settled by it."""
        with self._lock:
            settled = self._screen.feed(text)
            if settled:
                self._texts.append(settled)
            self._kept += len(settled)
            self._settled += len(settled)
            while self._kept > TRANSCRIPT_CHARACTERS and len(self._texts) > 1:
                self._kept -= len(self._texts.popleft())
            return settled

    @property
    def text(self) -> str:
        """All that is kept."""
        with self._lock:
            return "".join([*self._texts, self._screen.open])[-TRANSCRIPT_CHARACTERS:]

    @property
    def open(self) -> str:
        """The lines that may still change."""
        return self._screen.open

    @property
    def in_a_line(self) -> bool:
        """Whether the next text would stand behind other text."""
        return self._screen.in_a_line

    def since(self, position: int, most: int = TRANSCRIPT_CHARACTERS) -> PrintedPart:
        """Return what has come since a position.

        Args:
            position: Characters settled until then: `start + len(text)` of the part before; 0: from the start.
            most: Characters of settled text to return at most, the last ones.
        """
        with self._lock:
            start = min(max(position, self._settled - min(self._kept, most)), self._settled)
            wanted, parts = self._settled - start, []
            for text in reversed(self._texts):
                if wanted <= 0:
                    break
                parts.append(text[-wanted:])
                wanted -= len(text)
            return PrintedPart(start, "".join(reversed(parts)), self._screen.open)


class FollowedLog:
    """The transcript of a log file that another process writes, read on whenever it is looked at.

    Args:
        path: The file; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reading = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._at = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._transcript = Transcript()

    @property
    def text(self) -> str:
        """All that is kept."""
        self._catch_up()
        return self._transcript.text

    def since(self, position: int, most: int = TRANSCRIPT_CHARACTERS) -> PrintedPart:
        """Return what has come since a position; see `Transcript.since`."""
        self._catch_up()
        return self._transcript.since(position, most)

    def _catch_up(self) -> None:
        with (
            self._reading,
            contextlib.suppress(OSError),
            os.fdopen(open_private(self._path, os.O_RDONLY), "rb") as file,
        ):
            size = file.seek(0, 2)
            if size < self._at:  # begun anew
                self._begin()
            self._at = max(self._at, size - TRANSCRIPT_CHARACTERS)
            file.seek(self._at)
            new = file.read(size - self._at)
            self._at += len(new)
            self._transcript.feed(self._decoder.decode(new))
