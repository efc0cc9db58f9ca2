"""A stream's view as lines of plain text: `tsnb status`, `%tensorsocket status`, and what stands for the panel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tsnb.show import words
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.marks import pacing_text
from tsnb.telemetry.shown.rates import Pace
from tsnb.telemetry.shown.rows import Row
from tsnb.telemetry.shown.view import StreamView
from tsnb.text import numbers

__all__ = ["as_text"]

_NAME = 20
"""Letters of a trial's name at least: the column is as wide as the longest, so that numbers stand below their heads."""

_STATE = 14
"""Letters of a state at least: the column is as wide as the longest, and what a trial waits for may be long."""

_SELDOM = {"joining": "joining", "paused": "paused", "timed out": "timed_out", "between": "between"}
"""Columns of shares that are shown where a trial has any: of `Pace`, by heading."""


def as_text(view: StreamView, title: str, *, recorded: bool = False) -> str:
    """Return the stream as a few lines of text.

    Args:
        view: What is shown.
        title: What they begin with.
        recorded: Whether it happened at another time.
    """
    with view.lock:
        return _as_text(view, title, recorded)


def _as_text(view: StreamView, title: str, recorded: bool) -> str:
    lines = [f"{title}: {'a recording' if recorded else view.state}"]
    if view.latest:
        lines[0] += _text_head(
            view.latest, view.rates.left_s(), "" if recorded else words.all_left(view.eta, view.latest.time_s)
        )
    lines += filter(None, [" ".join(filter(None, (*view.outcome, view.limited))) or view.say.text])
    known = view.rows.values()
    rows = [row for row in known if row.here]
    wide = max([_NAME, *(len(row.name) for row in known)])
    ended = [row for row in known if row.end and not row.here]
    if rows or ended:
        paces = [row.told for row in rows] + [row.whole.pace for row in ended]
        seldom = [head for head, part in _SELDOM.items() if any(_share(p, part) >= 0.005 for p in paces)]
        said = {row.name: row.waits or row.state for row in rows} | {row.name: row.end for row in ended}
        states = max(_STATE, *map(len, said.values()))
        lines += ["", f"{'trial':<{wide}} {'state':<{states}} {_text_columns(seldom)}"]
        begin = {name: f"{name:<{wide}} {state:<{states}}" for name, state in said.items()}
        lines += [f"{begin[row.name]} {_text_row(row, view.best, seldom)}" for row in rows]
        lines += [f"{begin[row.name]} {_text_end(row, view.best, seldom)}" for row in ended]
    if rows:
        lines += ["", "; ".join(f"{title.lower()} {said}" for title, said in words.flow(view).items())]
        lines += filter(None, [words.far_behind(rows, view.latest.window if view.latest else 0)])
    waiting = {f"{row.name:<{wide}}": row.pending for row in known if row.pending}
    if rest := words.waiting(waiting, alone=8):
        lines += ["", *rest]
    could = view.rates.loader_alone_per_s() if rows else math.nan
    if not math.isnan(could):
        lines.append(f"The loader alone: {numbers.pace(could)} batches/s at most.")
    return "\n".join(lines)


def _text_columns(seldom: Sequence[str]) -> str:
    """Return the headings.

    `between`: in its own code between epochs, so that a row sums up. `per batch`: what it computes on one. `alone`:
    samples/s with a batch always ready and nobody to wait for. `left`: until its last epoch is over; "epoch": to the
    end of this one, as the number of its epochs is not known.
    """
    shares = "".join(f"  {heading:>7}" for heading in seldom)
    return (
        f"{'lag':>5}  {'samples/s':>9}  {'computing':>9}  {'waiting':>7}  {'held':>5}{shares}  "
        f"{'per batch':>9}  {'alone':>7}  {'left':>9}"
    )


def _share(pace: Pace, part: str) -> float:
    """Return a share of a pace; that between epochs is the rest, and a pace that is not known has none."""
    if part != "between":
        return float(getattr(pace, part))
    if pace.paused + pace.timed_out >= 1:
        return 0.0
    rest = 1.0 - pace.computing - pace.waiting - pace.held - pace.joining
    return 0.0 if rest < 0 else rest


def _text_head(reading: StreamReading, left_s: float, all_left: str) -> str:
    whole = reading.epoch_batches
    done = f"batch {numbers.count(reading.published)}"
    if whole:
        done += f" of {numbers.count(whole)} ({numbers.percent(reading.published / whole)})"
    left = words.epoch_left(left_s, reading.published / whole) if whole else ""
    window = f"window {reading.window_fill} of {reading.window}, pacing {pacing_text(reading)}"
    after = f", {all_left}" if all_left else ""
    return f", pass {reading.epoch + 1}, {done}{left}, {window}{after}"


def _text_end(row: Row, best: Mapping[str, str], seldom: Sequence[str]) -> str:
    """Return how a trial ended, how fast it was and where its time went, with the last that it logged."""
    metrics = "  ".join(_numbers(row, best))
    error = f"  {row.error}" if row.error else ""
    said = _speed(row.whole.pace, row.whole.pace, seldom)
    return f"{'':>5}  {said}  {'':>9}  {'':>7}  {'':>9}  {metrics}{error}".rstrip()


def _numbers(row: Row, best: Mapping[str, str]) -> list[str]:
    """Return the last numbers of a trial in words, with a star where it is the best."""
    stars = {name: "★ " if best.get(name) == row.name else "" for name in row.metrics}
    return [f"{stars[name]}{name} {value:.4g}" for name, value in row.metrics.items()]


def _speed(pace: Pace, told: Pace, seldom: Sequence[str]) -> str:
    """Return samples a second of a pace, and the shares of time of one."""
    speed = numbers.count(pace.samples_per_s)
    shares = (numbers.percent(share) for share in (told.computing, told.waiting, told.held))
    apart = "".join(
        f"  {numbers.percent(_share(told, _SELDOM[heading])):>{max(7, len(heading))}}" for heading in seldom
    )
    return "{:>9}  {:>9}  {:>7}  {:>5}".format(speed, *shares) + apart


def _text_row(row: Row, best: Mapping[str, str], seldom: Sequence[str]) -> str:
    pace, told, reading = row.pace, row.told, row.reading
    batch, alone = numbers.milliseconds(pace.step_s), numbers.count(pace.alone_per_s)
    shares = f"{_speed(pace, told, seldom)}  {batch:>9}  {alone:>7}  {words.remaining(row.eta):>9}"
    logged = _numbers(row, best)
    metrics = "  ".join([f"({reading.part})", *logged] if reading.part else logged)
    return f"{numbers.count(reading.lag):>5}  {shares}  {metrics}".rstrip()
