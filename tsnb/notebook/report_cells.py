"""What a notebook keeps of its streams: reports in cells, and recordings."""

from __future__ import annotations

import sys
import time
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from tsnb.experiments import trials
from tsnb.kernels.output.outlets import outlet_here
from tsnb.telemetry.watching import watch, watched

if TYPE_CHECKING:
    from tsnb.panel import Panel
    from tsnb.reports import Report
    from tsnb.telemetry.recording import Recorder

__all__ = ["Ending", "begin", "record", "recorders", "report", "report_here"]

ENDS_S = 3.0
"""How long a report at a stream's stop waits for trials that end with it: they do at their next batch."""

recorders: dict[str, Recorder] = {}
"""The recordings that this notebook began, by the stream's name; the last one of each."""


def begin(name: str) -> None:
    """Watch a stream that has just been started here, from its first reading on."""
    watch(name, anew=True)
    if (panels := sys.modules.get("tsnb.panel")) is not None:  # else no panel is open
        panels.served_here(name)


class Ending:
    """Takes care that a stream's report can be shown when it has been stopped, wherever it was started.

    Made before the stream is asked to stop: of a stream that was not watched yet the last reading is kept.

    Args:
        name: The stream's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._watch = watched().get(name)
        if self._watch is None or self._watch.over:
            self._watch = watch(name)
            self._watch.readings(1.0)

    def report(self) -> Report | None:
        """Return the report of the stream that has ended now; None where no trial ever attached."""
        assert self._watch is not None
        readings = self._watch.readings()
        self._watch.close()
        attached = {consumer.name for reading in readings for consumer in reading.consumers}
        if not attached:
            return None
        _await_ends(attached)
        return report(self._name)


def _await_ends(names: Iterable[str]) -> None:
    """Wait until this notebook's trials have ended that end with their stream: how they ended is in its report."""
    until_s = time.monotonic() + ENDS_S
    for trial in [trials[name] for name in names if name in trials]:
        trial.life.ended.wait(max(0.0, until_s - time.monotonic()))


def report(
    name: str | None,
    target: Mapping[str, float] | None = None,
    vcpu_price: float | None = None,
    kwh_price: float | None = None,
) -> Report:
    """Return a stream's report, for the cell to show. `name` may be a recording's path; the rest as `tsnb.report`.

    Raises:
        Exception: As `tsnb.report` raises.
    """
    from tsnb.reports import report as report_of

    return report_of(name, target=target, vcpu_price=vcpu_price, kwh_price=kwh_price)


def report_here(panel: Panel) -> Callable[..., None]:
    """Return what a panel's report button does: leave a report under the cell that shows the panel.

    Called while that cell runs; the function that it returns is called on a thread of the panel's own, with the
    stream's name where the panel shows several.
    """
    outlet = outlet_here(panel.stream or "panel")

    def leave(stream: str = "") -> None:
        mark, data = (
            f"tsnb-report-{uuid.uuid4().hex[:12]}",
            report(stream or panel.stream or None)._repr_mimebundle_(),
        )
        from tsnb.reports.svg import marked  # numpy comes with it

        data["image/svg+xml"] = marked(data["image/svg+xml"], mark)
        outlet.publish("display_data", {"data": data, "metadata": {}, "transient": {}})
        panel.leave_output(mark, data)  # a page that was loaded again has dropped what was published

    return leave


def record(given: Namespace) -> str:
    """Begin or end a stream's recording. Returns the message to print.

    Raises:
        UsageError: No file was named, or nothing of that name is being recorded.
        Exception: As `tsnb.streams.record` raises.
    """
    running = recorders.get(given.name)
    if given.stop:
        if running is None:
            there = ", ".join(recorders) or "nothing"
            raise UsageError(
                f"%tensorsocket record: {given.name!r} is not recorded here. Recorded here: {there}."
            )
        del recorders[given.name]
        running.stop()
        return (
            f"the recording of {given.name!r} has ended. To look at it: tsnb.streams.replay(FILE) or "
            "tsnb.report(FILE)"
        )
    if given.file is None:
        raise UsageError("%tensorsocket record needs a file: %tensorsocket record NAME FILE.jsonl")
    from tsnb.telemetry.recording import record as begin_recording

    recorders[given.name] = begin_recording(given.name, Path(given.file))
    if running is not None:
        running.stop()
    return (
        f"recording {given.name!r} to {given.file} until the stream ends, or %tensorsocket record "
        f"{given.name} --stop\nlook at it with tsnb.streams.replay({given.file!r}), "
        f"tsnb.report({given.file!r}), tsnb.plot('lag', recording=...)"
    )
