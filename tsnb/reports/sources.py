"""Where a report's readings come from: a stream that this process watches, one that is served, or a recording."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tsnb.discovery import registry
from tsnb.discovery.entries import Entry
from tsnb.errors import ProducerNotFound, StreamNotNamed, TsnbError
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.curves import Curve
from tsnb.telemetry.watching import Watch, watch, watched

__all__ = ["StreamReadings", "is_recording", "recorded", "streamed"]

FIRST_S = 3.0
"""How long to wait for a stream's first reading: it sends four a second, also to a new observer."""


@dataclass(frozen=True)
class StreamReadings:
    """Readings, and whether more will come."""

    readings: list[StreamReading]
    """Oldest first; not empty."""
    ended: bool
    """Whether the stream has ended since."""
    since_s: float
    """When the stream began, before its first reading where it was watched late: wall clock, seconds since 1970."""
    logged: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict)
    """Curves of all that its trials logged, by logged name and then by trial: of readings too that are not kept."""


def is_recording(name: str | os.PathLike[str]) -> bool:
    """Return whether a report's argument means a file rather than a stream: it has a folder, a suffix, or is there."""
    if not isinstance(name, str):
        return True
    return os.sep in name or name.endswith((".jsonl", ".json")) or Path(name).is_file()


def recorded(path: str | os.PathLike[str]) -> StreamReadings:
    """Return the readings of a recording.

    Raises:
        TsnbError: It cannot be read, or holds no reading.
        ValueError: It is not a recording.
    """
    from tsnb.telemetry.recording import read_recording

    readings = read_recording(Path(path))
    if not readings:
        raise TsnbError(
            f"The recording {os.fspath(path)!r} is empty, because its stream ended before the first reading."
        )
    return StreamReadings(readings, readings[-1].state in {"stopping", "gone"}, readings[0].time_s)


def streamed(name: str | None = None) -> StreamReadings:
    """Return what this process knows of a stream; from now on it watches the stream, if it did not.

    Args:
        name: The stream's; None: the only one that is served, else the one that was watched last.

    Raises:
        ProducerNotFound: No such stream is served or was watched; lists those that are.
        TsnbError: It does not answer.
    """
    there = _watch_of(name)
    readings = there.readings(FIRST_S)
    if not readings:
        pid = next((e.pid for e in registry.entries() if e.name == there.name and not e.elsewhere), 0)
        raise TsnbError(f"The stream {there.name!r} sends no readings: {registry.why_silent(pid)}")
    over = there.over or there.state in {"gone", "stopping"}
    return StreamReadings(readings, over, there.since_s, there.view.logged())


def _watch_of(name: str | None) -> Watch:
    entries = registry.entries()
    served, known = [entry.name for entry in entries], watched()
    if name is None:
        own = [entry.name for entry in entries if registry.is_mine(entry)]
        ended = [word for word, its in known.items() if its.readings() and word not in served]
        name = _only(own if own or len(ended) == 1 else served, known)
    there = known.get(name)
    entry = next((entry for entry in entries if entry.name == name), None)
    if entry is not None and (there is None or (there.over and not _is_that(entry, there))):
        return watch(name)
    if there is not None and (there.readings() or name in served):
        return there
    ended = [known_name for known_name, its in known.items() if its.readings() and known_name not in served]
    raise ProducerNotFound(
        f"No stream named {name!r} is served, and this process observed none. Served now: "
        f"{', '.join(served) or 'none'}; ended, but known here: {', '.join(ended) or 'none'}. The readings of "
        "a stream go with the process that observed them. The results of its trials stay: tsnb.results(), tsnb.plot(). "
        f"To keep a report next time, save it (tsnb.report({name!r}).save('report.html')), or record the stream "
        f"(tsnb.streams.record({name!r}, 'FILE.jsonl')) and pass the recording's path: tsnb.report('FILE.jsonl')."
    )


def _is_that(entry: Entry, ended: Watch) -> bool:
    """Whether an entry is of the stream that has ended: its end is told a moment before its name is free."""
    readings = ended.readings()
    return bool(readings) and readings[-1].pid == entry.pid and readings[-1].time_s >= entry.since_s


def _only(served: list[str], known: dict[str, Watch]) -> str:
    """Return the stream to use when none is named.

    Raises:
        ProducerNotFound: None is there, or several are.
    """
    if len(served) == 1:
        return served[0]
    if served:
        raise StreamNotNamed(f"Several streams are served: {', '.join(served)}. Name one of them.")
    told = [name for name, its in known.items() if its.readings()]
    if told:
        return told[-1]
    raise ProducerNotFound(
        "No stream is served, and this process has observed none. Start one: %tensorsocket start LOADER "
        "--name NAME, or tsnb.serve(loader, name='NAME')."
    )
