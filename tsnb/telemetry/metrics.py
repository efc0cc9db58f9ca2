"""`tsnb.log`: the numbers a training loop gives, process-wide, and who wants to hear them.

Listeners are the consumers of this process (they tell the producer, for the panel) and a trial kernel (it
tells its notebook, for the results). Owns no thread and no file.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, SupportsFloat

__all__ = ["Listener", "News", "latest", "log", "subscribe"]

Listener = Callable[["int | None", dict[str, float]], None]

_lock = threading.Lock()
_latest: dict[str, float] = {}
_listeners: list[Listener] = []
_unheard = False
"""Whether this is a fork of a process in which somebody listened: what is logged here goes nowhere."""


def log(
    values: Mapping[str, SupportsFloat] | None = None,
    /,
    *,
    step: SupportsFloat | None = None,
    **numbers: SupportsFloat,
) -> None:
    """Log numbers of this training loop; they are shown beside its consumer in the panel.

    Args:
        values: Numbers by name, for those that have them in a dict.
        step: The training step they belong to, a whole number; left out: counted by whoever keeps them.
        **numbers: `loss=0.3`, `accuracy=0.97`; a one-element tensor or array counts as a number.

    Raises:
        TypeError: A value is no number, or the step no whole one.
    """
    if not isinstance(values or {}, Mapping):
        raise TypeError(f"tsnb.log({values!r}): give numbers a name, tsnb.log(loss=0.3), or a dict of them.")
    taken = {name: _number(name, value) for name, value in {**(values or {}), **numbers}.items()}
    at = None if step is None else _whole(step)
    with _lock:
        _latest.update(taken)
        listeners = list(_listeners)
    for listener in listeners:
        listener(at, taken)
    if _unheard and not listeners:
        _tell_unheard()


def _whole(step: Any) -> int:
    number = _number("step", step)
    if not number.is_integer():
        raise TypeError(f"tsnb.log(step={step!r}): a step is a whole number; count batches, say.")
    return int(number)


def _tell_unheard() -> None:
    global _unheard
    _unheard = False
    warnings.warn(
        "tsnb.log in a child process of the trial (a DataLoader worker, say) is not heard: log in the trial itself.",
        stacklevel=3,
    )


def _leave_listeners() -> None:
    """In a forked child: whoever listens has its threads in the parent."""
    global _lock, _unheard
    _lock = threading.Lock()  # a thread that logged at the moment of the fork will never give it back
    _unheard = bool(_listeners)
    _listeners.clear()


os.register_at_fork(after_in_child=_leave_listeners)


def _number(name: str, value: Any) -> float:
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        # item() where there is one: float() of a loss that still has its graph makes torch warn in every trial
        try:
            return float(value.item() if hasattr(value, "item") else value)
        except OverflowError:  # an integer of hundreds of digits
            return math.inf if value > 0 else -math.inf
    raise TypeError(
        f"tsnb.log({name}=...) takes a number or a one-element tensor, not a {type(value).__name__}"
        f"{_shape(value)}. Log its mean, say, or leave it out."
    )


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f" of shape {tuple(shape)}" if shape is not None else ""


def latest() -> dict[str, float]:
    """Return the last value of every number logged in this process."""
    with _lock:
        return dict(_latest)


def subscribe(listener: Listener) -> Callable[[], None]:
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

    def take(self) -> dict[str, float] | None:
        """Return the last value of every number, or None while there is nothing to tell."""
        if not self._fresh or time.monotonic() - self._told_s < self._every_s:
            return None
        self._fresh, self._told_s = False, time.monotonic()
        return latest()
