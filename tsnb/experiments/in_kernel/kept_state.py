"""`tsnb.checkpoint` and `tsnb.epochs`: what a trial keeps of its training, and how it goes on from there.

    tsnb.checkpoint(net=net, optimizer=optimizer)     what is kept; in a trial that goes on: put back into these objects
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
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tsnb.config import way_out
from tsnb.errors import JoinRefused, TsnbError
from tsnb.experiments.in_kernel import states
from tsnb.experiments.in_kernel.states import Restored
from tsnb.option_kinds import EPOCH_COUNT
from tsnb.records.kept import EPOCHS, KeptFiles
from tsnb.stream.this_process import this_process

__all__ = [
    "EVERY_S",
    "KeptTrial",
    "Restored",
    "SetAside",
    "StateKeeper",
    "checkpoint",
    "epochs",
    "keeper_here",
]

EVERY_S = 30.0
"""How often a state is written by default, in seconds: a crash loses that much at most."""

SHARE = 20
"""And no more often than this many times as long as the writing took: it costs 5 % of the time at most."""

_log = logging.getLogger("tsnb")


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
    """Returns the numbers that are to go on: `rows`, those of a clone's parent included, and others."""
    own_rows: Callable[[], int]
    """Returns how many of the rows the trial has logged itself: its record has no others."""
    go_back: Callable[[Mapping[str, Any], int, bool], None]
    """Puts the numbers back, and goes on from its own rows in the record. Last: whether the state is its parent's."""
    more: int = 0
    """Epochs by which `extend` has made its loop longer than it was, where that had not come to its end."""
    clone: bool = False
    """Whether it is a clone, which has nothing else to begin with."""


class SetAside(NamedTuple):
    """A state that was written for a clone."""

    path: Path
    """Its file, which is the clone's to take."""
    place: tuple[int | None, int | None, int]
    """Where it was taken: the stream's epoch, loader batches of it, samples in all."""


ForClone = Callable[["SetAside | str"], None]
"""Takes the state that was written for a clone, or why there is none."""


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
        self._spared_s = 0.0  # until then, writing would take more than its share
        self._clones: list[ForClone] = []  # at most one; taken out by whichever thread is first
        self._warned = False
        self._restored: dict[str, Any] = {}  # of what was loaded: that which is still to be put back
        self._places: dict[tuple[str, str], tuple[Any, ...]] = {}
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

    def keep(self, objects: Mapping[str, Any], every_s: float, history: int = EPOCHS) -> Restored | None:
        """Take in objects; in a trial that goes on, put back into them what was kept."""
        states.check_objects(objects, every_s)
        history = EPOCH_COUNT.checked("history", history)
        if self.trial is None:
            if self.nowhere:
                _log.warning("tsnb.checkpoint writes nothing here: %s", self.nowhere)
            return None
        if self._loops and not self._objects:
            raise TsnbError(
                "tsnb.checkpoint(...) must come before the loop over tsnb.epochs(n), because that loop "
                "starts with the epoch that was reached. Move it above the loop."
            )
        first = not self._objects
        self._every_s, self.trial.files.history = every_s, history
        if first and self.trial.resume:
            self._load()
        if self._restored:
            states.put_back(self._restored["objects"], objects, self._objects)
        self._objects.update(objects)
        if first:
            self._next_s = time.monotonic() + every_s
            this_process.between, this_process.attached = self.boundary, self.place
            for consumer in _by_name().values():
                self.place(consumer)
        return self._where

    def epochs(self, count: int) -> Iterable[int]:
        """Return the numbers of the epochs, from the one that was reached."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"tsnb.epochs({count!r}) is invalid. Pass a whole number of epochs, 0 or more.")
        if self.trial is not None:
            return _Epochs(self, count)
        if self.nowhere:  # a trial that keeps no states: its stream is told how many it takes all the same
            this_process.epochs = count
        return range(count)

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
        this_process.epochs = max(0, count - first)
        try:
            for number in range(first, count):
                self._begin(number)
                self._between_epochs(number, ended=number > first)
                yield number
            self._begin(max(first, count))
            self._write(batch=None, end=True)
        finally:
            self._over = True

    def _between_epochs(self, number: int, *, ended: bool) -> None:
        """Have a state kept of each epoch's start, where that does not take too much of the time.

        Args:
            number: The epoch that begins.
            ended: Whether this process has been through the one before.
        """
        if self._restored:
            return
        if (number and self._due) or (ended and time.monotonic() >= self._spared_s):
            self._write(batch=None)
        if self._clones:
            self._write_for_clone(None)

    def _begin(self, number: int) -> None:
        """An epoch begins, or would be the next."""
        self._epoch, self._main, self._loop, self._passed = number, None, None, None
        if self._restored.get("inside") is False:
            self._draw_as_then()

    # -- what the stream tells ---------------------------------------------------------------------------

    def boundary(self, consumer: Any, loop: Any) -> None:
        """A loop over a consumer asks for its next batch: the step before is over."""
        key = (consumer.stream, consumer.name)
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
        else:
            if self._due:
                self._write(batch=consumer.state_dict()["batch"])
            if self._clones:
                self._write_for_clone(consumer)

    def _take_turn(self, loop: Any) -> None:
        """The main consumer's next loop begins: without `tsnb.epochs` the next epoch, else a second pass within one."""
        if self._loop is not None and self._counted:
            self._passed = loop
            return
        self._epoch += self._loop is not None
        self._loop = loop

    def place(self, consumer: Any) -> None:
        """Have a consumer of this process go on where the one of its name stood."""
        place = self._places.pop((consumer.stream, consumer.name), None)
        if place is None:
            return
        state, begun, *taken = place
        if taken:  # an earlier version of tsnb did not keep it
            consumer.count_on(*taken[0])
        exact = self.trial is not None and self.trial.exact and begun
        try:
            consumer.go_on_from(
                state, exact=exact, in_order=exact and self.trial is not None and self.trial.clone
            )
        except JoinRefused as error:
            _log.warning("%s The trial continues with a whole epoch.", error)
        except ValueError as error:
            _log.warning("the position of %r in the checkpoint is invalid: %s", consumer.name, error)

    def end(self) -> None:
        """The trial's code has ended well: keep the state that it ended with."""
        if not self._objects or self._restored:  # or it never came as far as it had been
            return
        if self._until is not None and self._epoch >= self._until:
            return  # the loop over epochs has written it
        self._epoch += self._main is not None
        self._write(batch=None, end=True)

    # -- clones --------------------------------------------------------------------------------------------

    @property
    def keeps(self) -> bool:
        """Whether states of this trial can be kept."""
        return self.trial is not None and bool(self._objects)

    @property
    def objects(self) -> Mapping[str, Any]:
        """What is kept, by name."""
        return self._objects

    def branch_off(self, told: ForClone) -> None:
        """Write a state for a clone: here, if this is a boundary of the main loop, else at the next one.

        Called on the training's thread, between two batches of any of its consumers.

        Args:
            told: Is called with it, or with the reason why there is none.
        """
        self._clones.append(told)
        main = None if self._main is None else _by_name().get(self._main)
        others = [each for key, each in _by_name().items() if key != self._main and each.iterating]
        if (
            main is not None
            and main.iterating
            and not (others or self._restored or self._over or self._passed)
        ):
            self._write_for_clone(main)

    def forget_branch(self) -> bool:
        """Write no state for a clone any more; return whether that came in time. From any thread."""
        try:
            self._clones.pop()
        except IndexError:
            return False
        return True

    def _write_for_clone(self, main: Any) -> None:
        """Write what was wished for.

        Args:
            main: The consumer within whose loop this is; None: an epoch is about to begin.
        """
        try:
            told = self._clones.pop()
        except IndexError:  # it has just been taken back
            return
        assert self.trial is not None
        why = next((each.given_once for each in _by_name().values() if each.given_once), "")
        if main is not None and why:
            told(
                f"its stream cannot send a clone the rest of this epoch: {why}. Or clone it from the start of "
                "an epoch: clone(at=EPOCH)"
            )
            return
        try:
            batch = None if main is None else main.state_dict()["batch"]
            state = self._state(batch)
            path = self.trial.files.set_aside(
                lambda file: states.save(state, file), epoch=self._epoch, batch=batch, counted=self._counted
            )
        except Exception as error:  # noqa: BLE001 (as in `_write`)
            told(f"its state could not be written to {self.trial.files.place}: {_said(error)}")
            return
        told(SetAside(path, state["progress"]["place"]))

    # -- states ------------------------------------------------------------------------------------------

    @property
    def _due(self) -> bool:
        return time.monotonic() >= self._next_s

    def _write(self, *, batch: int | None, end: bool = False) -> None:
        if not self._objects or self.trial is None:
            return
        began = time.monotonic()
        try:
            state = self._state(batch)
            self.trial.files.write(
                lambda file: states.save(state, file),
                epoch=self._epoch,
                batch=batch,
                counted=self._counted,
                samples=state["progress"]["samples"],
                end=end,
            )
            self._warned = False
        except Exception as error:  # noqa: BLE001 (a state_dict of the user's may raise anything, or hold anything)
            self._warn(error)
        now = time.monotonic()
        self._spared_s = now + SHARE * (now - began)
        self._next_s = now + (max(self._every_s, SHARE * (now - began)) if self._every_s else 0.0)

    def _state(self, batch: int | None) -> dict[str, Any]:
        assert self.trial is not None
        return {
            "tsnb": states.VERSION,
            "name": self.trial.name,
            "objects": {name: each.state_dict() for name, each in self._objects.items()},
            "places": {key: self._place_of(key, each) for key, each in _by_name().items()},
            "random": states.random_states(),
            "progress": self.trial.progress(),
            "own_rows": self.trial.own_rows(),
            "inside": batch is not None,
            "main": self._main,
            "loop": self._loops,
            "until": self._until if self._counted else None,
        }

    def _place_of(self, key: tuple[str, str], consumer: Any) -> tuple[dict[str, Any], bool, tuple[int, int]]:
        """Return where a consumer stands, whether it has begun with its stream, and what it has taken."""
        return consumer.state_dict(), consumer.epoch >= 0 or key == self._main, consumer.taken

    def _warn(self, error: Exception) -> None:
        """Say once, and again after it has gone well between, that the state is not kept."""
        if self._warned or self.trial is None:
            return
        self._warned = True
        last = self.trial.files.newest
        there = "there is no earlier checkpoint" if last is None else f"the last checkpoint is of {last}"
        advice = (
            way_out(error) if isinstance(error, OSError) else "Fix that, or remove it from tsnb.checkpoint."
        )
        _log.warning(
            "trial %r continues, but its checkpoint could not be written to %s: %s; %s. %s",
            self.trial.name,
            self.trial.files.place,
            error,
            there,
            advice,
        )

    def _load(self) -> None:
        """Read the state to go on from. Without one the trial begins from the top, and says so."""
        assert self.trial is not None
        found = self.trial.files.latest(states.load)
        if found is None and self.trial.clone:
            raise TsnbError(
                f"The clone {self.trial.name!r} cannot start, because its checkpoint cannot be read from "
                f"{self.trial.files.place}. Clone its parent again"
            )
        if found is None:
            _log.warning(
                "trial %r starts from the top, because none of its checkpoints can be read", self.trial.name
            )
            return
        kept, state, wrong = found
        for why in wrong:
            _log.warning("%s; trial %r resumes from the checkpoint before", why, self.trial.name)
        progress: dict[str, Any] = dict(state["progress"])
        from_parent = state["name"] != self.trial.name
        own_rows = 0 if from_parent else _own_rows_in(state)  # a clone has logged nothing yet
        later = max(0, self.trial.least_rows - own_rows)
        progress["rows"] += later
        self._where = Restored(kept.epoch, kept.batch, progress["samples"], progress["rows"])
        named = state["name"], self.trial.name
        self._restored = {**state, "main": states.renamed(state["main"], *named)}
        self._places = {states.renamed(key, *named): place for key, place in state["places"].items()}
        self._epoch, self._counted = kept.epoch, kept.counted
        if self.trial.until is not None:
            self._restored["until"] = self.trial.until
        elif self.trial.more:
            self._restored["until"] = (self._restored["until"] or 0) + self.trial.more
        self.trial.go_back(progress, own_rows + later, from_parent)

    def _draw_as_then(self) -> None:
        """Put the random states back: training is where they were taken."""
        restored, self._restored = self._restored, {}
        states.draw_as_then(restored["random"])


def _own_rows_in(state: Mapping[str, Any]) -> int:
    """Return how many rows a trial had logged itself when its state was kept.

    States from before this was a field of its own have it among the numbers; older ones are no clone's, so it is all.
    """
    told = state["progress"]
    return int(state.get("own_rows", told.get("own", told["rows"])))


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


def _by_name() -> dict[tuple[str, str], Any]:
    """Return this process's consumers by stream and name."""
    found = getattr(sys.modules.get("tsnb.stream.consumer"), "consumers", None)
    return {} if found is None else {(each.stream, each.name): each for each in found() if not each.closed}


def _said(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


_keeper = StateKeeper()


def _leave_to_the_trial() -> None:
    """In a process forked from a trial: the states are the trial's, and are not written here."""
    if _keeper.trial is not None:
        _keeper.trial, _keeper.nowhere = None, "this process was forked from the trial's process"


os.register_at_fork(after_in_child=_leave_to_the_trial)


def keeper_here() -> StateKeeper:
    """Return this process's keeper."""
    return _keeper


def checkpoint(*, every_s: float = EVERY_S, history: int = EPOCHS, **objects: Any) -> Restored | None:
    """Write checkpoints of a trial's training, and resume from the last one.

    Call it once, before the loop over epochs. It writes at batch boundaries, as each epoch of `tsnb.epochs` begins,
    and at the end. A checkpoint includes the place in the stream, the random states of Python, numpy and torch, and
    the live values. Checkpoints are stored in `.tsnb/kept/NAME-NUMBER` and go with the trial's record. A full disk is a
    warning. Outside a trial nothing is written (docs/checkpoint-and-resume.md).

    Example:
        >>> tsnb.checkpoint(model=model, optimizer=optimizer)
        >>> for epoch in tsnb.epochs(2):
        ...     ...

    Args:
        every_s: Seconds between checkpoints; 0 writes one at every batch. Writing large states takes at most 5% of
            the time. Defaults to 30.
        history: Number of epochs whose first state stays, for `trial.clone(at=EPOCH)`. One state more is kept in
            all. Defaults to 3.
        **objects: Objects to save, by name: anything with `state_dict` and `load_state_dict`.

    Returns:
        The place from which the trial resumes (`epoch`, `batch`, `samples`, `rows`), or None where it begins from
        the top.

    Raises:
        TypeError: If an object has no `state_dict` or no `load_state_dict`.
        ValueError: If `every_s` is not a number of seconds, or `history` is not a number of epochs.
        TsnbError: If the loop over `tsnb.epochs` has begun already, or the state does not fit the objects.
    """
    return _keeper.keep(objects, every_s, history)


def epochs(n: int) -> Iterable[int]:
    """Count the epochs of a training, and resume the count with the trial.

    A trial that resumes from a checkpoint (`tsnb.checkpoint`) begins with the epoch that it had reached.
    `trial.extend` makes the loop longer. Anywhere else this is `range(n)`.

    Example:
        >>> for epoch in tsnb.epochs(2):
        ...     print(epoch)

    Args:
        n: Number of epochs.

    Raises:
        ValueError: If `n` is not a whole number of 0 or more.
    """
    return _keeper.epochs(n)
