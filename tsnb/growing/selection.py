"""Rounds of a data set that grows: when one begins (triggers), and which samples it has (selections).

A round is an epoch of selected samples, for all attached trials. The decisions are pure: counts, seconds and numbers
come in, a yes or a count goes out; samples that are likelier than others are drawn by `inclusion`.
`rounds` tells a running stream.
"""

from __future__ import annotations

import argparse
import functools
import json
import operator
import time
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import NamedTuple

import msgspec

from tsnb.config import is_name
from tsnb.records.scores import direction_of, known_direction
from tsnb.telemetry.metrics import LONGEST_NAME
from tsnb.telemetry.observer import Observer, status
from tsnb.telemetry.readings import StreamReading
from tsnb.text.foreign import Text, pack

__all__ = [
    "RoundsAsked",
    "Selection",
    "Standing",
    "Trigger",
    "add_rounds",
    "check_select",
    "every",
    "in_words",
    "interval",
    "read_select",
    "rounds",
    "rounds_as_typed",
    "worse",
]

ASKED_S = 20.0
"""How long a stream may take to say that its rounds are set."""
MOST = 16
"""Numbers that one trigger may look at."""
SECONDS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class RoundsAsked(msgspec.Struct, frozen=True):
    """An observer asks that the stream's epochs be rounds of selected samples from now on."""

    trigger: Text
    """When a round begins: a `Trigger` as JSON; one that never fires ends the rounds."""
    select: Text
    """Which samples it has, as `check_select`: "new" or "hard:0.3", say."""


class Trigger(NamedTuple):
    """When a round begins: as soon as one of these is so. Made by `every`, `after` and `worse`, joined by `|`."""

    every: int = 0
    """So many new samples have been found since the last round was chosen; 0: not by this."""
    after_s: float = 0.0
    """So many seconds have passed since; 0: not by this."""
    worse: tuple[tuple[str, str, float], ...] = ()
    """A logged number's name, "min" or "max", and by how much it is worse than its best since."""

    def __or__(self, other: Trigger) -> Trigger:
        """Either of the two."""
        if not isinstance(other, Trigger):
            return NotImplemented
        return Trigger(
            min(filter(None, (self.every, other.every)), default=0),
            min(filter(None, (self.after_s, other.after_s)), default=0.0),
            self.worse + other.worse,
        )

    @property
    def words(self) -> str:
        """What it is, as a table shows it."""
        parts = [f"every {self.every:,} new samples"] if self.every else []
        parts += [f"after {self.after_s:g} s"] if self.after_s else []
        parts += [f"{name} worse by {by:g}" for name, _, by in self.worse]
        return " or ".join(parts)

    def to_text(self) -> str:
        """Return it as JSON, for `from_text`."""
        return json.dumps(self)

    @classmethod
    def from_text(cls, text: str) -> Trigger:
        """Read what `to_text` wrote.

        Raises:
            ValueError: It is something else.
        """
        try:
            samples, after_s, numbers = json.loads(text)
            found = cls(
                int(samples),
                float(after_s),
                tuple((str(n)[:LONGEST_NAME], str(m), float(by)) for n, m, by in numbers),
            )
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise ValueError(f"not a trigger: {text!r:.80}") from error
        fits = 0 <= found.every < 1 << 53 and 0 <= found.after_s < 1e9 and len(found.worse) <= MOST
        if not fits or any(mode not in ("min", "max") or not 0 < by < 1e300 for _, mode, by in found.worse):
            raise ValueError(f"not a trigger: {text!r:.80}")
        return found

    def reason(self, since: Standing, now: Standing) -> str:
        """Return why a round should begin now, in words; empty: it should not.

        Args:
            since: When the last one was chosen; its metrics are the best since then.
            now: What is so now.
        """
        new = now.samples - since.samples
        if self.every and new >= self.every:
            return "1 new sample" if new == 1 else f"{new:,} new samples"
        if self.after_s and now.time_s - since.time_s >= self.after_s:
            return f"after {self.after_s:g} s"
        if self.worse and not since.samples:
            return "the first"  # nobody has been given anything, so nothing can have got worse
        found = (self._worsened(key, value, since) for key, value in now.metrics.items())
        return next(filter(None, found), "")

    def _worsened(self, key: tuple[str, str], value: float, since: Standing) -> str:
        trial, logged = key
        if (best := since.metrics.get(key)) is None:
            return ""
        for name, mode, by in self.worse:
            if name == logged and (more := value - best if mode == "min" else best - value) >= by:
                return f"{name} of {trial} worse by {more:.3g}"
        return ""


class Standing(NamedTuple):
    """What triggers look at."""

    samples: int
    """Found so far."""
    time_s: float
    """Any clock's seconds."""
    metrics: Mapping[tuple[str, str], float] = {}
    """The last numbers that trials logged, by trial and name; of the past: the best."""

    def better(self, trigger: Trigger, now: Standing) -> Standing:
        """Return it with the best numbers since, now's included."""
        best = dict(self.metrics)
        modes = {name: mode for name, mode, _ in trigger.worse}
        for key, value in now.metrics.items():
            if (mode := modes.get(key[1])) is not None:
                best[key] = (min if mode == "min" else max)(best.get(key, value), value)
        return self._replace(metrics=best)


def every(samples: int) -> Trigger:
    """Begin a round when so many new samples have been found.

    Example:
        >>> trigger = tsnb.data.every(2000)

    Args:
        samples: Number of samples since the last round was chosen, 1 or more.

    Raises:
        ValueError: If `samples` is not a whole number of 1 or more.
    """
    if isinstance(samples, bool) or not isinstance(samples, Integral) or samples < 1:
        raise ValueError(
            f"tsnb.data.every({samples!r}) is invalid. Pass a number of new samples, 1 or more, for "
            "example tsnb.data.every(2000)."
        )
    return Trigger(every=int(samples))


def interval(duration: float | str) -> Trigger:
    """Begin a round when so much time has passed since the last one.

    A round begins only if there are samples to choose.

    Example:
        >>> trigger = tsnb.data.interval("1h")

    Args:
        duration: Seconds, or a string such as "90s", "30min", "1h" or "2d".

    Raises:
        ValueError: If `duration` is not a time above 0.
    """
    unit = next(
        (
            u
            for u in sorted(SECONDS, key=len, reverse=True)
            if isinstance(duration, str) and duration.endswith(u)
        ),
        "",
    )
    try:
        seconds = float(str(duration).removesuffix(unit)) * SECONDS.get(unit, 1.0)
    except ValueError:
        seconds = 0.0
    if isinstance(duration, bool) or not 0 < seconds < 1e9:
        raise ValueError(
            f"tsnb.data.interval({duration!r}) is invalid. Pass a number of seconds, or a time such as "
            '"90s", "30min" or "1h".'
        )
    return Trigger(after_s=seconds)


def worse(metric: str, min_delta: float, mode: str | None = None) -> Trigger:
    """Begin a round when a logged number gets worse than its best.

    The best is counted since the last round was chosen, from the value at that time. The first round of a stream
    begins at once.

    Example:
        >>> trigger = tsnb.data.worse("val_loss", min_delta=0.02)

    Args:
        metric: Name of the number, as in `tsnb.log(val_loss=...)`.
        min_delta: Smallest difference that counts, above 0.
        mode: "min" or "max": which direction is good. Defaults to `tsnb.records.direction`, else the metric's name.

    Raises:
        ValueError: If `min_delta` is not above 0, or tsnb cannot tell which direction is good.
    """
    if (
        isinstance(min_delta, bool)
        or not isinstance(min_delta, (int, float))
        or not 0 < min_delta < float("inf")
    ):
        raise ValueError(
            f"tsnb.data.worse({metric!r}, min_delta={min_delta!r}) is invalid. Pass a difference above 0, for "
            "example tsnb.data.worse('val_loss', min_delta=0.02)."
        )
    return Trigger(worse=((metric, direction_of(metric, mode), float(min_delta)),))


class Selection(NamedTuple):
    """Which samples a round has, as it was written: "new", "recent:5000", "hard:0.3:cnn"."""

    word: str
    number: float = 0.0
    """Of "recent" and "balanced" the samples; of "hard" the share of all samples; 0 where none was given."""
    trial: str = ""
    """Of "hard": whose losses count; empty: the mean over all trials."""

    @property
    def weighs(self) -> bool:
        """Whether some samples are likelier than others."""
        return self.word in ("hard", "balanced")

    def size(self, samples: int, before: int, classes: Sequence[int] = ()) -> int:
        """Return how many samples a round has.

        Args:
            samples: How many there are.
            before: How many there were when the round before was chosen.
            classes: How many of them each class has, where classes are balanced.
        """
        if self.word == "hard":
            return min(samples, max(1, round(self.number * samples)))
        if self.word == "balanced":
            return min(samples, int(self.number)) if self.number else len(classes) * min(classes, default=0)
        return samples - self.first(samples, before)

    def first(self, samples: int, before: int) -> int:
        """Return the first sample of a round that has all from one on."""
        return {"new": before, "all": 0}.get(self.word, max(0, samples - int(self.number)))


def read_select(select: str) -> Selection:
    """Read a selection as it is written.

    Raises:
        ValueError: There is no such selection.
    """
    word, *rest = str(select).split(":")
    if word in ("new", "all", "balanced") and not rest:
        return Selection(word)
    if (
        word in ("recent", "balanced")
        and len(rest) == 1
        and rest[0].isdecimal()
        and 0 < int(rest[0]) < 1 << 53
    ):
        return Selection(word, int(rest[0]))
    if word == "hard" and len(rest) in (1, 2):
        share, trial = _share(rest[0]), "".join(rest[1:])
        if share and (len(rest) == 1 or is_name(trial)):
            return Selection(word, share, trial)
    raise ValueError(
        f'select={select!r:.80} is invalid. Pass "new" (samples found since the last round), '
        '"all", "recent:5000" (the last 5000), "hard:0.3" (a share of 0.3, preferring samples '
        'with a high loss), "hard:0.3:cnn" (by the losses of cnn), "balanced" (equally many of '
        'each class) or "balanced:5000" (5000 in total).'
    )


def _share(text: str) -> float:
    """Return a share above 0 and up to 1; 0 where it is something else."""
    try:
        share = float(text)
    except ValueError:
        return 0.0
    return share if 0 < share <= 1 else 0.0


def check_select(select: str) -> str:
    """Return a selection as it is written.

    Raises:
        ValueError: As `read_select`.
    """
    read_select(select)
    return select


def in_words(trigger: Trigger, select: str) -> str:
    """Return rounds as a table shows them; empty where there are none."""
    return f"{select}, {trigger.words}" if trigger != Trigger() else ""


def add_rounds(parser: argparse.ArgumentParser) -> None:
    """Have a parser take what `rounds_as_typed` reads."""
    parser.add_argument(
        "--every", metavar="N", help="start a round when this many new samples have been found"
    )
    parser.add_argument(
        "--interval", metavar="TIME", help="or when this much time has passed: 90s, 30min, 1h"
    )
    parser.add_argument(
        "--worse",
        action="append",
        default=[],
        metavar="METRIC=BY[:max]",
        help="or when a metric is this much worse than its best; add :min or :max if its name does not imply it",
    )
    parser.add_argument(
        "--select",
        default=None,
        metavar="new|all|recent:N|hard:SHARE|balanced",
        help="samples of a round (default: new)",
    )
    parser.add_argument(
        "--off", action="store_true", help="end the rounds: one epoch follows the other again"
    )


def rounds_as_typed(given: argparse.Namespace, name: str | None) -> StreamReading:
    """Set or end a stream's rounds as options say, if they say anything; return what it tells of itself then.

    Args:
        given: What a parser of `add_rounds` read.
        name: The stream's; may be None while one producer is running.

    Raises:
        ValueError: The options do not go together, or a value is invalid.
        TsnbError: As `rounds` raises.
    """
    triggers = []
    if given.every is not None:
        triggers.append(every(int(given.every) if given.every.isdecimal() else given.every))
    if given.interval is not None:
        triggers.append(interval(given.interval))
    for text in given.worse:
        metric, is_there, rest = text.rpartition("=")
        by, _, mode = rest.partition(":")
        try:
            number = float(by)
        except ValueError:
            is_there, number = "", 0.0
        if not is_there or not metric:
            raise ValueError(
                f"--worse {text} is invalid. Pass a logged name and a difference: --worse val_loss=0.02"
            )
        if not mode and known_direction(metric) is None:
            raise ValueError(
                f"tsnb cannot tell whether a high or a low {metric!r} is better. Pass --worse "
                f"{metric}={by}:max (or :min)"
            )
        triggers.append(worse(metric, number, mode or None))
    if given.off and (triggers or given.select is not None):
        raise ValueError(
            "--off ends the rounds and takes no other option. Leave out the others, or leave out --off"
        )
    if given.select is not None and not triggers:
        raise ValueError(
            "--select chooses the samples of a round and needs a trigger. Add --every 2000, --interval 1h "
            "or --worse val_loss=0.02"
        )
    if triggers or given.off:
        rounds(name, functools.reduce(operator.or_, triggers) if triggers else None, given.select or "new")
    return status(name)


def rounds(stream: str | None, trigger: Trigger | None, select: str = "new") -> None:
    """Serve a growing dataset in rounds, from the next epoch on.

    A round is one epoch of selected samples for all attached trials, which wait for it. It begins when its trigger
    fires and there are samples to select. The stream's log keeps the selection, so the round can be given again.

    Example:
        >>> with tsnb.serve(DataLoader(tsnb.data.grow("photos", parse), 2), name="photos"):
        ...     tsnb.data.rounds("photos", tsnb.data.every(2000) | tsnb.data.interval("1h"))

    Args:
        stream: Name of the stream, or None while only one is running.
        trigger: `tsnb.data.every(2000)`, `tsnb.data.interval("1h")`, `tsnb.data.worse("val_loss", min_delta=0.02)`, or
            several joined by `|`. None returns to epochs of all samples.
        select: "new", "all", "recent:5000", "hard:0.3", "hard:0.3:cnn", "balanced" or "balanced:5000"
            (docs/rounds.md). Defaults to "new", the samples since the last round.

    Raises:
        ProducerNotFound: If no stream has that name.
        ProducerGone: If the stream's process died before it answered.
        ValueError: If the selection is unknown, or `trigger` is not a trigger.
        TsnbError: If the stream's dataset does not grow, or the stream does not answer.
    """
    check_select(select)
    if trigger is not None and (not isinstance(trigger, Trigger) or trigger == Trigger()):
        raise ValueError(
            f"trigger={trigger!r:.60} is invalid. Pass tsnb.data.every(2000), tsnb.data.interval('1h') or "
            "tsnb.data.worse('val_loss', min_delta=0.02), or several joined by |. Pass None to end the rounds."
        )
    observer = Observer(stream)
    try:
        asked = trigger or Trigger()
        wanted = in_words(asked, select)
        observer.tell("rounds", pack(RoundsAsked(asked.to_text(), select)))
        deadline = time.monotonic() + ASKED_S
        while (left := deadline - time.monotonic()) > 0:
            reading = observer.read(left)
            if reading is not None and reading.rounds == wanted:
                return
    finally:
        observer.close()
    raise observer.silence()
