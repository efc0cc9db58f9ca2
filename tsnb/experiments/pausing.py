"""Trials pause together, or go on: what each takes batches of, and the GPU memory that they give back meanwhile.

All that can be refused is refused before a trial is paused: it takes no stream, or has no memory to give back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tsnb.errors import TsnbError
from tsnb.experiments.news import raised
from tsnb.records.reading import ENDED
from tsnb.telemetry.observer import Observer, all_streams
from tsnb.telemetry.readings import StreamReading
from tsnb.text.words import is_now

if TYPE_CHECKING:
    from tsnb.experiments.running.trial_life import TrialLife

__all__ = ["consumers_in", "pause_trials"]

ANSWER_S = 120.0
"""How long a trial's process may take to say whether it can give memory back: C code may hold the interpreter."""


def pause_trials(lives: Iterable[TrialLife], *, on: bool, release: bool = False) -> None:
    """Have all consumers of some trials pause at their next batch, or go on: on each stream all of them at once.

    Args:
        lives: Those of the trials.
        on: Pause; else go on.
        release: Have those that pause give the GPU memory of what they keep back meanwhile.

    Raises:
        TsnbError: One of them does not run, takes batches of no stream on this machine, or is to give back GPU memory
            and has none; the others pause, or go on.
    """
    lives = list(lives)
    ran = [life for life in lives if life.state == "running"]
    errors, reached = [], []
    taking: list[tuple[Observer, str]] = []
    with contextlib.ExitStack() as followed:
        streams = followed.enter_context(all_streams()) if ran else []
        for life in lives:
            own = [(observer, name) for observer, reading in streams for name in _own(life, reading)]
            why = (_why_no_memory(life) if release else "") if own else _why_not(life)
            if not why:
                reached.append(life)
                taking += own
            elif not (len(lives) > 1 and life in ran and life.state in ENDED):
                errors.append(why)  # one that has ended since it was looked holds up no other
        try:
            for observer, _ in streams:
                _pause_all(observer, [name for at, name in taking if at is observer], on=on)
        except BaseException:
            for life in reached if release else ():
                with contextlib.suppress(TsnbError, TimeoutError):
                    life.hub.call(life.release_memory(wanted=False), ANSWER_S)
            raise
    for life in reached:
        if life.state == "running":
            life.states.paused = on  # its kernel says so, too, when it has come to its next batch
    if errors:
        raise TsnbError("\n".join(errors))


def _pause_all(observer: Observer, those: list[str], *, on: bool) -> None:
    """Have consumers of one stream pause, or go on. One that has left it since it was looked holds up no other.

    Raises:
        TsnbError: The stream refuses, although all of them are there; or the only one of them has left.
    """
    while those:
        try:
            observer.pause(*those, on=on)
        except TsnbError:
            there: Mapping[str, object] = {}
            with contextlib.suppress(TsnbError):  # it has just ended
                there = observer.now().attached
            left = [consumer for consumer in those if consumer in there]
            if len(left) == len(those) or len(those) == 1:
                raise
            those = left
        else:
            return


def _why_no_memory(life: TrialLife) -> str:
    """Ask a trial's process to give GPU memory back when it stands still; return why it cannot, empty: it will."""
    try:
        reply = life.hub.call(life.release_memory(), ANSWER_S)
    except TimeoutError:
        return (
            f"Trial {life.name!r} does not answer, because C code holds its interpreter. Pause it without "
            "release, or wait"
        )
    except TsnbError as error:
        return str(error)
    return "" if reply["status"] == "ok" else str(raised(reply, life.name))


def consumers_in(life: TrialLife) -> list[tuple[str, str]]:
    """Return a trial's consumers: stream and name."""
    if life.state != "running":
        return []
    with all_streams() as streams:
        return [(observer.name, name) for observer, reading in streams for name in _own(life, reading)]


def _own(life: TrialLife, reading: StreamReading) -> list[str]:
    """Return the names of a trial's consumers of a stream: its own process, and those that it has started."""
    pid = life.pid
    if life.state != "running" or pid is None or life.options.get("engine"):
        return []

    def is_own(one: int) -> bool:
        with contextlib.suppress(OSError):
            return one > 0 and (one == pid or os.getsid(one) == pid)
        return False

    return [name for name, consumer in reading.attached.items() if is_own(consumer.pid)]


def _why_not(life: TrialLife) -> str:
    """Say why a trial cannot be paused."""
    if life.state != "running":
        why = is_now(life.state)
    elif life.options.get("engine"):
        why = "runs on a cluster"
    elif life.attached:
        why = "reads no stream of this machine now"
    else:
        why = "has not attached to a stream of this machine yet"
    return (
        f"Trial {life.name!r} {why}, so it cannot pause. A trial pauses when it takes a batch from a stream "
        "of this machine"
    )
