"""`tsnb.log`: the numbers a training loop gives, process-wide, and their listeners.

Listeners are the consumers of this process (they tell the producer, for the panel) and a trial kernel (it
tells its notebook, for the results). Owns no thread and no file.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["News", "OthersKeeper", "Subscriber", "keep_others", "latest", "log", "subscribe"]

Subscriber = Callable[["int | None", dict[str, float]], None]
OthersKeeper = Callable[["int | None", str, Any], bool]
"""Takes a step, a name and a value that is not a number; returns whether it could use it."""

DEEPEST = 8
"""Dicts in dicts that names are made of."""

_lock = threading.Lock()
_latest: dict[str, float] = {}
_listeners: list[Subscriber] = []
_keepers: list[OthersKeeper] = []
_broken: list[Callable[..., Any]] = []
_warned: set[str] = set()
_unheard = False
"""Whether this is a fork of a process with listeners: numbers logged here go nowhere."""


def log(*values: Any, step: Any = None, **numbers: Any) -> None:
    """Log numbers of this training loop; they are shown beside its consumer in the panel. Never raises.

    A value that is not a number never ends a training: None is left out; in a trial, text is printed when it changes,
    and figures and pictures are kept as artifacts; anything else (an array of many elements) is warned of, once a name.

    Args:
        values: Numbers by name, for those that have them in a dict (`tsnb.log({"loss": 0.3})`), or a name and its
            number. A dict in a dict is logged as `outer/inner`.
        step: The training step they belong to, a whole number; left out: the records count them.
        **numbers: `loss=0.3`, `accuracy=0.97`; a one-element tensor or array counts as a number; nan and inf may be.
    """
    taken: dict[str, float] = {}
    others: dict[str, Any] = {}
    for name, value in _flat({**_by_name(values), **numbers}):
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
        if not any(kept) and not isinstance(value, str):
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
            "", f"tsnb.log({shown}) was left out: give numbers a name, tsnb.log(loss=0.3), or a dict of them."
        )
    return {}


def _flat(values: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Give all names and values; those of a dict in a dict as `outer/inner`."""
    for name, value in values.items():
        if isinstance(value, Mapping) and before.count("/") < DEEPEST:
            yield from _flat(value, f"{before}{name}/")
        else:
            yield f"{before}{name}", value


def _whole(step: Any) -> int | None:
    number = None if step is None else _number(step)
    if number is not None and number.is_integer() and abs(number) < 2**63:
        return int(step) if isinstance(step, int) else int(number)
    if step is not None:
        _warn_once(
            "step", f"tsnb.log(step={_short(step)}): a step is a whole number. The rows are counted instead."
        )
    return None


def _number(value: Any) -> float | None:
    """Return a value as a number; None where it is not one."""
    if value is None:
        return None
    with contextlib.suppress(Exception):  # whatever a class of the user's raises
        try:
            # item() where there is one: float() of a loss that still has its graph makes torch warn in every trial
            return float(value.item() if hasattr(value, "item") else value)
        except OverflowError:  # an integer of hundreds of digits
            return math.inf if value > 0 else -math.inf
    return None


def _try(listener: Callable[..., Any], *told: Any) -> bool:
    """Tell a listener; return whether it has taken what it was told. Training goes on whatever it raises."""
    try:
        return listener(*told) is not False
    except Exception:
        if listener not in _broken:
            _broken.append(listener)
            logging.getLogger("tsnb").exception("what was logged could not be handed on; training goes on")
        return True


def _warn_of(name: str, value: Any) -> None:
    shape = getattr(value, "shape", None)
    of_shape = f" of shape {tuple(shape)}" if isinstance(shape, tuple) else ""
    _warn_once(
        name,
        f"tsnb.log({name}=...) was left out: it is a {type(value).__name__}{of_shape}, not a number or a one-element "
        "tensor. Log its mean, say, or keep it as a file: tsnb.log_artifact(path).",
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
        "tsnb.log in a child process of the trial (a DataLoader worker, say) is not heard: log in the trial itself.",
    )


def _leave_listeners() -> None:
    """Drop the listeners in a forked child: their threads are in the parent."""
    global _lock, _unheard
    _lock = threading.Lock()  # a thread that logged at the moment of the fork will never give it back
    _unheard = bool(_listeners)
    _listeners.clear()
    _keepers.clear()


os.register_at_fork(after_in_child=_leave_listeners)


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


class News:
    """What was logged and has not been told on yet.

    Args:
        every_s: At most so often there is any.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._told_s = 0.0
        self._fresh = False
        self.end = subscribe(self._note)

    def _note(self, _step: int | None, _numbers: dict[str, float]) -> None:
        self._fresh = True

    def take(self, *, now: bool = False) -> dict[str, float] | None:
        """Return the last value of every number, or None while there is nothing to tell.

        Args:
            now: However short ago something was told: it is the last time.
        """
        if not self._fresh or (not now and time.monotonic() - self._told_s < self._every_s):
            return None
        self._fresh, self._told_s = False, time.monotonic()
        return latest()
