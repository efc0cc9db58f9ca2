"""A report in plain text: for terminals, screen readers and pages that show no pictures."""

from __future__ import annotations

from tsnb.reports.spent import Spent
from tsnb.reports.story import Story
from tsnb.reports.wording import short_names, subtitle, when
from tsnb.telemetry.words import clock, consumer_state, count, metric, milliseconds, percent

__all__ = ["plain"]

_COLUMNS = (
    f"{'trial':<20} {'state':<11} {'time':>8} {'computing':>10} {'waiting':>8} {'held back':>10} {'between':>8} "
    f"{'samples/s':>10} {'a batch':>9} {'alone':>8} {'CPU s':>7} {'epochs':>7}  last logged"
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
        names = short_names([trial.name for trial in story.trials], 20)
        lines += ["", _COLUMNS, *(_row(trial, names[trial.name]) for trial in story.trials)]
        lines += ["Shares are of the time inside epochs. a batch: what it computed on one."]
        lines += ["alone: samples/s with a batch always ready and nobody to wait for."]
    lines += [f"Energy: {story.energy}."]
    if story.watched_late:
        lines += ["It was not watched from its start: time between epochs before that is not known."]
    if story.marks:
        lines += ["", *(f"{clock(mark.time_s - story.begin_s):>8}  {mark.text}" for mark in story.marks)]
    return "\n".join(lines)


def _row(trial: Spent, name: str) -> str:
    shares = " ".join(
        f"{percent(trial.share(part)):>{width}}"
        for part, width in (("computing", 10), ("waiting", 8), ("held", 10))
    )
    logged = "  ".join(f"{name} {metric(name, value)}" for name, value in trial.metrics.items())
    if trial.parked_s:
        logged = f"parked {clock(trial.parked_s)}  {logged}"
    state, _ = consumer_state(trial.state, 0.0, live=True)
    row = (
        f"{name:<20} {state:<11} {clock(trial.total_s):>8} {shares} {clock(trial.between_s):>8} "
        f"{count(trial.samples_per_s):>10} {milliseconds(trial.step_s):>9} {count(trial.alone_per_s):>8} "
        f"{count(trial.cpu_s):>7} {trial.epochs:>7.2f}  {logged}"
    )
    return row.rstrip() + (f"\n{'':<20} {trial.error}" if trial.error else "")
