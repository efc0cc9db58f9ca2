"""What a background kernel reports: the numbers given to `tsnb.log`, how far it is, how it ended.

Rows go out a few times a second at most, all that were logged since the last time together: neither the last value
nor any in between is lost, and the rest goes out when the cell ends. The messages are in `experiments.news`.

Beside each row stands where this process is in its streams (`StreamPosition`). Numbers of the consumers are read from
any thread; none of this may raise into training.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from tsnb.experiments.news import Logged, News, as_message
from tsnb.kernels.in_kernel.output_channel import publish
from tsnb.records.writes import LoggedRow

__all__ = [
    "Reporter",
    "StreamPosition",
    "go_on_from",
    "last_report",
    "position",
    "report",
    "tell",
    "tell_metrics",
    "tell_rows",
    "versions",
]

EVERY_S = 0.25
"""Four reports a second, as often as a stream's readings."""


def tell(news: News) -> None:
    """Tell the process that started this trial. From any thread."""
    publish(*as_message(news))


def tell_rows(rows: Sequence[LoggedRow]) -> None:
    """Tell it what was logged."""
    tell(Logged(list(rows)))


Sink = Callable[[Sequence[LoggedRow]], None]
"""Takes rows; called on the reporter's thread or that of `flush`, never on both at once."""


class Reporter:
    """Makes rows of logged values and hands them on now and then, on a thread of its own.

    Args:
        sinks: Each takes the rows. One that raises is reported once, by the logger "tsnb"; the others go on.
        beat: Called after each time that rows went out, and once a second otherwise.
        count: How many rows were logged before: a clone goes on counting where its parent was.
    """

    def __init__(self, sinks: Sequence[Sink], beat: Callable[[], None], count: int = 0) -> None:
        self._sinks = sinks
        self._beat = beat
        self._rows: list[LoggedRow] = []
        self._count = self._before = count
        self._changing = threading.Lock()
        self._sending = threading.Lock()
        self._wanted = threading.Event()
        self._broken: set[Callable[..., None]] = set()
        threading.Thread(target=self._run, name="tsnb-report", daemon=True).start()

    def take(self, step: int | None, numbers: dict[str, float]) -> None:
        """Take one row. Called on the thread that logs, which knows best where training is."""
        totals = _totals()
        place, stream_epoch = _position(totals), _stream_epoch(totals)
        with self._changing:
            given = self._count if step is None else step
            self._rows.append(LoggedRow(given, *place, time.time(), numbers, stream_epoch))
            self._count += 1
        self._wanted.set()

    @property
    def count(self) -> int:
        """How many rows were taken, those of a clone's parent included."""
        return self._count

    @property
    def own(self) -> int:
        """Of them, those that this trial logged itself: its record has no others."""
        return self._count - self._before

    def go_on(self, rows: int, own: int) -> None:
        """Count rows on from a number, of which so many are this trial's own; those that wait are forgotten."""
        with self._sending, self._changing:
            self._rows.clear()
            self._count, self._before = rows, rows - own

    def flush(self) -> None:
        """Hand on what waits, at once."""
        with self._sending:
            with self._changing:
                rows, self._rows = self._rows, []
            for sink in self._sinks if rows else ():
                self._try(sink, rows)

    def _try(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception:  # training must not end, nor fall silent, because a number could not be kept
            if step not in self._broken:
                self._broken.add(step)
                logging.getLogger("tsnb").exception(
                    "logged numbers could not be sent to the notebook; training continues"
                )

    def _run(self) -> None:
        while True:
            self._wanted.wait(1.0)
            self._wanted.clear()
            self.flush()
            self._try(self._beat)
            time.sleep(EVERY_S)


class StreamPosition(NamedTuple):
    """How far training has come in its stream."""

    epoch: int | None = None
    """The trial's epoch, from 1: the one under way, or the last one; None before the first batch."""
    batch: int | None = None
    """Loader batches taken of it; None where that is not known."""
    samples: int = 0
    """Samples given in all, of all streams."""


def _consumers() -> list[Any]:
    """Return this process's consumers; none where nothing of them was ever imported."""
    found = getattr(
        sys.modules.get("tsnb.stream.consumer"), "consumers", None
    )  # it may be half imported just now
    return [] if found is None else list(found())


_before: dict[str, Any] = {}
"""What the consumers did in the trial's processes before this one, as `report` has it."""


def go_on_from(told: dict[str, Any]) -> None:
    """Count on from a report of this trial's, of a process before this one."""
    _before.clear()
    _before.update(told)


_at_fork = {"samples": 0, "attached_s": 0.0, "paused_s": 0.0}
"""What the consumers had done of which a clone's process inherits the counters, when it was forked."""


def begin_as_clone() -> None:
    """Tell speed and attached time of this process alone: it has been forked from the trial that it clones."""
    _at_fork.update(zip(_at_fork, _sums(_totals()), strict=True))


def _sums(totals: list[Any]) -> tuple[int, float, float]:
    """Return the samples of all, and for how long one was attached and paused at most."""
    samples = sum(total.samples for total in totals)
    attached_s = max((total.attached_s for total in totals), default=0.0)
    return samples, attached_s, max((total.paused_s for total in totals), default=0.0)


def _here(totals: list[Any]) -> tuple[int, float, float]:
    """Return the same of this process alone, without the trial that it was cloned from."""
    samples, attached_s, paused_s = _sums(totals)
    return (
        samples - int(_at_fork["samples"]),
        attached_s - _at_fork["attached_s"],
        paused_s - _at_fork["paused_s"],
    )


def _totals() -> list[Any]:
    """Return what the consumers of this process did (`consumer.counts.Total`), those that are closed included."""
    found = getattr(sys.modules.get("tsnb.stream.consumer"), "totals", None)
    return [] if found is None else list(found())


def position() -> StreamPosition:
    """Return where training is: with several consumers, that which was given most samples."""
    return _position(_totals())


def _position(totals: list[Any]) -> StreamPosition:
    samples = _before.get("samples", 0) + sum(total.samples for total in totals)
    main = max(totals, key=lambda total: total.samples, default=None)
    if main is None or main.epoch < 0:
        return StreamPosition(samples=samples)
    return StreamPosition(_before.get("epochs", 0) + main.begun, main.batch, samples)


def _stream_epoch(totals: list[Any]) -> int | None:
    """Return the stream's number of the epoch that `position` is in; None before the first batch."""
    main = max(totals, key=lambda total: total.samples, default=None)
    return None if main is None or main.epoch < 0 else int(main.epoch)


def tell_metrics() -> None:
    """Tell every stream what was logged since the last time: a loop does so at its steps, and may be over."""
    for consumer in _consumers():
        consumer.tell_metrics()


def last_report() -> dict[str, Any]:
    """Return what the results show of a trial that has ended, its CPU seconds too; {} if it has never attached.

    While it runs they are seen from outside (`telemetry.host`): told each second they would always be news. Of one that
    read one stream it says how long this process was attached: each screen then tells the speed of the results.
    """
    cpu_time = getattr(sys.modules.get("tsnb.stream.consumer"), "cpu_time", lambda: None)()
    totals = _totals()
    told = _report(totals)
    if len(totals) == 1:
        _, attached_s, paused_s = _here(totals)
        told |= {"attached_here_s": attached_s, "paused_here_s": paused_s}
    return told if cpu_time is None else {**told, **cpu_time._asdict()}


def report() -> dict[str, Any]:
    """Return what the results show of this process's consumers, all of them together; {} without any."""
    return _report(_totals())


def _report(totals: list[Any]) -> dict[str, Any]:
    if not totals:
        return {}
    before = _before
    computing_s, waiting_s = before.get("computing_s", 0.0), before.get("waiting_s", 0.0)
    samples, attached_s, paused_s = _sums(totals)
    own, own_s, own_paused_s = _here(totals)
    active_s = own_s - own_paused_s
    inside_s = computing_s + waiting_s + sum(total.inside_s for total in totals)
    waiting_s += sum(total.waited_s for total in totals)
    return {
        "stream": ", ".join(dict.fromkeys(total.stream for total in totals)),
        # validation beside it does not count as training: those of the consumer that was given most samples
        "epochs": before.get("epochs", 0) + max(totals, key=lambda total: total.samples).epochs,
        "batches": before.get("batches", 0) + sum(total.batches for total in totals),
        "samples": before.get("samples", 0) + samples,
        # its own alone, as its row in the panel has it: a clone goes on from what its parent took
        "samples_per_s": round(own / active_s, 1) if active_s > 0 and own else 0.0,
        "attached_s": round(before.get("attached_s", 0.0) + attached_s, 3),
        "paused_s": round(before.get("paused_s", 0.0) + paused_s, 3),
        "computing_s": round(max(0.0, inside_s - waiting_s), 3),
        "waiting_s": round(waiting_s, 3),
    }


def versions() -> dict[str, str]:
    """Return the versions that a result may depend on."""
    found = {"python": platform.python_version(), "tsnb": sys.modules["tsnb"].__version__}
    for package in ("torch", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            # imported modules know their version: reading it off torch's metadata takes some 10 ms of each start
            found[package] = str(getattr(sys.modules.get(package), "__version__", "")) or metadata.version(
                package
            )
    return found
