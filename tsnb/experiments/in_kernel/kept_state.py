"""`tsnb.keep` and `tsnb.epochs`: what a trial keeps of its training, and how it goes on from there.

    tsnb.keep(net=net, optimizer=optimizer)     what is kept; in a trial that goes on: put back into these objects
    for epoch in tsnb.epochs(10):               begins with the epoch that was reached; `extend` makes it longer
        for x, y in tsnb.attach():              gives the rest of that epoch
            ...

A state is taken where nothing is half done: between two batches of the stream that the epoch trains on (its *main*
consumer, the one that is iterated first within the epoch, in its first loop over it), as an epoch begins, and at the
end. Beside the objects it holds where every consumer stands, the random states of Python, numpy and torch, the live
values and how much was logged. The random states are put back last, at the point of the loop where they were taken:
what the code draws before it, to make its net, say, does not matter.

What stands between the head of the loop over epochs and the loop over batches runs again for an epoch that was begun.

All of it happens on the training's thread.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from tsnb.config import attach_defaults
from tsnb.errors import JoinRefused, TsnbError
from tsnb.records.kept import KeptFiles

__all__ = ["EVERY_S", "KeptTrial", "Restored", "StateKeeper", "epochs", "keep", "keeper_here"]

EVERY_S = 30.0
"""How often a state is written by default, in seconds: a crash loses that much at most."""

SHARE = 20
"""And no more often than this many times as long as the writing took: it costs 5 % of the time at most."""

_VERSION = 1

_log = logging.getLogger("tsnb")


@dataclass(frozen=True)
class Restored:
    """From where a trial goes on."""

    epoch: int
    """The epoch that it goes on in, from 0, as the trial's own loop counts."""
    batch: int | None
    """Loader batches of it that it has taken; None: the epoch has not begun."""
    samples: int
    """Samples that it has taken in all."""
    rows: int
    """Rows that it has logged."""

    def __str__(self) -> str:
        return f"epoch {self.epoch}" + (f", batch {self.batch}" if self.batch is not None else "")


@dataclass
class KeptTrial:
    """What the keeper of a trial needs to know of it."""

    name: str
    files: KeptFiles
    resume: bool
    """Whether it goes on from what was kept."""
    exact: bool
    """Whether an epoch that it had begun is given again, rather than the stream's next: its process has died."""
    until: int | None
    """The number of epochs that `extend` has made of its loop; None: it was not extended."""
    least_rows: int
    """Rows that stay, though they were logged after the state."""
    progress: Callable[[], dict[str, Any]]
    """Returns the numbers that are to go on: `rows`, and others."""
    go_back: Callable[[Mapping[str, Any]], None]
    """Puts them back, and has the record go on from there."""


class StateKeeper:
    """Keeps the states of this process's training.

    Attributes:
        trial: The trial that it is; None: a script or a notebook, where nothing is kept.
        nowhere: Why nothing can be kept in a trial.
    """

    def __init__(self) -> None:
        self.trial: KeptTrial | None = None
        self.nowhere = ""
        self._objects: dict[str, Any] = {}
        self._every_s = EVERY_S
        self._next_s = 0.0
        self._asked = False
        self._warned = False
        self._restored: dict[str, Any] = {}  # of what was loaded: that which is still to be put back
        self._places: dict[tuple[str, str], tuple[dict[str, Any], bool]] = {}
        self._where: Restored | None = None
        self._main: tuple[str, str] | None = None
        self._loop: Any = None
        self._passed: Any = None  # the loop over the main consumer after the one that counts
        self._loops = 0  # over tsnb.epochs, so far
        self._epoch = 0
        self._until: int | None = None
        self._counted = False
        self._over = False  # the loop over tsnb.epochs is

    def open(self, trial: KeptTrial) -> None:
        """Be a trial's keeper from now on."""
        self.trial = trial
        if not trial.resume:
            trial.files.clear()

    def branch(self, called: Callable[[str], str]) -> None:
        """Go on in a clone, whose keeper it is by now.

        Args:
            called: Returns the clone's name of a consumer by its parent's.
        """
        if self._main is not None:
            self._main = self._main[0], called(self._main[1])

    # -- what the user calls -----------------------------------------------------------------------------

    def keep(self, objects: Mapping[str, Any], every_s: float) -> Restored | None:
        """Take in objects; in a trial that goes on, put back into them what was kept."""
        _check(objects, every_s)
        if self.trial is None:
            if self.nowhere:
                _log.warning("tsnb.keep keeps nothing here: %s", self.nowhere)
            return None
        if self._loops and not self._objects:
            raise TsnbError(
                "tsnb.keep(...) has to stand before the loop over tsnb.epochs(n): only then does that loop begin with "
                "the epoch that was reached. Move it above the loop."
            )
        first = not self._objects
        self._every_s = every_s
        if first and self.trial.resume:
            self._load()
        if self._restored:
            self._put_back(objects)
        self._objects.update(objects)
        if first:
            self._next_s = time.monotonic() + every_s
            attach_defaults.between_steps, attach_defaults.attached_to = self.boundary, self.place
            for consumer in _by_name().values():
                self.place(consumer)
        return self._where

    def epochs(self, count: int) -> Iterable[int]:
        """Return the numbers of the epochs, from the one that was reached."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"tsnb.epochs({count!r}): give a whole number of epochs, 0 or more.")
        return range(count) if self.trial is None else _Epochs(self, count)

    def each(self, count: int) -> Iterator[int]:
        """Yield the numbers of the epochs, and keep states between them."""
        self._loops += 1
        self._counted = True
        loop, first = self._loops, 0
        if self._where is not None and loop < self._restored.get("loop", 0):
            return  # it was over before the state was taken
        if self._where is not None and loop == self._restored.get("loop"):
            first, until = self._where.epoch, self._restored.get("until")
            count = until if until is not None else count
        self._until, self._over = count, False
        attach_defaults.epochs = max(0, count - first)
        try:
            for number in range(first, count):
                self._begin(number)
                if number and self._due and not self._restored:
                    self._write(batch=None)
                yield number
            self._begin(max(first, count))
            self._write(batch=None, end=True)
        finally:
            self._over = True

    def _begin(self, number: int) -> None:
        """An epoch begins, or would be the next."""
        self._epoch, self._main, self._loop, self._passed = number, None, None, None
        if self._restored.get("inside") is False:
            self._draw_as_then()

    # -- what the stream tells ---------------------------------------------------------------------------

    def boundary(self, consumer: Any, loop: Any) -> None:
        """A loop over a consumer asks for its next batch: the step before is over."""
        key = (consumer.producer, consumer.name)
        if self._over:
            return
        if self._main is None:
            self._main = key
        if key == self._main and loop is not self._loop and loop is not self._passed:
            self._take_turn(loop)
        if key != self._main or loop is self._passed:
            return
        if self._restored:
            if key == self._restored["main"] or not self._restored["inside"]:
                self._draw_as_then()
        elif self._due:
            self._write(batch=consumer.state_dict()["batch"])

    def _take_turn(self, loop: Any) -> None:
        """The main consumer's next loop begins: without `tsnb.epochs` the next epoch, else a second pass within one."""
        if self._loop is not None and self._counted:
            self._passed = loop
            return
        self._epoch += self._loop is not None
        self._loop = loop

    def place(self, consumer: Any) -> None:
        """Have a consumer of this process go on where the one of its name stood."""
        place = self._places.pop((consumer.producer, consumer.name), None)
        if place is None:
            return
        state, begun = place
        exact = self.trial is not None and self.trial.exact and begun
        try:
            consumer.go_on_from(state, exact=exact)
        except JoinRefused as error:
            _log.warning("%s It goes on with a whole epoch.", error)
        except ValueError as error:
            _log.warning("the place that was kept of %r is not one: %s", consumer.name, error)

    def end(self) -> None:
        """The trial's code has ended well: keep the state that it ended with."""
        if not self._objects or self._restored:  # or it never came as far as it had been
            return
        if self._until is not None and self._epoch >= self._until:
            return  # the loop over epochs has written it
        self._epoch += self._main is not None
        self._write(batch=None, end=True)

    def ask(self) -> None:
        """Have a state kept at the next batch. From any thread."""
        self._asked = True

    # -- states ------------------------------------------------------------------------------------------

    @property
    def _due(self) -> bool:
        return self._asked or time.monotonic() >= self._next_s

    def _write(self, *, batch: int | None, end: bool = False) -> None:
        if not self._objects or self.trial is None:
            return
        began = time.monotonic()
        self._asked = False
        try:
            state = self._state(batch)
            self.trial.files.write(
                lambda file: _save(state, file),
                epoch=self._epoch,
                batch=batch,
                counted=self._counted,
                end=end,
            )
            self._warned = False
        except Exception as error:  # noqa: BLE001 (a state_dict of the user's may raise anything, or hold anything)
            self._warn(error)
        now = time.monotonic()
        self._next_s = now + (max(self._every_s, SHARE * (now - began)) if self._every_s else 0.0)

    def _state(self, batch: int | None) -> dict[str, Any]:
        assert self.trial is not None
        return {
            "tsnb": _VERSION,
            "name": self.trial.name,
            "objects": {name: each.state_dict() for name, each in self._objects.items()},
            "places": {key: self._place_of(key, each) for key, each in _by_name().items()},
            "random": _random_states(),
            "progress": self.trial.progress(),
            "inside": batch is not None,
            "main": self._main,
            "loop": self._loops,
            "until": self._until if self._counted else None,
        }

    def _place_of(self, key: tuple[str, str], consumer: Any) -> tuple[dict[str, Any], bool]:
        """Return where a consumer stands, and whether it has begun with its stream."""
        return consumer.state_dict(), consumer.epoch >= 0 or key == self._main

    def _warn(self, error: Exception) -> None:
        """Say once, and again after it has gone well between, that the state is not kept."""
        if self._warned or self.trial is None:
            return
        self._warned = True
        last = self.trial.files.newest
        there = "there is none before it" if last is None else f"the last one is that of {last}"
        advice = (
            "Free some space there."
            if isinstance(error, OSError)
            else "Mend that, or leave it out of tsnb.keep."
        )
        _log.warning(
            "trial %r goes on, but its state could not be kept in %s: %s; %s. %s",
            self.trial.name,
            self.trial.files.place,
            error,
            there,
            advice,
        )

    def _load(self) -> None:
        """Read the state to go on from. Without one the trial begins from the top, and says so."""
        assert self.trial is not None
        found = self.trial.files.latest(_load)
        if found is None:
            _log.warning(
                "trial %r begins from the top: nothing that it has kept can be read", self.trial.name
            )
            return
        kept, state, wrong = found
        for why in wrong:
            _log.warning("%s; trial %r goes on from the state before", why, self.trial.name)
        progress = dict(state["progress"])
        progress["rows"] = max(progress["rows"], self.trial.least_rows)
        self._where = Restored(kept.epoch, kept.batch, progress["samples"], progress["rows"])
        named = state["name"], self.trial.name
        self._restored = {**state, "main": _renamed(state["main"], *named)}
        self._places = {_renamed(key, *named): place for key, place in state["places"].items()}
        self._epoch, self._counted = kept.epoch, kept.counted
        if self.trial.until is not None:
            self._restored["until"] = self.trial.until
        self.trial.go_back(progress)

    def _put_back(self, objects: Mapping[str, Any]) -> None:
        """Put back what was kept of objects.

        Raises:
            TsnbError: The state has none of that name, or the object does not take it.
        """
        states = self._restored["objects"]
        for name, each in objects.items():
            if name not in states and name not in self._objects:
                raise TsnbError(
                    f"tsnb.keep({name}=...): the state to go on from has no {name!r}, only {', '.join(states)}. Give "
                    "the names that it was kept by, or run the trial again from the top (rerun)."
                )
            if name in states:
                try:
                    each.load_state_dict(states.pop(name))
                except Exception as error:
                    first = str(error).partition("\n")[0]
                    raise TsnbError(
                        f"tsnb.keep({name}=...): the {type(each).__name__} does not take what was kept of it: "
                        f"{first}. Make it as it was made then, or run the trial again from the top (rerun)."
                    ) from error

    def _draw_as_then(self) -> None:
        """Put the random states back: training is where they were taken."""
        restored, self._restored = self._restored, {}
        _put_back_random_states(restored["random"])


class _Epochs:
    """The numbers of a trial's epochs, which depend on where it is as the loop begins."""

    def __init__(self, keeper: StateKeeper, count: int) -> None:
        self._keeper = keeper
        self._count = count

    def __iter__(self) -> Iterator[int]:
        return self._keeper.each(self._count)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"tsnb.epochs({self._count})"


def _check(objects: Mapping[str, Any], every_s: Any) -> None:
    """Refuse what cannot be kept.

    Raises:
        TypeError: It has no state, or nothing was given.
        ValueError: `every_s` is not a number of seconds.
    """
    if not objects:
        raise TypeError("tsnb.keep needs what to keep, by name: tsnb.keep(net=net, optimizer=optimizer)")
    if isinstance(every_s, bool) or not isinstance(every_s, (int, float)) or not every_s >= 0:
        raise ValueError(f"every_s={every_s!r}: give a number of seconds, 0 or more.")
    for name, each in objects.items():
        lacks = [
            method
            for method in ("state_dict", "load_state_dict")
            if not callable(getattr(each, method, None))
        ]
        if lacks or isinstance(each, type):
            kind = f"the class {each.__name__}" if isinstance(each, type) else f"a {type(each).__name__}"
            raise TypeError(
                f"tsnb.keep({name}=...): {kind} has no {' and no '.join(lacks) or 'state of its own'}. Give an object "
                "that has both, as torch's modules, optimizers and schedulers do."
            )


def _by_name() -> dict[tuple[str, str], Any]:
    """Return this process's consumers by stream and name."""
    found = getattr(sys.modules.get("tsnb.consumer"), "consumers", None)
    return {} if found is None else {(each.producer, each.name): each for each in found() if not each.closed}


def _renamed(key: Any, before: str, now: str) -> Any:
    """Return a consumer's stream and name in a trial that goes on under another name: a clone."""
    if key is None or not key[1].startswith(before):
        return key
    return key[0], now + key[1][len(before) :]


def _save(state: Mapping[str, Any], file: BinaryIO) -> None:
    """Write a state.

    Raises:
        OSError: It cannot be written: the disk is full.
    """
    import torch

    try:
        torch.save(state, file)
    except RuntimeError as error:  # what torch makes of a full disk
        full = error.__context__
        raise (full if isinstance(full, OSError) else error) from None


def _load(file: BinaryIO) -> dict[str, Any]:
    """Read a state, its tensors on the CPU.

    It is a file of this user's own, which no other user can change, and optimizers may keep any class in their state.

    Raises:
        TsnbError: Another version of tsnb wrote it.
        Exception: It is damaged.
    """
    import torch

    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=False)
    if state.get("tsnb") != _VERSION:
        raise TsnbError("it comes from another version of tsnb")
    return state


def _random_states() -> dict[str, Any]:
    import numpy as np
    import torch

    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    drawn = np.random.get_state()  # noqa: NPY002 (the user's code may draw from the old generator)
    return {"python": random.getstate(), "numpy": drawn, "torch": torch.get_rng_state(), "cuda": cuda}


def _put_back_random_states(states: Mapping[str, Any]) -> None:
    import numpy as np
    import torch

    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002 (as above)
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, device)


_keeper = StateKeeper()


def _leave_to_the_trial() -> None:
    """In a process forked from a trial: the states are the trial's, and are not written here."""
    if _keeper.trial is not None:
        _keeper.trial, _keeper.nowhere = None, "this process was forked from the trial's"


os.register_at_fork(after_in_child=_leave_to_the_trial)


def keeper_here() -> StateKeeper:
    """Return this process's keeper."""
    return _keeper


def keep(*, every_s: float = EVERY_S, **objects: Any) -> Restored | None:
    """Keep the state of a trial's training, so that it can go on from there: `tsnb.keep(net=net, optimizer=optimizer)`.

    Call it once, before the loop over epochs, when the objects are made. Their state is written at a batch boundary
    every so often, as an epoch begins when that is due, and at the end, with the place in the stream, the random states
    of Python, numpy and torch, and the live values. In a trial that goes on (its process had died, with
    `restart="on-crash"`; `trial.extend`) it puts the last state back into the objects, and `tsnb.attach` and
    `tsnb.epochs` go on from there. Variables of your own (a running mean, a count of steps) go on if they are part of
    an object that is kept.

    Of states from the middle of an epoch the newest stays, of those from an epoch's start the last three
    (`.tsnb/kept/NAME-NUMBER`); they go with the trial's record (`tsnb.delete`). A full disk is a warning: training goes
    on. Outside a trial, nothing is kept.

    Args:
        every_s: How often a state is written, in seconds. Large states are written less often: writing takes 5 % of the
            time at most. 0: at every batch, whatever that takes.
        **objects: What is to be kept, by name: anything with `state_dict` and `load_state_dict`.

    Returns:
        From where the trial goes on (`epoch`, `batch`, `samples`, `rows`); None where it begins from the top.

    Raises:
        TypeError: An object has no `state_dict` or no `load_state_dict`; names it.
        ValueError: `every_s` is not a number of seconds.
        TsnbError: It is called after the loop over `tsnb.epochs` has begun; or the state does not fit the objects.
    """
    return _keeper.keep(objects, every_s)


def epochs(n: int) -> Iterable[int]:
    """Count the epochs of a training: `for epoch in tsnb.epochs(10):`.

    In a trial that goes on from a kept state (`tsnb.keep`) it begins with the epoch that was reached, and
    `trial.extend` makes it longer. Anywhere else it is `range(n)`.

    Args:
        n: How many there are.

    Raises:
        ValueError: It is not a whole number, 0 or more.
    """
    return _keeper.epochs(n)
