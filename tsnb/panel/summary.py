"""The panel in plain text: what a terminal, a screen reader or a page without widgets shows in its place."""

from __future__ import annotations

import math

from tsnb.panel.frames import Lane
from tsnb.panel.tape import Tape
from tsnb.telemetry import words
from tsnb.telemetry.marks import mode_text
from tsnb.telemetry.rates import Pace
from tsnb.telemetry.readings import ConsumerReading, StreamReading
from tsnb.telemetry.words import clock, count, milliseconds, percent

__all__ = ["summary"]

_COLUMNS = (
    f"{'trial':<20} {'state':<14} {'lag':>4} {'samples/s':>10} {'computing':>10} {'waiting':>8} {'held':>6} "
    f"{'a batch':>9} {'alone':>8}"
)
"""`a batch`: what it computes on one. `alone`: samples/s with a batch always ready and nobody to wait for."""


def summary(tape: Tape) -> str:
    """Return the stream's last reading as a few lines of text."""
    what = f"the stream {tape.name}" if tape.name else "no stream yet"
    lines = [f"tsnb panel of {what}: {'a recording' if tape.recorded else tape.state}"]
    if tape.latest:
        lines[0] += _progress(tape.latest, tape.rates.left_s())
    if tape.sentence:
        lines.append(tape.sentence)
    rows = tape.paces()
    if rows:
        lines += ["", _COLUMNS, *(_row(consumer, pace) for consumer, pace in rows)]
    if ended := [_end(lane) for lane in tape.lanes if lane.end and not lane.here]:
        lines += ["", *ended]
    if rows:
        could = tape.rates.loader_alone_per_s()
        if not math.isnan(could):
            lines.append(f"The loader alone: {words.pace(could)} batches/s at most.")
    return "\n".join(lines)


def _progress(reading: StreamReading, left_s: float) -> str:
    whole = reading.epoch_batches
    share = f", {reading.published / whole:.0%}" if whole else ""
    left = "" if math.isnan(left_s) else f" ({clock(left_s)} left)"
    window = f"window {reading.window_fill} of {reading.window}, mode {mode_text(reading)}"
    return f", epoch {reading.epoch + 1}{share}{left}, {window}"


def _end(lane: Lane) -> str:
    """Return how a trial ended, with the last that it logged."""
    metrics = "  ".join(f"{name} {value:.4g}" for name, value in lane.last.items())
    error = f"  {lane.error}" if lane.error else ""
    return f"{lane.name:<20} {lane.end:<14} {metrics}{error}".rstrip()


def _row(consumer: ConsumerReading, pace: Pace) -> str:
    shares = f"{percent(pace.computing):>10} {percent(pace.waiting):>8} {percent(pace.held):>6}"
    shares += f" {milliseconds(pace.step_s):>9} {count(pace.alone_per_s):>8}"
    speed = "-" if math.isnan(pace.samples_per_s) else f"{pace.samples_per_s:.0f}"
    metrics = "  ".join(f"{name} {value:.4g}" for name, value in consumer.metrics.items())
    row = f"{consumer.name:<20} {consumer.state:<14} {consumer.lag:>4} {speed:>10} {shares}  {metrics}"
    return row.rstrip()
