"""One screen of a stream: header, sentence, a row a trial, what changed lately, the machine."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tsnb.show import words
from tsnb.telemetry.readings import STANDING, HostReading, ProcessReading, StreamReading
from tsnb.telemetry.shown.marks import pacing_text
from tsnb.telemetry.shown.rates import UNKNOWN, Pace
from tsnb.telemetry.shown.rows import Row
from tsnb.telemetry.shown.view import StreamView
from tsnb.text import numbers
from tsnb.text.names import shortened

__all__ = ["ALL", "screen"]

_TONES = {"ok": "green", "warn": "yellow", "bad": "red", "soft": "bright_black"}
_SOFT = "bright_black"
_PARTS = (
    (words.PART_NAMES["computing"], "█", ""),
    (words.PART_NAMES["waiting"], "▓", "yellow"),
    (words.PART_NAMES["held"], "░", _SOFT),
    (words.PART_NAMES["joining"], "·", "magenta"),
    ("paused or timed out", "-", _SOFT),
)
"""Where time goes, and the characters and colours it is drawn with: the characters differ without colours too."""

_MIB = 1024 * 1024
_MARKS, _RECENT_S = 3, 600.0
"""What changed lately: so many marks, none older than ten minutes."""

_WIDEST_NAME, _SPARE = 24, 4
"""Letters of a name, and as many more where names do not stay apart otherwise."""

_NARROWEST_NAME = 10
_SQUARES = 16
"""Larger windows are written as numbers."""

_BAR = (10, 24)
"""Least and most columns of the bar that shows where time goes."""

_WHERE = "where its time goes"

_ROWS = 12
"""Trials that are here, and the latest of those that left, on a screen that is drawn again and again."""

ALL = sys.maxsize
"""As many rows as there are trials."""

_KEPT = "\ue000"
"""Stands for a space that no line may end at; rich knows none."""


class _Column:
    """A column of the table, which gives way where the terminal is narrow."""

    def __init__(self, title: str, width: int, cell: Callable[[Row], Text], right: bool = False) -> None:
        self.title, self.width, self.cell, self.right = title, width, cell, right


def screen(view: StreamView, width: int, hint: str = "", most: int = _ROWS) -> RenderableType:
    """Return the screen as rich draws it.

    Args:
        view: The stream's state.
        width: Columns of the terminal.
        hint: A line about the keys.
        most: Rows of the table, unless more trials are here; the rest is counted.
    """
    parts: list[RenderableType] = [_packed(_header(view), width), Text(), _sentence(view, width), Text()]
    rows = view.shown(most)
    if rows:
        more = len(view.shown(ALL)) - len(rows)
        rest = f"and {more} more that left before; tsnb top --once lists all" if more else ""
        parts += [_table(view, rows, width), Text(rest, _SOFT), _key(width)]
        if view.state in words.LIVE:
            parts.append(
                _packed([_pair(title.lower(), said) for title, said in words.flow(view).items()], width)
            )
    else:
        parts.append(
            Text('No trial is attached. In a training script: for batch in tsnb.attach("NAME"): …', _SOFT)
        )
    lines = [Text(line, "yellow") for line in (words.incidents(view.latest) if view.latest else [])]
    lines += [
        Text(f"{row.name} {row.state}: {row.error}", "" if row.end in ("stopped", "pruned") else "red")
        for row in rows
        if row.error
    ]
    lines += [Text(f"{row.name} {row.waits}", "yellow") for row in rows if row.here and row.waits]
    far = words.far_behind(rows, view.latest.window) if view.latest and view.state in words.LIVE else ""
    lines += [Text(far, _SOFT)] if far else []
    pending = {row.name: row.pending for row in view.rows.values() if row.pending}
    lines += [Text(line, "yellow") for line in words.waiting(pending)]
    lines += [_packed(recent, width)] if (recent := _recent(view)) else []
    if lines:
        parts += [Text(), *lines]
    footer = [*_footer(view), Text(hint, _SOFT)] if hint else _footer(view)
    return Group(*parts, Text(), _packed(footer, width))


def _header(view: StreamView) -> list[Text]:
    reading, live = view.latest, view.state in words.LIVE
    title = Text.assemble(("● ", _TONES[words.tone(view.state)]), (reading.name if reading else "", "bold"))
    word = words.stream_word(view.state)
    if word:
        title.append(f"  {word}", _TONES[words.tone(view.state)])
    if reading is None:
        return [title]
    rate = numbers.pace(view.told_per_s)
    return [
        title,
        _epoch(view, reading, live),
        _pair("loader", f"{rate} batches/s, {words.workers(reading)}" if live else numbers.DASH),
        _pair("window", f"{reading.window_fill} of {reading.window}" if live else numbers.DASH),
        *([_pair("pacing", pacing_text(reading))] if live and reading.pacing != "together" else []),
        *([Text(all_left)] if live and (all_left := words.all_left(view.eta, reading.time_s)) else []),
    ]


def _epoch(view: StreamView, reading: StreamReading, live: bool) -> Text:
    text = _pair("pass", str(reading.epoch + 1) if reading.epoch >= 0 else numbers.DASH)
    if not reading.epoch_batches:
        return text.append(f"  {numbers.count(reading.published)} batches")
    share = min(1.0, reading.published / reading.epoch_batches)
    done = round(share * 16)
    text.append("  ").append("━" * done, "bold").append("─" * (16 - done), _SOFT)
    left_s = view.rates.left_s() if live else math.nan
    return text.append(f" {numbers.percent(share)}{words.epoch_left(left_s, share)}")


def _sentence(view: StreamView, width: int) -> Text:
    say = view.say
    pace = next((row.number for row in view.shown(ALL) if row.name == say.pace), None)
    kinds = {"failed": "red", "loader-bound": "yellow"}
    edge = _colour(pace) if pace is not None else kinds.get(say.kind, _SOFT)
    lead, rest = view.outcome
    said = (
        " ".join(filter(None, (lead, rest, view.limited))) if lead else say.text or "The stream is starting."
    )
    text = Text(said.replace(" %", f"{_KEPT}%"))
    text.stylize("bold", 0, len(lead or say.lead))
    lines = text.wrap(Console(width=width), max(20, width - 2))
    for line in lines:
        line.plain = line.plain.replace(_KEPT, " ").rstrip()
    return Text("\n").join(Text.assemble(("▌ ", edge), line) for line in lines)


def _table(view: StreamView, rows: Sequence[Row], width: int) -> Table:
    names = shortened([row.name for row in rows], _WIDEST_NAME - 2)
    name = min(_WIDEST_NAME + _SPARE, max(_NARROWEST_NAME, *map(len, names.values())) + 2)
    columns = _fitting(view, rows, width - name)
    table = Table(box=None, pad_edge=False, header_style=_SOFT, show_edge=False)
    table.add_column("trial", width=name, no_wrap=True, overflow="ellipsis")
    for column in columns:
        side = "right" if column.right else "left"
        table.add_column(column.title, width=column.width, no_wrap=True, overflow="ellipsis", justify=side)  # type: ignore[arg-type]
    for row in rows:
        first = Text.assemble(("■ ", _colour(row.number)), names[row.name])
        cells = [first, *(column.cell(row) for column in columns)]
        table.add_row(*cells, style=None if row.here and view.state in words.LIVE else "dim")
    return table


def _fitting(view: StreamView, rows: Sequence[Row], room: int) -> list[_Column]:
    """Return the columns that there is room for; the least telling ones give way first.

    Those are what a trial takes of the machine, the buffer (which the lag says, too), all logged numbers but the first,
    the part of the samples, the epoch, the lag and what is left. No cell is cut.
    """
    window = view.latest.window if view.latest else 0
    live = view.state in words.LIVE
    state = _Column("state", 14, lambda row: _state(view, row))
    squares = 0 < window <= _SQUARES
    most = numbers.buffered(window, window)
    buffer = _Column(
        "buffer",
        max(6, window if squares else len(most)),
        lambda row: _buffer(row, window, live),
    )
    lags = [numbers.count(row.reading.lag) for row in rows]
    lag = _number(view, "lag", max(4, *map(len, lags)), lambda row: numbers.count(row.reading.lag))
    rate = _Column(
        "samples/s", 9, lambda row: Text(numbers.count(_pace(row, live).samples_per_s)), right=True
    )
    batches = view.latest.epoch_batches if view.latest else None
    epochs = [words.progress(row.epochs, batches) for row in rows]
    epoch = _Column(
        "epoch", max(6, *map(len, epochs)), lambda row: Text(words.progress(row.epochs, batches)), right=True
    )
    lefts = [words.remaining(row.eta) for row in rows]
    left_column = _number(view, "left", max(4, *map(len, lefts)), lambda row: words.remaining(row.eta))
    logs = [_logged(name, rows, view.best) for name in _metrics(rows)]
    uses = [
        *_uses(view),
        _number(view, "per batch", 9, lambda row: numbers.milliseconds(row.pace.step_s)),
        _number(view, "alone", 7, lambda row: numbers.count(row.pace.alone_per_s)),
    ]
    parts = [_takes(rows)] if any(row.reading.part for row in rows) else []
    shown = [state, *parts, buffer, lag, rate, epoch, left_column, *logs, *uses]

    def left() -> int:
        return room - sum(column.width + 2 for column in shown) - 2

    while uses and left() < len(_WHERE):
        shown.remove(uses.pop())
    gives_way = [buffer, *reversed(logs[1:]), *parts, epoch, lag, left_column, *logs[:1]]
    while gives_way and left() < _BAR[0]:
        shown.remove(gives_way.pop(0))
    width = min(left(), _BAR[1])
    if width >= _BAR[0]:
        title = _WHERE if width >= len(_WHERE) else "its time"
        shown.insert(shown.index(rate) + 1, _Column(title, width, lambda row: _spent(row, width, live)))
    return shown


def _takes(rows: Sequence[Row]) -> _Column:
    """Return which samples each takes: there where one of them does not take all."""
    width = max(len("all"), *(len(row.reading.part) for row in rows))
    return _Column(
        "samples", width, lambda row: Text(row.reading.part or "all", "" if row.reading.part else _SOFT)
    )


def _state(view: StreamView, row: Row) -> Text:
    for_s = view.latest.time_s - row.since_s if view.latest else 0.0
    label, tone = words.consumer_state(row.state, for_s, view.state in words.LIVE)
    return Text(label, _TONES[tone] if tone != "soft" else "")


def _number(view: StreamView, title: str, width: int, show: Callable[[Row], str]) -> _Column:
    """Return a column of numbers that only current trials have."""

    def cell(row: Row) -> Text:
        known = view.state in words.LIVE and row.here and row.state not in STANDING
        return Text(show(row) if known else numbers.DASH)

    return _Column(title, width, cell, right=True)


def _metrics(rows: Sequence[Row]) -> list[str]:
    """Return the two logged numbers to show: a loss, then an accuracy, then others, before a second one of a kind."""
    kinds: tuple[list[str], ...] = ([], [], [])
    for name in dict.fromkeys(name for row in rows for name in row.metrics):
        low = name.lower()
        kinds[0 if "loss" in low else 1 if "acc" in low else 2].append(name)
    return [name for same in zip_longest(*kinds) for name in same if name is not None][:2]


def _logged(name: str, rows: Sequence[Row], best: Mapping[str, str]) -> _Column:
    """Return the column of a logged number; the best one has a star."""

    def cell(row: Row) -> Text:
        said, is_best = numbers.metric(name, row.metrics.get(name)), best.get(name) == row.name
        return Text(f"★ {said}" if is_best else said, "bold" if is_best else "")

    return _Column(name, max(8, min(12, len(name)), *(len(cell(row)) for row in rows)), cell, right=True)


def _uses(view: StreamView) -> list[_Column]:
    """Return columns for what each trial takes of the machine."""
    if not view.host or view.state not in words.LIVE:
        return []
    processes = view.host.consumers

    def used(row: Row, show: Callable[[ProcessReading], str]) -> str:
        return show(processes[row.name]) if row.name in processes else numbers.DASH

    columns = [
        _number(view, "CPU", 4, lambda row: used(row, lambda process: f"{process.cpu:.2f}")),
        _number(view, "memory", 8, lambda row: used(row, lambda p: numbers.mebibytes(p.memory_bytes / _MIB))),
    ]
    if any(process.gpu_bytes for process in processes.values()):
        of_gpu = _number(
            view, "GPU", 8, lambda row: used(row, lambda p: numbers.mebibytes(p.gpu_bytes / _MIB))
        )
        columns.append(of_gpu)
    return columns


def _buffer(row: Row, window: int, live: bool) -> Text:
    fill = row.reading.fill if live and row.here else 0
    if not 0 < window <= _SQUARES:
        return Text(numbers.buffered(fill, window))
    full = min(fill, window)
    return Text.assemble(("■" * full, _colour(row.number)), ("·" * (window - full), _SOFT))


def _pace(row: Row, live: bool) -> Pace:
    """Return how fast a trial is; of one that has left, and of all once the stream has ended, how fast it was."""
    if live and (row.here or row.pending):
        return UNKNOWN if row.state in STANDING else row.pace
    return row.whole.pace


def _spent(row: Row, width: int, live: bool) -> Text:
    """Draw where a trial's time went; the rest of the full width was spent between epochs.

    The shares are of the time without pauses and time-outs, and these are drawn too.
    """
    pace = row.told if live and row.here else _pace(row, live)
    if math.isnan(pace.computing):
        return Text(numbers.DASH, _SOFT)
    stood = pace.paused + pace.timed_out
    active = [share * (1 - stood) for share in (pace.computing, pace.waiting, pace.held, pace.joining)]
    shares = (*active, stood)
    ends = [round(sum(shares[: k + 1]) * width) for k in range(len(shares))]
    text = Text()
    for (_, sign, style), start, end in zip(_PARTS, (0, *ends), ends, strict=False):
        text.append(sign * (end - start), style or _colour(row.number))
    return text


def _key(width: int) -> Text:
    return _packed([Text.assemble((sign, style), f" {word}") for word, sign, style in _PARTS], width, _SOFT)


def _recent(view: StreamView) -> list[Text]:
    now_s = view.latest.time_s if view.latest else 0.0
    marks = [mark for mark in reversed(view.marks) if now_s - mark.time_s < _RECENT_S][:_MARKS]
    return [Text.assemble((f"{numbers.clock(now_s - mark.time_s)} ago ", _SOFT), mark.text) for mark in marks]


def _footer(view: StreamView) -> list[Text]:
    reading, found = view.latest, []
    if view.host and view.state in words.LIVE and reading:
        found += _machine(view.host, reading)
    if reading:
        used = numbers.count(reading.slots_used)  # of how many says nothing: the rest is only addresses
        arena = f"{numbers.mebibytes(reading.touched_bytes / _MIB)}, {used} buffers"
        found.append(_pair("shared memory", arena if view.state in words.LIVE else numbers.DASH))
        if reading.found is not None and view.state in words.LIVE:
            found.append(_pair("data", words.growth_text(reading)))
        if reading.cache is not None and view.state in words.LIVE:
            found.append(_pair("cache", words.cache_text(reading)))
    if view.host and view.state in words.LIVE:
        found += _gpus(view.host)
    could = view.rates.loader_alone_per_s() if reading and view.state in words.LIVE else math.nan
    if not math.isnan(could):
        found.append(_pair("loader alone", f"{numbers.pace(could)} batches/s at most"))
        found += [_pair("energy", view.energy)] if view.energy else []
    return found


def _machine(host: HostReading, reading: StreamReading) -> list[Text]:
    # consumers of one process share its numbers, and a producer that trains too does not belong to a trial
    pids = {c.pid: host.consumers[c.name] for c in reading.consumers if c.name in host.consumers}
    pids.pop(reading.pid, None)
    who = [f"loader {host.producer.cpu:.2f}"] if host.producer else []
    who += [f"trials {sum(process.cpu for process in pids.values()):.2f}"] if pids else []
    cpu = _pair("CPU", f"{host.cpu:.2f} of {host.cores} cores")
    if who:
        cpu.append(f" ({', '.join(who)})")
    used, total = host.memory_used_bytes / _MIB, host.memory_total_bytes / _MIB
    return [cpu, _pair("memory", numbers.used_of(used, total))]


def _gpus(host: HostReading) -> list[Text]:
    if not host.gpus:
        return [_pair("GPU", "none")]
    found = []
    for gpu in host.gpus:
        busy = f"{numbers.percent(gpu.busy)}, " if gpu.busy is not None else ""
        used, total = gpu.used_bytes / _MIB, gpu.total_bytes / _MIB
        found.append(_pair(f"GPU {gpu.index}", f"{busy}{numbers.used_of(used, total)}"))
    return found


def _pair(label: str, value: str) -> Text:
    return Text.assemble((f"{label} ", _SOFT), (value, "bold"))


def _packed(pieces: Sequence[Text], width: int, style: str = "") -> Text:
    """Lay pieces side by side, and the next one on a new line where it does not fit."""
    lines: list[Text] = []
    for piece in pieces:
        if lines and lines[-1].cell_len + 3 + piece.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], "   ", piece)
        else:
            lines.append(piece.copy())
    text = Text("\n").join(lines)
    text.style = style
    return text


def _colour(number: int) -> str:
    return words.COLOURS[number % len(words.COLOURS)]
