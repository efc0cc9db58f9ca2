"""Values that can be set while a training reads them: `lr = tsnb.live("lr", 0.1)`, and `trial.set(lr=0.03)`.

A change holds from the next batch on: every read within one batch gives the same, and changes that were made together
come together. Its place is noted, so that `rerun(repeat_changes=True)` can make the same changes
at the same batches of its own. A loop that reads no stream has no batches: there a change holds from the next read.

    control thread:  request({"lr": 0.03})  at batch 41  ->  waits
    main thread:     float(lr)              at batch 41  ->  0.1
                     float(lr)              at batch 42  ->  0.03, noted: epoch 0, batch 42

Outside a trial a live value is a value like any other, which `set` changes. Imports nothing heavy: scripts use it too.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from tsnb.config import LIVE_LETTERS, MOST_LIVE
from tsnb.errors import TsnbError
from tsnb.extensions.live import live_here
from tsnb.records.writes import LiveChange, own_number
from tsnb.text.masks import masked
from tsnb.text.printable import one_line
from tsnb.text.words import did_you_mean

__all__ = ["Live", "LiveValues", "NoSuchLiveValue", "live", "values_here"]


class NoSuchLiveValue(TsnbError, LookupError):
    """A trial reads no live value of that name; the message lists those it reads."""


Place = tuple["int | None", "int | None", int]
"""Epoch, batch and samples, as in `LiveChange`."""


class Live:
    """One value that may be set from outside. `float`, `int`, `bool` and `str` read it, and `value` does.

    Attributes:
        name: Its name.
        bounds: The lowest and the highest number that it may be.
        choices: What it may be instead.

    Args:
        values: All of this process.
        name: Its name.
        default: Its value until it is set.
        bounds: The lowest and the highest number that it may be.
        choices: What it may be instead.
    """

    def __init__(
        self,
        values: LiveValues,
        name: str,
        default: Any,
        bounds: tuple[float, float] | None,
        choices: Sequence[Any] | None,
    ) -> None:
        self.name = name
        self.bounds = bounds
        self.choices = None if choices is None else tuple(choices)
        self._values = values
        self._kind = type(default)
        self._applied: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.current = self.checked(default)

    def go_on_from(self, values: Mapping[str, Any]) -> None:
        """Be what it was, if it is among these and may still be that."""
        if self.name in values:
            with contextlib.suppress(ValueError):  # the code has other bounds now
                self.current = self.checked(values[self.name])

    @property
    def value(self) -> Any:
        """The current value; it stays the same until the next batch."""
        self._values.settle()
        return self.current

    def set(self, value: Any) -> None:
        """Change it from the next batch on. From any thread.

        Args:
            value: The new value.

        Raises:
            ValueError: It is out of bounds, or of another type than the default.
        """
        self._values.request({self.name: value})

    def apply(self, optimizer: Any, key: str | None = None) -> bool:
        """Put it into an optimizer's parameter groups, if it has changed since the last time. Call it once a batch.

        What a scheduler makes of it in between stays until the next change.

        Args:
            optimizer: A torch optimizer; all of its groups get the value.
            key: What the groups call it ("lr", "weight_decay"); left out: as it is called itself.

        Returns:
            Whether it was put there now.

        Raises:
            KeyError: The groups have nothing of that name.
        """
        value, key = self.value, key or self.name
        if optimizer in self._applied and self._applied[optimizer] == value:
            return False
        for group in optimizer.param_groups:
            if key not in group:
                raise KeyError(
                    f"The optimizer's groups have no {key!r}. Pass key= with one of {', '.join(group)}"
                )
            if hasattr(group[key], "fill_"):  # a tensor (capturable=True)
                group[key].fill_(value)
            else:
                group[key] = value
        self._applied[optimizer] = value
        return True

    def checked(self, value: Any) -> Any:
        """Return a value as Python's own type has it, in the type of the default.

        Raises:
            ValueError: It is out of bounds, or of another type.
        """
        if self.choices is not None:
            for choice in self.choices:
                if type(choice) is type(value) and choice == value:
                    return choice
            raise ValueError(
                f"{self.name}={value!r} is invalid. Pass one of {', '.join(map(repr, self.choices))}."
            )
        found = self._typed(own_number(value))
        if found is None:
            raise ValueError(f"{self.name}={value!r} is invalid. Pass {self.wanted}.")
        return found

    def _typed(self, value: Any) -> Any:
        """Return it in the type of the default; None if it does not fit."""
        if self._kind is bool:
            return value if isinstance(value, bool) else None
        if isinstance(value, bool) or not isinstance(value, Real):
            return None
        if self._kind is int and not isinstance(value, Integral):
            return None
        number = int(value) if isinstance(value, Integral) and self._kind is int else float(value)
        low, high = self.bounds or (-math.inf, math.inf)
        return number if low <= number <= high else None  # nan is within no bounds

    @property
    def wanted(self) -> str:
        """What may be given, in words."""
        if self.choices is not None:
            return f"one of {', '.join(map(repr, self.choices))}"
        if self._kind is bool:
            return "True or False"
        kind = "a whole number" if self._kind is int else "a number"
        return kind if self.bounds is None else f"{kind} from {self.bounds[0]:g} to {self.bounds[1]:g}"

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return one_line(f"<live {self.name}={self.current!r}>")


def _nowhere() -> Place:
    return None, None, 0


class LiveValues:
    """All live values of this process.

    Values are read on the training's thread, and changed by any.

    Attributes:
        place: Returns where training is; before a trial has said how: nowhere.
        declared: Called with all of them when there is another one.
        shown: Called with all of them as `LiveNow` tells them, when there is another one or one has changed.
        asked: Called with changes when they are asked for, before they can hold: each with the samples from which on
            it may.
        noted: Called with changes when they hold, on the thread that reads.
    """

    def __init__(self) -> None:
        self.place: Callable[[], Place] = _nowhere
        self.asked: Callable[[list[LiveChange]], None] = lambda _: None
        self.noted: Callable[[list[LiveChange]], None] = lambda _: None
        self.declared: Callable[[dict[str, Any]], None] = lambda _: None
        self.shown: Callable[[str], None] = lambda _: None
        self._values: dict[str, Live] = {}
        self._waiting: list[tuple[Place, dict[str, Any]]] = []
        self._planned: list[LiveChange] = []
        self._changing = threading.Lock()
        self._former: dict[str, Any] = {}
        self._first: tuple[int, dict[str, Any]] | None = None

    def go_on_from(self, values: Mapping[str, Any]) -> None:
        """Have values be what they were when a state was kept, those too that are made only after this."""
        self._former = dict(values)
        for value in self._values.values():
            value.go_on_from(self._former)
        if self._values:
            self.declared(self.now)

    def declare(
        self, name: str, default: Any, bounds: tuple[float, float] | None, choices: Sequence[Any] | None
    ) -> Live:
        """Return the value of that name; see `live`."""
        made = Live(self, name, default, bounds, choices)
        known = self._values.get(name)
        if known is not None:  # a cell that makes it once an epoch, say, goes on with what was set
            known.bounds, known.choices = made.bounds, made.choices
            return known
        made.go_on_from(self._former)
        self._values[name] = made
        self.declared(self.now)
        self._show()
        return made

    @property
    def now(self) -> dict[str, Any]:
        """The values, by name."""
        return {name: value.current for name, value in self._values.items()}

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The bounds of those that have finite ones, by name."""
        every = ((name, value.bounds) for name, value in self._values.items())
        return {name: each for name, each in every if each is not None and all(map(math.isfinite, each))}

    def plan(self, changes: Iterable[LiveChange]) -> None:
        """Make changes again that another run has noted, each after as many samples: the stream may have gone on."""
        with self._changing:
            self._planned = list(changes)

    def begin_with(self, changes: Mapping[str, Any], samples: int) -> None:
        """Have values changed from the first batch after so many samples: a clone's. They may not be made yet."""
        self._first = (samples, dict(changes)) if changes else None

    def request(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Have values changed together from the next batch on; return them as they will be. From any thread.

        Raises:
            NoSuchLiveValue: Nothing of that name is read.
            ValueError: One is out of bounds, or of another type. Nothing is changed then.
        """
        checked = self.checked(changes)
        with self._changing:
            here = self.place()
            epoch, _, samples = here
            first = samples if epoch is None else samples + 1
            now = time.time()
            self.asked([LiveChange(name, value, None, None, first, now) for name, value in checked.items()])
            self._waiting.append((here, checked))
        return checked

    def checked(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return values as they would be if they were changed.

        Raises:
            NoSuchLiveValue: Nothing of that name is read.
            ValueError: One is out of bounds, or of another type.
        """
        checked = {}
        for name, value in changes.items():
            if name not in self._values:
                hint = did_you_mean(name, self._values)
                there = ", ".join(f"{known}={now!r}" for known, now in self.now.items()) or "none yet"
                raise NoSuchLiveValue(
                    f"The training reads no live hyperparameter {name!r}.{hint} Live hyperparameters: "
                    f"{there}. To add it, read tsnb.live({name!r}, DEFAULT) in the training"
                )
            checked[name] = self._values[name].checked(value)
        return checked

    def answer(self, asked: str) -> tuple[str, str, str]:
        """Change values as somebody asks over a stream, from the next batch on. Never raises; from any thread.

        Args:
            asked: The values by name, as JSON.

        Returns:
            All values as they will be with what may be given, as JSON; then the class of the error and what it says,
            empty where there is none. These are what `LiveTold` tells.
        """
        changed: dict[str, Any] = {}
        kind = error = ""
        try:
            changes = json.loads(asked)
            if changes:
                changed = self.request(changes)
        except (TsnbError, ValueError, TypeError, AttributeError) as raised:
            kind, error = type(raised).__name__, str(raised)
        told = {
            name: {"value": changed.get(name, value.current), "wanted": value.wanted}
            for name, value in self._values.items()
        }
        return json.dumps(told, default=repr), kind, error

    def branch(self) -> None:
        """Go on in a forked child (`native.forks`, 3)."""
        self._changing = threading.Lock()

    def settle(self) -> None:
        """Let what waits hold, if a batch has begun since. Called at each read.

        Raises:
            NoSuchLiveValue, ValueError: What a clone was to begin with is not possible.
        """
        if not self._waiting and not self._planned and self._first is None:
            return
        here = self.place()
        held: list[LiveChange] = []
        if self._first is not None and here[2] > self._first[0]:
            (_, changes), self._first = self._first, None
            held += self._take(self.checked(changes), here)
        with self._changing:
            while self._planned and here[2] >= self._planned[0].samples:
                change = self._planned.pop(0)
                held += self._take({change.name: change.value}, here)
            while self._waiting and (here != self._waiting[0][0] or here[0] is None):
                _, changes = self._waiting.pop(0)
                held += self._take(changes, here)
        if held:
            self._show()
            self.noted(held)

    def _show(self) -> None:
        """Tell streams as much as their readings keep: a long text does not fit into a packet."""
        first = itertools.islice(self._values.items(), MOST_LIVE)
        self.shown(
            json.dumps(
                {
                    one_line(n, LIVE_LETTERS): one_line(masked(value.current, n), LIVE_LETTERS)
                    for n, value in first
                }
            )
        )

    def _take(self, changes: Mapping[str, Any], here: Place) -> list[LiveChange]:
        now = time.time()
        taken = []
        for name, value in changes.items():
            if name in self._values:
                self._values[name].current = value
                taken.append(LiveChange(name, value, *here, now))
        return taken


_values = LiveValues()
os.register_at_fork(after_in_child=_values.branch)
live_here.change = _values.answer


def _tell_streams(values: str) -> None:
    live_here.now = values


_values.shown = _tell_streams


def values_here() -> LiveValues:
    """Return the live values of this process."""
    return _values


def live(
    name: str,
    default: Any,
    *,
    bounds: tuple[float, float] | None = None,
    choices: Sequence[Any] | None = None,
) -> Live:
    """Make a hyperparameter that can be changed while the training runs.

    Read it where you use it, once per batch: `float(lr)`, `lr.value` or `lr.apply(optimizer)`. `trial.set(lr=0.03)`
    changes it from the next batch on. Outside a trial only its own `set` changes it.

    Example:
        >>> lr = tsnb.live("lr", 0.1, bounds=(1e-5, 1.0))
        >>> lr.apply(optimizer)

    Args:
        name: Name of the value, a Python identifier.
        default: First value: a number, a bool, or one of the choices. It decides the type.
        bounds: Lowest and highest number allowed. Defaults to None, no bounds.
        choices: Allowed values in place of numbers, for example ("sum", "mean"). Defaults to None.

    Returns:
        The live value.

    Raises:
        ValueError: If the name is not an identifier, or the default does not fit the bounds or choices.
        TypeError: If the default is neither a number nor a bool, and no choices are given.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"{name!r} cannot name a live hyperparameter, because trial.set(NAME=...) takes identifiers. "
            "Use a name such as 'lr'."
        )
    if choices is None and not isinstance(default, Real):
        raise TypeError(
            f"tsnb.live({name!r}, {default!r}) is invalid. Pass a number or a bool, or choices=(...) for anything else."
        )
    return _values.declare(name, default, bounds, choices)
