"""Recordings: a stream's readings in a file, to look at later, elsewhere, or beside another run.

```
{"tsnb": "0.1.0", "recording": 1, "stream": "mnist"}      the header: written by, version of this format, name
{"time_s": 1790000000.25, "name": "mnist", ...}           a reading (docs/readings.md), four a second
{"time_s": 1790000000.5, ...}
```

JSON lines in UTF-8. Each line is handed to the system as soon as it is complete, so a recorder that is killed loses
nothing that it had received; a machine that loses power may leave a torn last line, which reading leaves out.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tsnb.discovery import registry
from tsnb.errors import TsnbError
from tsnb.private.files import MANY_BYTES, expanded, read_foreign
from tsnb.telemetry.following import Follower
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.history import without_profiled
from tsnb.text.printable import one_line

__all__ = ["FORMAT", "Recorder", "read_recording", "record"]

FORMAT = 1
"""The version of the format: it changes when an older tsnb could not read it. New fields alone do not change it."""

_RETURN_S = 20.0
"""How long to wait for the producer of a stream that ended without a goodbye: it may be started again."""


class Recorder:
    """Writes a stream's readings to a file until it is stopped or the stream ends. Made by `record`.

    Works in threads of its own, which end with the process; also a context manager.

    Args:
        name: The stream, which is served now.
        path: The file, which does not exist yet.
        return_s: How long to wait for a producer that ended without a goodbye.

    Raises:
        TsnbError: The file cannot be written.
    """

    def __init__(self, name: str, path: Path, return_s: float = _RETURN_S) -> None:
        self.name = name
        """The stream."""
        self.path = path
        """The file."""
        self.readings = 0
        """How many readings it holds so far."""
        self._return_s = return_s
        self._failure = ""
        self._gone_s: float | None = time.monotonic()  # it may go before the first reading
        self._done = threading.Event()
        self._closing = threading.Lock()
        try:
            # readings name trials and what they log: they are this user's alone
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8")
            self._put(json.dumps({"tsnb": _version(), "recording": FORMAT, "stream": name}))
        except FileExistsError:
            raise TsnbError(f"{path} already exists. Choose a new file for the recording.") from None
        except OSError as error:
            raise TsnbError(f"{path} cannot be written: {error.strerror}.") from None
        self._follower = Follower(name, self._take, self._note)
        self._follower.start()
        self._watch = threading.Thread(target=self._run, name=f"tsnb-recorder-{name}", daemon=True)
        self._watch.start()

    @property
    def active(self) -> bool:
        """Whether it still records."""
        return not self._done.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream has ended.

        Args:
            timeout_s: Seconds to wait; None waits for good.

        Returns:
            Whether it has.

        Raises:
            TsnbError: The file could not be written to its end.
        """
        ended = self._done.wait(timeout_s)
        if ended:
            self.stop()
        return ended

    def stop(self) -> None:
        """End the recording; a second call does nothing.

        Raises:
            TsnbError: The file could not be written to its end.
        """
        self._done.set()
        self._close()
        if self._failure:
            raise TsnbError(
                f"the recording {self.path} ends after {self.readings} readings: {self._failure}."
            )

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        doing = "recording" if self.active else "recorded"
        return f"{doing} {self.name} to {self.path}: {self.readings} readings"

    def _take(self, reading: StreamReading) -> None:
        """Write a reading; called in the follower's thread."""
        self._gone_s = None
        if self._done.is_set():
            return
        try:
            self._put(without_profiled(reading).to_json())
            self.readings += 1
        except (OSError, ValueError) as error:  # a full disk; a file that was closed meanwhile
            self._failure = getattr(error, "strerror", None) or str(error)
            self._done.set()

    def _note(self, state: str, _text: str, _name: str) -> None:
        """Hear that the stream is gone; called in the follower's thread."""
        if state == "gone":
            self._gone_s = time.monotonic()
            if self._follower.ended_for_good:
                self._done.set()

    def _run(self) -> None:
        while not self._done.wait(0.25):
            if self._gone_s is not None and time.monotonic() - self._gone_s > self._return_s:
                self._done.set()
        self._close()

    def _close(self) -> None:
        with self._closing:
            self._follower.close()
            try:
                self._file.close()
            except OSError as error:
                self._failure = self._failure or str(error.strerror)

    def _put(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()


def record(stream: str | None, path: str | Path) -> Recorder:
    """Record a stream's readings to a file until the stream ends.

    Example:
        >>> recorder = tsnb.streams.record("digits", "digits.jsonl")
        >>> recorder.stop()

    Args:
        stream: Name of the stream, or None while only one is running.
        path: Path of a new file. By custom its name ends in `.jsonl`.

    Returns:
        The recorder. `stop()` ends it, `wait()` waits for the stream's end.

    Raises:
        ProducerNotFound: If no stream has that name.
        TsnbError: If the file exists, or cannot be written.
    """
    return Recorder(registry.find(stream).name, expanded(path))


def read_recording(path: str | Path) -> list[StreamReading]:
    """Read a recording.

    Args:
        path: The file.

    Returns:
        Its readings, oldest first. A last line that is torn is left out.

    Raises:
        TsnbError: The file cannot be read.
        ValueError: It is not a recording, is one of a newer format, or is damaged.
    """
    try:
        lines = read_foreign(expanded(path), MANY_BYTES).split(b"\n")
    except OSError as error:
        raise TsnbError(f"{path} cannot be read: {error.strerror}.") from None
    whole, torn = lines[1:-1], lines[-1]
    _check(path, lines[0])
    readings = []
    for number, line in enumerate(whole, start=2):
        try:
            readings.append(StreamReading.from_json(line))
        except ValueError as error:
            if number == len(lines) - 1 and not torn:
                break  # the last line has an end, but its middle never reached the disk
            raise ValueError(f"{path}, line {number} is damaged: {error}.") from None
    return readings


def _check(path: str | Path, header: bytes) -> None:
    """Refuse a file that is not a recording, or one that this version cannot read.

    Raises:
        ValueError: It is one of these.
    """
    try:
        found: Any = json.loads(header)
        version = int(found["recording"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise ValueError(
            f"{path} is not a recording: its first line is not the header that `tsnb record` writes."
        ) from None
    if version > FORMAT:
        writer = one_line(found.get("tsnb", "of a later version"), 40)
        raise ValueError(
            f"{path} was recorded by tsnb {writer} in format {version}, and tsnb {_version()} reads formats "
            f"up to {FORMAT}. Install that version or a newer one."
        )


def _version() -> str:
    # not `import tsnb`: its lazy names reach up to the notebook layer
    return str(sys.modules["tsnb"].__version__)
