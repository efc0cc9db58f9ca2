"""A report in plain text: for terminals, screen readers and pages that show no pictures. Pure.

Its names, times and titles are those of the other reports too; numbers are written as the panel writes them
(`text.numbers`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from textwrap import wrap

from tsnb.machine.energy import NOT_MEASURABLE
from tsnb.reports.learned.beside import beside_lines
from tsnb.reports.learned.duelled import duel_lines
from tsnb.reports.story import Story
from tsnb.show.words import consumer_state, remaining, waiting
from tsnb.telemetry.lives.cpu_time import cpu_text
from tsnb.telemetry.lives.runs import next_step, trial_of
from tsnb.telemetry.lives.spent import Spent, parts_of
from tsnb.telemetry.shown.outcome import outcome
from tsnb.text.names import shortened
from tsnb.text.numbers import DASH, clock, count, metric, milliseconds, percent

__all__ = ["attached", "epochs", "plain", "subtitle", "ticks_s", "when"]

_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)


STATE = 11
"""Letters of a state's column at least."""

NAME = 20
"""Letters of a name's column, unless names stay apart by a few more only."""

WIDEST = 160
"""Letters of a line that says how to go on."""


def when(story: Story) -> str:
    """Return when it was: 2026-11-21, 15:03:12 to 15:07:24 (local time).

    A page may keep a report for good. So of a stream that was there at its last reading it says "as of 15:07:24".
    """
    begin, end = time.localtime(story.begin_s), time.localtime(story.end_s)
    same_day = begin[:3] == end[:3]
    until = time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d, %H:%M:%S", end)
    since = time.strftime("%Y-%m-%d, %H:%M:%S", begin)
    return f"{since} to {until}" if story.state == "gone" else f"from {since}, as of {until}"


def subtitle(story: Story) -> str:
    """Return what stands behind the stream's name: how many trials, how long, what was shared."""
    number, runs = len({trial_of(trial.name) for trial in story.trials}), len(story.trials)
    trials = f"{number} trial{'' if number == 1 else 's'}{f' in {runs} runs' if runs > number else ''}"
    parts = [trials, f"trained for {clock(story.trained_s)}"]
    if story.epochs >= 0.05:
        parts.append("1 pass" if story.epochs == 1 else f"{count(story.epochs)} passes")
    prepared = f"{count(story.batches)} batches prepared once"
    if story.delivered:
        prepared += f", taken {count(story.delivered)} times"
    divided = "" if story.pacing == "together" else f"; pacing {story.pacing}"
    return ", ".join(parts) + "; " + prepared + divided


def ticks_s(seconds: float, most: int) -> Iterator[int]:
    """Give round seconds from 0 to `seconds` for an axis, so many at most."""
    step = next(
        (tick for tick in _TICKS_S if seconds / tick <= most), 86400 * math.ceil(seconds / 86400 / most)
    )
    yield from range(0, math.floor(seconds) + 1, step)


_APART = {"joining": "joining", "between": "between", "paused": "paused", "parked": "timed out"}
"""Columns of time that is told in seconds: heading by part."""


def attached(trial: Spent, part: str = "") -> str:
    """Return for how long a trial was attached, or what of it went to a part; a dash where it never was."""
    if trial.total_s <= 0:
        return DASH
    return clock(trial.seconds(part) if part else trial.total_s)


def epochs(trial: Spent) -> str:
    """Return the epochs that a trial took; a dash where it was never attached."""
    return f"{trial.epochs:.2f}" if trial.total_s > 0 or trial.epochs else DASH


def _columns(parts: Sequence[str], wide: int, state: int) -> str:
    apart = " ".join(f"{heading:>9}" for part, heading in _APART.items() if part in parts)
    return (
        f"{'trial':<{wide}} {'state':<{state}} {'attached':>8} {'computing':>10} {'waiting':>8} {'held back':>10} "
        f"{apart} {'samples/s':>10} {'per batch':>9} {'alone':>8} {'CPU s':>7} {'epochs':>7}  last logged"
    )


def plain(story: Story) -> str:
    """Return a report as lines of text: the sentence, a row a trial, what changed."""
    ended = ", ended" if story.state == "gone" else f", {story.state}"
    lines = [
        f"stream {story.name}{ended}: {subtitle(story)}",
        when(story),
        "",
        f"{story.lead} {story.rest}".strip(),
    ]
    if story.trials:
        names = shortened([trial.name for trial in story.trials], NAME)
        parts = parts_of(story.trials)
        wide = max(NAME, *map(len, names.values()))
        states = {trial.name: consumer_state(trial.state, 0.0, live=True)[0] for trial in story.trials}
        state = max(STATE, *map(len, states.values()))
        heads = {name: f"{names[name]:<{wide}} {said:<{state}}" for name, said in states.items()}
        rows = (_row(trial, heads[trial.name], parts, " " * wide) for trial in story.trials)
        lines += ["", _columns(parts, wide, state), *rows]
        lines += [
            "attached: time on the stream. Shares and samples/s are of this time, without pauses and time-outs."
        ]
        if "joining" in parts:
            lines += ["joining: the trial waited for a pass that it could join."]
        lines += ['"per batch" is its computing time per batch.']
        lines += ["alone: samples/s with a batch always ready and no other trial to wait for."]
        lines += _without_cpu(story.trials)
    lefts = [f"{name} {remaining(eta)}" for name, eta in story.etas.items() if eta.known]
    if lefts:
        lines += [f"Left: {', '.join(lefts)}{story.left and f'; {story.left}'}."]
    lines += [f"{line}." for line in waiting(story.pending)]
    said = (
        (*outcome(story.latest, story.compared), next_step(story.latest, story.compared))
        if story.over
        else ()
    )
    lines += [line for line in (" ".join(filter(None, said[:2])), *wrap("".join(said[2:]), WIDEST)) if line]
    lines += beside_lines(story.beside)
    if story.duels:
        lines += [*duel_lines(story.duels), ""]
    lines += [f"Energy: {story.energy}."]
    lines += [f"{cost.text}." for cost in story.costs]
    if story.watched_late:
        lines += ["The stream was not observed from its start, so earlier time between epochs is unknown."]
    if story.plan is not None:
        lines += ["", f"{story.plan.title}: planned █, actual ▒, predicted ░", story.plan.bars()]
    if story.marks:
        lines += ["", *(f"{clock(mark.time_s - story.begin_s):>8}  {mark.text}" for mark in story.marks)]
    return "\n".join(lines)


def _without_cpu(trials: Sequence[Spent]) -> list[str]:
    """Say why CPU seconds are not known of trials that were attached."""
    there = [trial for trial in trials if trial.total_s > 0]
    lost = [trial for trial in there if math.isnan(trial.cpu_s)]
    if not lost:
        return []
    return [f"CPU s {DASH}: {NOT_MEASURABLE if len(lost) == len(there) else 'not measured for this trial'}."]


def _row(trial: Spent, head: str, parts: Sequence[str], room: str) -> str:
    shares = " ".join(
        f"{percent(trial.share(part)):>{width}}"
        for part, width in (("computing", 10), ("waiting", 8), ("held", 10))
    )
    logged = "  ".join(f"{name} {metric(name, value)}" for name, value in trial.metrics.items())
    apart = " ".join(f"{attached(trial, part):>9}" for part in _APART if part in parts)
    row = (
        f"{head} {attached(trial):>8} {shares} {apart} "
        f"{count(trial.samples_per_s):>10} {milliseconds(trial.step_s):>9} {count(trial.alone_per_s):>8} "
        f"{cpu_text(trial.cpu_s):>7} {epochs(trial):>7}  {logged}"
    )
    return row.rstrip() + (f"\n{room} {trial.state}: {trial.error}" if trial.error else "")
