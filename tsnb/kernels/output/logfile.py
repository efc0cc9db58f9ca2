"""A trial's log on disk: all that it printed, as a terminal would have shown it, and never more than a bound.

```
 beginning, a quarter | [... 1,234,567 bytes left out here ...] | end, a half and growing | open lines
```

The beginning says how a training was set up, the end how it went: the middle is left out. The lines that
may still change (a progress bar) are written over at the next `write`, so the file is complete at any moment,
whatever ends this process. No colours, and nothing else that would steer the terminal that shows it. The file is
opened for each write: a log costs no descriptor.

A detached kernel writes straight to its log: `shorten` keeps that one to the bound.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tsnb.kernels.output.screen import plain
from tsnb.private.files import open_private
from tsnb.text.printable import block

__all__ = ["LOG_BYTES", "LogFile"]

LOG_BYTES = 16 * 2**20
"""A log's bound: 16 MiB, some 200,000 lines."""

_log = logging.getLogger("tsnb")


class LogFile:
    """Writes one log.

    A file that exists already is continued. If writing fails (a full disk), one warning says so, and lines are left
    out: a trial does not end because of its log.

    Args:
        path: The file; its directory exists.
        most_bytes: What it may take on disk.
    """

    def __init__(self, path: Path, most_bytes: int = LOG_BYTES) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._end: int | None = None  # where the settled text ends
        self._head = 0  # where the kept beginning ends, once something was left out
        self._left_out = 0
        self._note = b""
        self._broken = False

    def write(self, settled: str, still_open: str = "") -> None:
        """Add settled text, and put the open lines behind it in place of the former ones."""
        if self._broken:
            return
        try:
            descriptor = open_private(self.path, os.O_RDWR | os.O_CREAT)
            try:
                self._append(descriptor, _bytes(settled), _bytes(still_open))
            finally:
                os.close(descriptor)
        except OSError as error:
            self._broken = True
            _log.warning("the log %s is no longer written: %s", self.path, error)

    def shorten(self) -> None:
        """Leave out the middle if the file has grown past its bound, for others that write at its end (O_APPEND).

        What they write during these microseconds is left out too.
        """
        descriptor = open_private(self.path, os.O_RDWR)
        try:
            self._end = os.fstat(descriptor).st_size
            if self._end > self._most_bytes:
                self._leave_out(descriptor)
                os.ftruncate(descriptor, self._end)
        finally:
            os.close(descriptor)

    def _append(self, descriptor: int, settled: bytes, still_open: bytes) -> None:
        if self._end is None:
            self._end = os.fstat(descriptor).st_size
        piece = self._most_bytes // 8
        still_open = still_open[-piece:]
        for start in range(0, len(settled), piece):
            part = settled[start : start + piece]
            if self._end + len(part) + piece > self._most_bytes:
                self._leave_out(descriptor)
            self._end += _put(descriptor, part, self._end)
        _put(descriptor, still_open, self._end)
        os.ftruncate(descriptor, self._end + len(still_open))

    def _leave_out(self, descriptor: int) -> None:
        """Close up the middle: the beginning, a line that tells of it, and half the bound's worth of the end."""
        assert self._end is not None
        if not self._head:
            quarter = os.pread(descriptor, self._most_bytes // 4, 0)
            self._head = quarter.rfind(b"\n") + 1 or len(quarter)
        kept = os.pread(descriptor, self._most_bytes // 2, self._end - self._most_bytes // 2)
        kept = kept[kept.find(b"\n") + 1 :]
        self._left_out += self._end - self._head - len(self._note) - len(kept)
        self._note = f"[... {self._left_out:,} bytes were left out here ...]\n".encode()
        self._end = self._head + _put(descriptor, self._note + kept, self._head)


def _bytes(text: str) -> bytes:
    return block(plain(text), most=len(text)).encode(errors="replace")


def _put(descriptor: int, content: bytes, at: int) -> int:
    """Write all of it at an offset; return its length."""
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, content[written:], at + written)
    return written
