"""Runs every trial for some batches on one stream, in waves that fit the memory, and counts what a sample costs each.

A trial is run as `tsnb.run` runs it, in a kernel of its own, under another name and without output; when it has taken
enough it is stopped, and nothing of it is kept: no record, no process, no stream. The user's own models and random
numbers are in another process, so nothing here touches them.

CPU time is counted, and the time in the user's own code less the waits for a core, so it matters little
that all run at once. The memory is the largest that belonged to the process alone, short peaks between two looks
included, as the system saw it after real steps with the optimizer's state in it: no estimate. Pages that a trial
shares with the fork server it came from are not its own.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tsnb.errors import TsnbError
from tsnb.experiments import trials as board
from tsnb.experiments.board import launch
from tsnb.experiments.functions import plan_function
from tsnb.experiments.plan import LONGEST, epochs_of, name_of, trial_name
from tsnb.experiments.trial import ENDED, Trial
from tsnb.machine import clocks
from tsnb.machine.processes import held
from tsnb.planning.oversize import died
from tsnb.producer import serve
from tsnb.records.selection import delete
from tsnb.stalling.measuring import undisturbed
from tsnb.telemetry.readings import ConsumerReading, StreamReading

__all__ = [
    "PREFIX",
    "Cost",
    "Profiled",
    "Silent",
    "TrialWish",
    "forget",
    "in_waves",
    "next_wave",
    "profile",
    "profile_name",
    "starter",
    "wanted",
]

PREFIX = "plan-"
"""What the names of trials begin with while they are profiled."""

BATCHES = 24
"""A trial is stopped when it has taken so many..."""
SKIP = 4
"""... of which the first ones are not counted: those steps allocate, tune and compile."""
LEAST = 3
"""Batches that have to be counted."""
LOOK_S = 0.02
HELD_S = 0.1
"""A trial's memory is asked for this often: the kernel walks all its pages each time."""
OFFERED = 900
"""Of 1000: how much rather than other processes the system kills a trial that is only profiled."""
SAFE = 2.0
"""A trial that is not profiled yet is taken to need so many times the memory of the largest that is."""
MOST = 16
"""So many are profiled at once at most."""
LIMIT_S = 120.0
"""A trial that has not asked for enough batches by then is not profiled."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class TrialWish:
    """A trial that is to be planned."""

    name: str
    """Its name."""
    fn: Callable[..., Any] = field(repr=False)
    """What it runs."""
    params: Mapping[str, Any]
    """The function's arguments, by name."""
    epochs: float
    """That it takes."""


@dataclass(frozen=True)
class Cost:
    """What a sample costs a trial."""

    step_s: float
    """Seconds in its own code, with a core."""
    cpu_s: float
    """CPU seconds of its process, taking the sample included."""
    memory_bytes: float
    """The largest that was its own."""
    start_s: float
    """From its start to its first batch, less the waits for a core."""
    batches: int
    """So many were counted."""
    off: float
    """How far apart the first half and the second were, as a share."""
    start_cpu_s: float = 0.0
    """CPU seconds of its start."""


def wanted(given: Any, epochs: float | None) -> list[TrialWish]:
    """Read the trials to plan.

    Args:
        given: Functions, or pairs of a function and its parameters; with a mapping under the trials' names.
        epochs: That each takes, where its parameters do not say so by "epochs".

    Raises:
        TypeError: It is something else.
        ValueError: No trial was given, or two have one name.
    """
    named = given.items() if isinstance(given, Mapping) else ((None, each) for each in _each(given))
    found = []
    for name, each in named:
        fn, params = each if isinstance(each, tuple) and len(each) == 2 else (each, {})
        if not callable(fn) or not isinstance(params, Mapping):
            raise TypeError(
                "tsnb.plan takes functions as tsnb.run does, each alone or with its parameters: "
                'tsnb.plan({"small": (train, {"width": 32}), "large": (train, {"width": 512})}, loader=loader).'
            )
        own = name_of(fn)
        long = epochs if epochs is not None else params.get("epochs", epochs_of(fn, params) or 1)
        if not isinstance(long, (int, float)) or not long > 0:
            raise ValueError(f"epochs={long!r}: give the number of epochs that a trial takes.")
        found.append(TrialWish(name or trial_name(own, params), fn, dict(params), float(long)))
    names = [each.name for each in found]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            "tsnb.plan needs at least one trial, each with a name of its own: give a mapping of names to functions."
        )
    return found


def _each(given: Any) -> Iterable[Any]:
    return given if isinstance(given, Iterable) else [given]


class Silent:
    """An outlet that shows nothing."""

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Drop it."""


@dataclass
class _TrialClocks:
    """The clocks of a trial at one moment."""

    batches: int
    samples: int
    computing_s: float
    cpu_s: float
    no_core_s: float
    at_s: float
    """When, by the monotonic clock."""

    def since(self, before: _TrialClocks, threads: int) -> tuple[float, float]:
        """Return seconds of its own code, and of CPU, a sample."""
        samples = max(1, self.samples - before.samples)
        own_s, cpu_s = self.computing_s - before.computing_s, self.cpu_s - before.cpu_s
        # some of the time without a core was before a batch came: that is not its own code's
        step_s = min(own_s, max(own_s - (self.no_core_s - before.no_core_s), cpu_s / threads))
        return step_s / samples, cpu_s / samples


@dataclass
class Profiled:
    """A trial while it is profiled."""

    trial: Trial
    """The real one, under a name of its own."""
    threads: int
    """Torch threads that it computes with."""
    last: ConsumerReading | None = None
    """What the stream said of it last."""
    began_s: float | None = None
    """When its process was there, by the monotonic clock."""
    first_s: float | None = None
    """When it had its first batch, likewise."""
    start_cpu_s: float = 0.0
    """CPU seconds until then."""
    no_core_s: float = 0.0
    """How long it waited for a core until then."""
    marks: list[_TrialClocks] = field(default_factory=list)
    """Its clocks whenever it had taken more batches."""
    memory_bytes: float = 0.0
    """The largest that was its own."""
    held_bytes: float = 0.0
    """What is its own now."""
    least_s: float = 0.0
    """Its batches are counted for so long at least."""
    asked_s: float = 0.0
    """When its memory was asked for last, by the monotonic clock."""

    def look(self, reading: ConsumerReading | None) -> None:
        """Read its clocks, if it has taken batches since."""
        pid = self.trial.pid
        if pid is None:
            return
        now_s = time.monotonic()
        if self.began_s is None:
            self.began_s = now_s
            _offer(pid)
        if now_s - self.asked_s >= HELD_S:
            own, self.asked_s = held(pid), now_s
            self.held_bytes = own.own_bytes if own else 0.0
            self.memory_bytes = max(self.memory_bytes, own.most_bytes if own else 0.0)
        if reading is None or not reading.batches:
            return
        self.last = reading
        cpu_s = clocks.cpu_s(pid)
        if self.first_s is None:
            self.first_s = now_s
            self.start_cpu_s, self.no_core_s = cpu_s or 0.0, clocks.waited_s(pid)
        late = not self.marks or reading.batches > self.marks[-1].batches
        if cpu_s is not None and reading.batches > SKIP and late:
            no_core_s = clocks.waited_s(pid)
            mark = _TrialClocks(
                reading.batches, reading.samples, reading.computing_s, cpu_s, no_core_s, time.monotonic()
            )
            self.marks.append(mark)

    @property
    def done(self) -> bool:
        """Whether enough was seen, or no more will be."""
        if self.trial.state in ENDED:
            return True
        if not self.marks:
            return False
        first, last = self.marks[0], self.marks[-1]
        return last.batches - first.batches >= BATCHES - SKIP and last.at_s - first.at_s >= self.least_s

    @property
    def per_s(self) -> tuple[float, float]:
        """Samples/s on the stream by the clock on the wall, and how far off that may be, as a share; 0: not seen."""
        if len(self.marks) < LEAST:
            return 0.0, 0.0
        first, middle, last = self.marks[0], self.marks[len(self.marks) // 2], self.marks[-1]

        def pace(a: _TrialClocks, b: _TrialClocks) -> float:
            return (b.samples - a.samples) / max(1e-9, b.at_s - a.at_s)

        whole = pace(first, last)
        return whole, min(1.0, abs(pace(first, middle) - pace(middle, last)) / max(1e-9, 2 * whole))

    @property
    def failed(self) -> bool:
        """Whether its code raised, or its process died."""
        return self.trial.state in {"failed", "lost"}

    def cost(self) -> Cost:
        """Return what was found.

        Raises:
            TsnbError: It took too few batches, or failed.
        """
        name = self.trial.name.removeprefix(PREFIX)
        if self.trial.state == "lost":
            raise TsnbError(
                f"nothing can be planned: {died(f'the process of trial {name!r}', self.memory_bytes)}."
            )
        if self.failed:
            said = self.trial.logs().strip().splitlines()
            raise TsnbError(
                f"trial {name!r} failed while it was profiled, so nothing can be planned"
                f"{': ' + said[-1] if said else ''}. Run it alone, by tsnb.run, to see all of it."
            )
        first, last = (self.marks[0], self.marks[-1]) if self.marks else (None, None)
        if first is None or last is None or last.batches - first.batches < LEAST:
            least, took = SKIP + LEAST + 1, self.last.batches if self.last else 0
            why = f"took too few batches to be profiled; it needs {least} at least, from tsnb.attach()"
            if took >= least:
                why = f"was over too soon to be profiled: its {took} batches passed between two looks at it"
            raise TsnbError(f"trial {name!r} {why}: give it smaller batches or more epochs.")
        step_s, cpu_s = last.since(first, self.threads)
        middle = self.marks[len(self.marks) // 2]
        off = 0.0
        if first.batches < middle.batches < last.batches and step_s:
            off = abs(middle.since(first, self.threads)[0] - last.since(middle, self.threads)[0]) / (
                2 * step_s
            )
        start_s = max(0.0, (self.first_s or 0.0) - (self.began_s or 0.0) - self.no_core_s)
        counted = last.batches - first.batches
        return Cost(step_s, cpu_s, self.memory_bytes, start_s, counted, min(1.0, off), self.start_cpu_s)


def next_wave(left: int, largest_bytes: float, memory_bytes: float) -> int:
    """Return how many trials may be profiled at once now, of whose memory nothing is known yet.

    Args:
        left: So many are not profiled yet.
        largest_bytes: The largest memory of those that are; 0: none is, and one is tried alone.
        memory_bytes: For all of them together.
    """
    if left <= 1 or largest_bytes <= 0:
        return min(1, left)
    return max(1, int(min(left, MOST, memory_bytes / (SAFE * largest_bytes))))


def profile(
    wanted: Iterable[TrialWish], loader: Any, *, threads: int = 1, memory_bytes: float = math.inf
) -> dict[str, Cost]:
    """Run trials for some batches each on one stream; return what a sample costs each, by name.

    The first one runs alone, then as many at once as fit the memory if each needs twice as much as the largest before.

    Args:
        wanted: The trials.
        loader: What they take batches of.
        threads: Torch threads of each.
        memory_bytes: For all that run at once.

    Raises:
        TsnbError: One failed, or took too few batches.
        Exception: As `tsnb.run` and `tsnb.serve` raise.
    """
    stream = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
    starts = {each.name: starter(each, stream, threads) for each in wanted}
    with undisturbed(loader), serve(loader, name=stream, rubber_band=0.0) as producer:
        found = in_waves(starts, producer.status, threads=threads, memory_bytes=memory_bytes, patient=False)
    return {name: each.cost() for name, each in found.items()}


def profile_name(name: str) -> str:
    """Return what a trial is called while it is profiled: the end of a long name is what tells it from others."""
    return PREFIX + name[-(LONGEST - len(PREFIX)) :].lstrip("-._")


def starter(each: TrialWish, stream: str, threads: int) -> Callable[[], Trial]:
    """Return what starts a trial on a stream as one that is only profiled."""

    def start() -> Trial:
        told = plan_function(
            each.fn, each.params, name=profile_name(each.name), producer=stream, threads=threads
        )
        return launch(told, Silent())

    return start


def in_waves(
    starts: Mapping[str, Callable[[], Trial]],
    look: Callable[[], StreamReading],
    *,
    threads: int,
    memory_bytes: float,
    patient: bool,
    least_s: float = 0.0,
    note: Callable[[Sequence[Profiled]], None] = lambda _: None,
) -> dict[str, Profiled]:
    """Run trials for some batches each, as many at once as fit; stop and forget them, and return what was seen.

    Args:
        starts: By name, what starts the trial under a name of its own.
        look: Gives a reading of the stream that they are on.
        threads: Torch threads of each.
        memory_bytes: For all of them together; 0: one after the other.
        patient: Whether it goes on when one could not be profiled.
        least_s: Each is watched for so long at least once it has begun.
        note: Is given those that run, whenever their memory has been looked at.

    Raises:
        TsnbError: One failed, or took too few batches; not where it is patient.
        Exception: As a start or a look raises.
    """
    seen: dict[str, Profiled] = {}
    left = list(starts)
    largest_bytes = 0.0
    try:
        while left:
            wave = left[: next_wave(len(left), largest_bytes, memory_bytes)]
            left = left[len(wave) :]
            together = []
            for name in wave:
                seen[name] = Profiled(starts[name](), threads, least_s=least_s)
                together.append(seen[name])
            _watch(together, look, note)
            largest_bytes = max(each.memory_bytes for each in seen.values())
            if not patient:
                for each in together:
                    each.cost()  # one that failed ends it all now
        return seen
    finally:
        for each in seen.values():
            forget(each.trial)


def _offer(pid: int) -> None:
    """Let the system, if it has to kill for want of memory, take a trial that is only profiled rather than another."""
    with contextlib.suppress(OSError):  # no /proc, or it has just ended
        Path(f"/proc/{pid}/oom_score_adj").write_text(f"{OFFERED}\n")


def forget(trial: Trial) -> None:
    """Stop a trial that was only profiled, and keep nothing of it."""
    board.drop(trial)
    delete(trial.name, all_runs=True)


def _watch(
    together: Sequence[Profiled],
    look: Callable[[], StreamReading],
    note: Callable[[Sequence[Profiled]], None],
) -> None:
    """Look at trials until each has taken enough batches, and stop it then."""
    deadline_s = time.monotonic() + LIMIT_S
    while not all(each.done for each in together) and time.monotonic() < deadline_s:
        readings = {consumer.name: consumer for consumer in look().consumers}
        for each in together:
            each.look(readings.get(each.trial.name))
            if each.done and each.trial.state not in ENDED:
                each.trial.stop()  # the others need not wait for it
        if not any(each.trial.state in ENDED for each in together):
            note(together)
        time.sleep(LOOK_S)
    for each in together:
        if each.trial.state not in ENDED:
            each.trial.stop()  # its memory is free for those that come
