"""`tsnb.log`: the numbers a training loop gives, process-wide, and their listeners.

Listeners are the consumers of this process (they tell the producer, for the panel) and a trial kernel (it
tells its notebook, for the results). Owns no thread and no file.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import operator
import os
import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tsnb.telemetry.trial_readings import LoggedReading, fewer
from tsnb.text.printable import one_line

__all__ = [
    "LONGEST_NAME",
    "MOST_TOLD",
    "LoggedNews",
    "News",
    "OthersKeeper",
    "Subscriber",
    "first_told",
    "keep_others",
    "latest",
    "log",
    "subscribe",
]

Subscriber = Callable[["int | None", dict[str, float]], None]
OthersKeeper = Callable[["int | None", str, Any], bool]
"""Takes a step, a name and a value that is not a number; returns whether it could use it."""

DEEPEST = 8
"""Dicts in dicts that names are made of."""
LONGEST_NAME = 120
"""Characters of a name: with names cut where they are shown only, two numbers would be one there."""
MOST_TOLD = 16
"""Names that a stream is told of one trial, those logged first: a panel shows a handful, and a packet has an end."""

MOST_PARTS = 16
"""Readings of one number between two tellings: of more values neighbours are joined."""

SPARSE = 2.2
"""Values an epoch at most of a number that is never smoothed: each is a mean over many samples already."""

_TEXTS = (str, bytes, bytearray)
"""What float() would read as a number: `fold="3"` and a gene called "nan" are text."""

_lock = threading.Lock()
_latest: dict[str, float] = {}
_listeners: list[Subscriber] = []
_keepers: list[OthersKeeper] = []
_broken: list[Callable[..., Any]] = []
_warned: set[str] = set()
_unheard = False
"""Whether this is a fork of a process with listeners: numbers logged here go nowhere."""


def log(*values: Any, step: Any = None, **numbers: Any) -> None:
    """Log numbers of this training to the panel and the records.

    Never raises. A value that is not a number is left out, printed, kept as an artifact (figures and pictures) or
    warned of once per name (docs/compare-runs.md). Panels show the first 16 names. The records keep all.

    Example:
        >>> tsnb.log(loss=0.3, accuracy=0.97)
        >>> tsnb.log({"val/loss": 0.31}, step=100)

    Args:
        values: Dict of numbers by name, or one name and its number. A nested dict is logged as `outer/inner`. Names
            are one line of at most 120 characters.
        step: Training step of the numbers, a whole number. Defaults to a count kept by the records.
        **numbers: Numbers by name. A tensor or array with one element counts as a number. nan and inf are allowed.
    """
    taken: dict[str, float] = {}
    others: dict[str, Any] = {}
    for name, value in _named(_by_name(values), numbers).items():
        number = _number(value)
        if number is not None:
            taken[name] = number
        elif value is not None:
            others[name] = value
    at = _whole(step)
    with _lock:
        _latest.update(taken)
        listeners, keepers = list(_listeners), list(_keepers)
    for listener in listeners if taken else ():
        _try(listener, at, taken)
    for name, value in others.items():
        kept = [_try(keeper, at, name, value) for keeper in keepers]
        if isinstance(value, _TEXTS):
            _warn_of_text(name, value)
        elif not any(kept):
            _warn_of(name, value)
    if _unheard and not listeners:
        _tell_unheard()


def _by_name(values: tuple[Any, ...]) -> Mapping[Any, Any]:
    """Return what was given by place, by name."""
    given = [value for value in values if value is not None]
    if len(given) == 2 and isinstance(given[0], str):
        return {given[0]: given[1]}
    if len(given) == 1 and isinstance(given[0], Mapping):
        return given[0]
    if given:
        shown = ", ".join(type(value).__name__ for value in given)
        _warn_once(
            "",
            f"tsnb.log({shown}) was ignored because the numbers have no name. Write tsnb.log(loss=0.3), "
            "or pass a dict.",
        )
    return {}


def _named(*given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return all values by their names, as every surface has them: cleaned here, where they enter."""
    found: dict[str, Any] = {}
    for name, value in itertools.chain.from_iterable(map(_flat, given)):
        shown = one_line(name, LONGEST_NAME)
        if shown != name:
            _warn_once(
                f"name {shown}",
                f"tsnb.log renamed a number to {shown!r}, because names are one line of at most "
                f"{LONGEST_NAME} printable characters.",
            )
        if shown in found:
            _warn_once(
                f"twice {shown}", f"tsnb.log received two values named {shown!r} and kept the last one."
            )
        found[shown] = value
    return found


def _flat(values: Mapping[Any, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Give all names and values; those of a dict in a dict as `outer/inner`."""
    try:
        pairs = [(f"{before}{key}", value) for key, value in values.items()]
    except Exception as error:  # noqa: BLE001 (whatever a class of the user's raises)
        _warn_once(f"dict {before}", f"tsnb.log ignored a {type(values).__name__}: {_short(error)}")
        return
    for name, value in pairs:
        if isinstance(value, Mapping) and depth < DEEPEST:
            yield from _flat(value, f"{name}/", depth + 1)
        else:
            yield name, value


def _whole(step: Any) -> int | None:
    number: float | None = None
    with contextlib.suppress(Exception):  # exact where it is an integer, of numpy or torch too
        number = operator.index(step)
    if number is None:
        number = None if step is None else _number(step)
    if number is not None and abs(number) < 2**63 and number == int(number):
        return int(number)
    if step is not None:
        _warn_once(
            "step",
            f"tsnb.log(step={_short(step)}) was ignored because a step is a whole number. The rows are "
            "counted instead.",
        )
    return None


def _number(value: Any) -> float | None:
    """Return a value as a number; None where it is not one."""
    if type(value) is float:  # most are: the rest asks what a value of any class is
        return value
    if value is None or isinstance(value, _TEXTS):
        return None
    with contextlib.suppress(Exception):  # whatever a class of the user's raises
        if not _counts(value):
            return None
        if type(value).__module__.startswith("numpy.ma") and bool(value.mask):
            return math.nan  # its item() is 0.0
        try:
            # item() where there is one: float() of a loss that still has its graph makes torch warn in every trial
            own = value.item() if hasattr(value, "item") else value
            return None if isinstance(own, _TEXTS) else float(own)
        except OverflowError:  # an integer of hundreds of digits
            return math.inf if value > 0 else -math.inf
    return None


def _counts(value: Any) -> bool:
    """Whether a value of numpy's is not a time: in nanoseconds, the item() of one is an integer."""
    return getattr(getattr(value, "dtype", None), "kind", "") not in ("m", "M")


def _try(listener: Callable[..., Any], *told: Any) -> bool:
    """Tell a listener; return whether it has taken what it was told. Training goes on whatever it raises."""
    try:
        return listener(*told) is not False
    except Exception:
        if listener not in _broken:
            _broken.append(listener)
            logging.getLogger("tsnb").exception("logged numbers could not be sent on; training continues")
        return True


def _warn_of_text(name: str, value: str | bytes | bytearray) -> None:
    """Warn of text that reads as a number: it may have been meant as one."""
    with contextlib.suppress(ValueError):
        float(value)
        _warn_once(
            name,
            f"tsnb.log({name}={_short(value)}) is a string, so it is not stored as a number. To log a "
            "number, use float(...).",
        )


def _warn_of(name: str, value: Any) -> None:
    shape = getattr(value, "shape", None)
    of_shape = f" of shape {tuple(shape)}" if isinstance(shape, tuple) else ""
    if getattr(getattr(value, "device", None), "type", None) == "meta":
        of_shape += " on the meta device, which holds no values"
    _warn_once(
        name,
        f"tsnb.log({name}=...) was ignored because it is a {type(value).__name__}{of_shape}, not a number or "
        "a one-element tensor. Log for example its mean, or save it to a file: tsnb.log_artifact(path).",
    )


def _short(value: Any) -> str:
    with contextlib.suppress(Exception):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:40]}..."
    return f"<{type(value).__name__}>"


def _warn_once(about: str, text: str) -> None:
    """Warn of one name once; never raises, where the user has made warnings errors either."""
    if about in _warned:
        return
    _warned.add(about)
    try:
        warnings.warn(text, stacklevel=_place())
    except Warning:
        logging.getLogger("tsnb").warning(text)


def _place() -> int:
    """Return the stack level of the first caller outside of this file."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame, level = frame.f_back, level + 1
    return level


def _tell_unheard() -> None:
    global _unheard
    _unheard = False
    _warn_once(
        "in a child",
        "tsnb.log has no effect in a child process of the trial, such as a DataLoader worker. Call it in "
        "the trial itself.",
    )


def _leave_listeners() -> None:
    """Drop the listeners in a forked child, whose threads are in the parent, and the parent's numbers."""
    global _lock, _unheard
    _lock = threading.Lock()  # `native.forks`, 3
    _unheard = bool(_listeners)
    _listeners.clear()
    _keepers.clear()
    _latest.clear()


os.register_at_fork(after_in_child=_leave_listeners)


def first_told(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return those of a trial's numbers that a stream is told: of the first 16 names."""
    return dict(itertools.islice(numbers.items(), MOST_TOLD))


def latest() -> dict[str, float]:
    """Return the last value of every number logged in this process."""
    with _lock:
        return dict(_latest)


def subscribe(listener: Subscriber) -> Callable[[], None]:
    """Call `listener(step, numbers)` at every `log` of this process, in the logging thread.

    Returns:
        Call it to end the subscription.
    """
    with _lock:
        _listeners.append(listener)

    def unsubscribe() -> None:
        with _lock, contextlib.suppress(ValueError):
            _listeners.remove(listener)

    return unsubscribe


def keep_others(keeper: OthersKeeper) -> None:
    """Call `keeper(step, name, value)` for everything logged in this process that is not a number."""
    with _lock:
        _keepers.append(keeper)


class LoggedNews(NamedTuple):
    """What `News` has to tell of a process's numbers."""

    numbers: dict[str, float]
    """The last value of each, of the first 16 names."""
    ago: dict[str, int]
    """How many batches ago each of them was logged."""
    sparse: tuple[str, ...]
    """Names of those that are logged about once an epoch, or less often."""
    logged: dict[str, list[LoggedReading]]
    """What was logged of each since it was told last, oldest first, the batches as those in `ago`."""


class _Logged:
    """When a number was logged last, how often, and what has not been told."""

    __slots__ = ("at", "count", "news", "sparse")

    def __init__(self) -> None:
        self.at: int | None = None
        self.count = 0
        self.sparse = False
        self.news: list[LoggedReading] = []

    def add(self, batches: int, value: float) -> None:
        """Take in a value; of several at one batch the last one counts."""
        one = LoggedReading(batches, value) if math.isfinite(value) else LoggedReading(batches, None, 0)
        if self.news and self.news[-1].batch == batches and self.news[-1].low is None:
            self.news[-1] = one
        else:
            self.news.append(one)
        if len(self.news) > MOST_PARTS:
            self.news = fewer(self.news, MOST_PARTS // 2)


class News:
    """What was logged and has not been told on yet.

    Args:
        every_s: At most so often there is any.
        place: Says how many batches were taken so far, and how many epochs.
        before: Whether what was logged before counts: in a trial's process all is the trial's.
    """

    def __init__(
        self, every_s: float, place: Callable[[], tuple[int, float]], *, before: bool = False
    ) -> None:
        self._every_s = every_s
        self._place = place
        self._told_s = 0.0
        self._fresh = before and bool(_latest)
        self._lock = threading.RLock()  # a signal's handler may log as well
        self._logged: defaultdict[str, _Logged] = defaultdict(_Logged)
        self.end = subscribe(self._note)

    def _note(self, _step: int | None, numbers: dict[str, float]) -> None:
        batches, epochs = self._place()
        with self._lock:
            for name, value in numbers.items():
                logged = self._logged[name]
                logged.at, logged.count = batches, logged.count + 1
                logged.sparse = logged.count <= SPARSE * epochs
                logged.add(batches, value)
            self._fresh = True

    def again(self) -> None:
        """Have what was told told again: somebody else listens now, and counts other batches."""
        with self._lock:
            for logged in self._logged.values():
                logged.at = None
            self._fresh = self._fresh or self._told_s > 0

    def take(self, *, now: bool = False) -> LoggedNews | None:
        """Return what there is to tell; None while there is nothing.

        Args:
            now: However short ago something was told: it is the last time.
        """
        if not self._fresh or (not now and time.monotonic() - self._told_s < self._every_s):
            return None
        with self._lock:
            self._fresh, self._told_s = False, time.monotonic()
            numbers, (batches, _) = first_told(latest()), self._place()
            known = {name: self._logged[name] for name in numbers if name in self._logged}
            ago = {name: batches - one.at for name, one in known.items() if one.at is not None}
            parts = {name: [p._replace(batch=batches - p.batch) for p in known[name].news] for name in ago}
            for one in self._logged.values():
                one.news = []
        sparse = tuple(name for name, one in known.items() if one.sparse)
        return LoggedNews(numbers, ago, sparse, {name: its for name, its in parts.items() if its})
