"""How many workers a stream's loader is to have: asked for, and looked at, from outside."""

from __future__ import annotations

import argparse
import time

import msgspec

from tsnb.options import AUTO, TuneOptions, typed
from tsnb.telemetry.observer import Observer
from tsnb.telemetry.readings import StreamReading
from tsnb.text.foreign import Whole, pack

__all__ = ["Tune", "tune", "tune_as_typed", "tuning_of"]


class Tune(msgspec.Struct, frozen=True):
    """An observer asks for another number of the loader's workers."""

    workers: Whole | None
    """None: as many as help."""
    memory_bytes: Whole | None = None
    """What all of them together may use; only without a number."""


def tune(
    stream: str | None,
    workers: int | str = AUTO,
    memory: int | str | None = None,
    *,
    settle_s: float = 0.0,
    timeout_s: float = 5.0,
) -> StreamReading:
    """Change the number of a stream's loader workers while trials run.

    Example:
        >>> tsnb.streams.tune("digits", workers=2)

    Args:
        stream: Name of the stream, or None while only one is running.
        workers: Number of processes, or "auto" to find it and follow it (docs/speed-up-loading.md). Defaults to "auto".
        memory: Memory for all workers with "auto", for example "4GiB". Defaults to the former value, else what is
            free.
        settle_s: Seconds to wait with "auto" until no number is left to try. Defaults to 0.
        timeout_s: Seconds to wait until the stream has taken the wish. Defaults to 5.

    Returns:
        A reading of the stream after the change.

    Raises:
        ValueError: If a number is out of range, or `memory` is given with a number of workers.
        ProducerNotFound: If no stream has that name.
        ProducerGone: If the stream's process died before it answered.
        TsnbError: If the loader cannot change its workers, or the stream does not answer.
    """
    chosen = TuneOptions(workers, memory, settle_s)
    auto = chosen.workers == AUTO
    asked, budget = str(chosen.workers), None if chosen.memory is None else int(chosen.memory)
    observer = Observer(stream)
    told: StreamReading | None = None
    deadline = time.monotonic() + timeout_s
    until = time.monotonic() + (chosen.settle_s if auto else 0.0)
    try:
        observer.tell("tuning", pack(Tune(None if auto else int(chosen.workers), budget)))
        while (left := max(deadline if told is None else until, until) - time.monotonic()) > 0:
            reading = observer.read(left)
            tuning = reading.tuning if reading is not None else None
            if tuning is None or tuning.asked != asked or budget not in (None, tuning.memory_bytes):
                continue
            told = reading
            if tuning.resting or time.monotonic() >= until:
                break
    finally:
        observer.close()
    if told is None:
        raise observer.silence()
    return told


def tuning_of(name: str | None, *, settle_s: float = 0.0, timeout_s: float = 5.0) -> StreamReading:
    """Return how a stream's workers are tuned; changes nothing.

    Args:
        name: The stream's name; may be None while one producer is running.
        settle_s: Where they are found by measuring, seconds to wait at most until nothing is left to try.
        timeout_s: Seconds to wait until it answers.

    Raises:
        ProducerNotFound: No producer has that name.
        ProducerGone: It died before it answered.
        TsnbError: It does not answer.
    """
    observer = Observer(name)
    began, told = time.monotonic(), None
    try:
        while (left := began + (timeout_s if told is None else settle_s) - time.monotonic()) > 0:
            told = observer.read(left) or told
            if told is not None and (told.tuning is None or told.tuning.resting):
                break
    finally:
        observer.close()
    if told is None:
        raise observer.silence()
    return told


def tune_as_typed(given: argparse.Namespace, name: str | None) -> tuple[StreamReading, bool]:
    """Do what was typed: change a stream's workers, or only look where neither a number nor a stream was named.

    Args:
        given: What was typed, with `TuneOptions` of which `workers` is None where it was left out.
        name: The stream's name; None: the only one that is running.

    Returns:
        A reading, and whether anything was asked of the stream.

    Raises:
        ValueError: A number is out of range, or memory was given without workers or a name, or with a number.
        ProducerNotFound: No producer has that name.
        ProducerGone: It died before it answered.
        TsnbError: Its loader cannot change them, or it does not answer.
    """
    options = typed(given, TuneOptions)
    if options["workers"] is None:
        options["workers"] = AUTO
        if given.name is None:  # the stream may be another notebook's or process's
            if options["memory"] is not None:
                raise ValueError("--memory limits what auto may use. Add --workers auto, or name the stream.")
            return tuning_of(name, settle_s=TuneOptions(**options).settle_s), False
    return tune(name, **options), True
