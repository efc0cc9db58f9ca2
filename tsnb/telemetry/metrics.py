"""`tsnb.log`: the numbers a training loop gives, process-wide, and who wants to hear them.

Listeners are the consumers of this process (they tell the producer, for the panel) and a trial kernel (it
tells its notebook, for the results). Owns no thread and no file.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, SupportsFloat

__all__ = ["Listener", "News", "latest", "log", "subscribe"]

Listener = Callable[["int | None", dict[str, float]], None]

_lock = threading.Lock()
_latest: dict[str, float] = {}
_listeners: list[Listener] = []


def log(step: int | None = None, **numbers: SupportsFloat) -> None:
    """Log numbers of this training loop; they are shown beside its consumer in the panel.

    Args:
        step: The training step they belong to; left out: counted by whoever keeps them.
        **numbers: `loss=0.3`, `accuracy=0.97`; a one-element tensor or array counts as a number.

    Raises:
        TypeError: A value is no number.
    """
    taken = {name: _number(name, value) for name, value in numbers.items()}
    with _lock:
        _latest.update(taken)
        listeners = list(_listeners)
    for listener in listeners:
        listener(step, taken)


def _number(name: str, value: Any) -> float:
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        # item() where there is one: float() of a loss that still has its graph makes torch warn in every trial
        return float(value.item() if hasattr(value, "item") else value)
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
