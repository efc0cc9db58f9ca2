"""Runs every trial for some batches on one stream, in waves that fit the memory, and counts what a sample costs each.

A trial is run as `tsnb.run` runs it, in a kernel of its own, under another name and without output; when it has taken
enough it is stopped, and nothing of it is kept: no record, no process, no stream. The user's own models and random
numbers are in another process, so nothing here touches them.

The first one runs alone, since nothing is known of its memory; then all that fit, the first once more, begin together
behind a gate and take the same batches; then all but the one with the longest steps are stopped, and it goes on alone.
So two have been seen alone and beside the others, which tells how much longer a step takes in a crowd: of small steps
and of the longest; and the pace of all of them has been seen on one stream. Where the first is the longest it has been
seen alone; one that takes no batch without the others (a rank waits for its peers) is planned by what it cost beside
them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tsnb.config import PROFILED
from tsnb.errors import TsnbError
from tsnb.experiments import trials as board
from tsnb.experiments.board import launch, stop_together
from tsnb.experiments.plan import LONGEST
from tsnb.experiments.trial import ENDED, Trial
from tsnb.kernels.gate import Gate
from tsnb.kernels.hub import the_hub
from tsnb.machine.memory import free_memory
from tsnb.planning.progress import say
from tsnb.planning.trial_costs import LIMIT_S, LOOK_S, Profile, Profiled, joined
from tsnb.planning.wishes import TrialWish
from tsnb.producer import serve
from tsnb.stalling.random_numbers import undisturbed
from tsnb.telemetry.readings import ConsumerReading, StreamReading

__all__ = [
    "MOST",
    "FreeMemory",
    "Silent",
    "Start",
    "again_alone",
    "in_waves",
    "next_wave",
    "profile",
    "profile_name",
    "starter",
    "together",
]

KEPT = 0.05
"""This share of what is free is left to everything else."""

SAFE = 2.0
"""A trial that is not profiled yet is taken to need so many times the memory of the largest that is."""
MOST = 16
"""So many are profiled at once at most."""
GATE_S = 60.0
"""Those that are profiled together wait so long for one that takes longer before its first batch."""

SILENT_S = 10.0
"""After so long it is said who has not taken a batch yet."""

STILL_BATCHES = 5
"""The one that goes on alone is given up if it takes no batch for as long as so many took it beside the others..."""
STILL_S = 2.0
"""... and as it took to start, and so many seconds: a stream has to begin another epoch now and then."""

Start = Callable[[Path | None], Trial]
"""Starts a trial, behind a gate if there is one."""

_numbers = itertools.count(1)


class Silent:
    """An outlet that shows nothing."""

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Drop it."""


def next_wave(left: int, largest_bytes: float, memory_bytes: float, most: int | None = None) -> int:
    """Return how many trials may be profiled at once now, of whose memory nothing is known yet.

    Args:
        left: So many are not profiled yet.
        largest_bytes: The largest memory of those that are; 0: none is, and one is tried alone.
        memory_bytes: For all of them together.
        most: So many at once at most; None: `MOST`.
    """
    if left <= 1 or largest_bytes <= 0:
        return min(1, left)
    return max(1, int(min(left, most or MOST, MOST, memory_bytes / (SAFE * largest_bytes))))


class FreeMemory:
    """What is free for trials: looked at while they run, what they hold themselves added.

    Before the first one runs it cannot be known: the fork server of all trials is not there yet, and what the stream
    holds has not been touched.
    """

    def __init__(self) -> None:
        self.where = "that is free"
        self._seen: list[float] = []

    def note(self, trials: Sequence[Profiled]) -> None:
        """Note what is free now."""
        free = free_memory()
        if free is not None:
            self._seen.append(free.size + sum(each.held_bytes for each in trials))
            self.where = free.where

    @property
    def bytes(self) -> float:
        """For all trials together; infinite where the system does not tell."""
        if not self._seen:
            return math.inf
        few = sorted(self._seen)
        return few[len(few) // 10] * (1 - KEPT)


def profile(
    wanted: Iterable[TrialWish],
    loader: Any,
    *,
    threads: int = 1,
    memory_bytes: float = math.inf,
    least_s: float = 0.0,
    patient: bool = False,
    note: Callable[[Sequence[Profiled]], None] = lambda _: None,
) -> Profile:
    """Run trials for some batches each on one stream; return what a sample costs each.

    The first one runs alone, then all of them together, if they fit the memory at twice as much each as the first
    took; else the others as many at once as fit.

    Args:
        wanted: The trials.
        loader: What they take batches of.
        threads: Torch threads of each.
        memory_bytes: For all that run at once.
        least_s: Each is watched for so long at least once it has begun.
        patient: Whether it goes on when one failed or its process died: the profile says so then.
        note: As in `in_waves`.

    Raises:
        TsnbError: One failed where it is not patient, or took too few batches.
        Exception: As `tsnb.run` and `tsnb.serve` raise.
    """
    stream = f"{PROFILED}{os.getpid()}-{next(_numbers)}"
    starts = {each.name: starter(each, stream, threads) for each in wanted}
    first = next(iter(starts))
    with undisturbed(loader), serve(loader, name=stream, rubber_band=0.0) as producer:

        def run(some: Mapping[str, Start], largest_bytes: float) -> dict[str, Profiled]:
            return in_waves(
                some,
                producer.status,
                threads=threads,
                memory_bytes=memory_bytes,
                patient=patient,
                least_s=least_s,
                largest_bytes=largest_bytes,
                note=note,
                seen_alone={first},
            )

        alone = run({first: starts[first]}, 0.0)[first]
        largest_bytes = alone.memory_bytes
        whole = len(starts) > 1 and next_wave(len(starts), largest_bytes, memory_bytes) == len(starts)
        others = starts if whole else {name: start for name, start in starts.items() if name != first}
        seen = {first: alone} | run(others, largest_bytes)
        if patient and len(others) > 1:
            seen |= again_alone(others, seen, producer.status, threads, least_s)
    costs, failed = {}, {}
    for name, each in seen.items():
        try:
            costs[name] = each.cost()
        except TsnbError:
            if not (patient and each.failed):
                raise
            failed[name] = each.how_it_failed(alone=False)
    if failed:
        return Profile(costs, failed=failed)
    by_itself = {name: each.by_itself for name, each in seen.items() if each.by_itself is not None}
    return joined(by_itself | {first: alone.cost()}, costs, seen, whole=whole)


def profile_name(name: str) -> str:
    """Return what a trial is called while it is profiled: the end of a long name is what tells it from others."""
    mine = f"{PROFILED}{os.getpid()}-{next(_numbers)}-"  # another plan may profile a trial of that name now
    return mine + name[-(LONGEST - len(mine)) :].lstrip("-._")


def starter(each: TrialWish, stream: str, threads: int) -> Start:
    """Return what starts a trial on a stream as one that is only profiled, behind a gate if it is given one."""

    def start(gate: Path | None) -> Trial:
        return launch(each.planned(profile_name(each.name), stream, threads, gate), Silent())

    return start


def in_waves(
    starts: Mapping[str, Start],
    look: Callable[[], StreamReading],
    *,
    threads: int,
    memory_bytes: float,
    patient: bool,
    least_s: float = 0.0,
    largest_bytes: float = 0.0,
    most: int | None = None,
    note: Callable[[Sequence[Profiled]], None] = lambda _: None,
    seen_alone: Collection[str] | None = None,
    refuse: Callable[[str, Profiled], None] = lambda *_: None,
) -> dict[str, Profiled]:
    """Run trials for some batches each, as many at once as fit; stop and forget them, and return what was seen.

    Those that run at once begin together, with the same batch.

    Args:
        starts: By name, what starts the trial under a name of its own.
        look: Gives a reading of the stream that they are on.
        threads: Torch threads of each.
        memory_bytes: For all of them together; 0: one after the other.
        patient: Whether it goes on when one could not be profiled.
        least_s: Each is watched for so long at least once it has begun.
        largest_bytes: The memory of the largest one that has been seen before; 0: none has, so the first runs alone.
        most: So many run at once at most; None: `MOST`. With it the first, if it ran alone, is seen again among others.
        note: Is given those that run, whenever their memory has been looked at.
        seen_alone: The one with the longest steps of several is seen by itself, too, in the end, but for these, which
            have been; None: none is.
        refuse: Is given each trial and its name when it has been seen, and raises where the others need not be.

    Raises:
        TsnbError: One failed, or took too few batches; not where it is patient.
        Exception: As a start, a look or a refusal raises.
    """
    seen: dict[str, Profiled] = {}
    left = list(starts)
    while left:
        wave = left[: next_wave(len(left), largest_bytes, memory_bytes, most)]
        again = most is not None and not seen and len(wave) == 1 < min(most, len(left))
        left = left[0 if again else len(wave) :]
        with together({name: starts[name] for name in wave}, threads, least_s) as group:
            _watch(group, look, note)
            if seen_alone is not None and len(wave) > 1:
                _leave_longest(group, look, note, seen_alone)
            _stop(group.trials.values())
            seen |= group.trials
            for name, each in group.trials.items():
                refuse(name, each)
                if not patient:
                    each.cost()  # one that failed ends it all now
        largest_bytes = max(largest_bytes, *(each.memory_bytes for each in seen.values()))
    return seen


def again_alone(
    starts: Mapping[str, Start],
    seen: Mapping[str, Profiled],
    look: Callable[[], StreamReading],
    threads: int,
    least_s: float = 0.0,
) -> dict[str, Profiled]:
    """Run those trials once more, each alone, that died beside others; return what was seen of them.

    The system may have killed another one than the one that was too large.

    Args:
        starts: As `in_waves` took them.
        seen: What it returned.
        look: As it takes it.
        threads: Likewise.
        least_s: Likewise.
    """
    died = {name: start for name, start in starts.items() if seen[name].trial.state == "lost"}
    return in_waves(died, look, threads=threads, memory_bytes=0.0, patient=True, least_s=least_s)


def _forget(trial: Trial) -> None:
    """Stop a trial that was only profiled, and keep nothing of it: it has no record, and its log goes with it."""
    board.drop(trial)
    shutil.rmtree(trial.life.log_path.parent.parent, ignore_errors=True)


class ProfiledGroup:
    """Trials that are profiled together: they begin when all have asked for their first batch.

    Attributes:
        trials: They, by name.

    Args:
        gate: Behind which they wait; None: there is only one.
    """

    def __init__(self, gate: Gate | None) -> None:
        self.trials: dict[str, Profiled] = {}
        self._gate = gate
        self._tell_s = time.monotonic() + SILENT_S

    @property
    def over(self) -> bool:
        """Whether one of them has ended."""
        return any(each.trial.state in ENDED for each in self.trials.values())

    @property
    def late(self) -> list[str]:
        """Those without a batch that have not asked for one; if all have asked, and wait for the loader, these."""
        none = {n: each for n, each in self.trials.items() if not each.last and each.trial.state not in ENDED}
        return [name for name, each in none.items() if not each.asking_s] or list(none)

    def look(self, readings: Mapping[str, ConsumerReading]) -> None:
        """Read the clocks of all; open the gate when all are there, or one has let the others wait for too long."""
        for name, each in self.trials.items():
            each.look(readings.get(each.trial.name))
            if self._gate is not None and (each.asking_s or each.trial.state in ENDED):
                self._gate.arrived(name)
        first_s = min((each.asking_s for each in self.trials.values() if each.asking_s), default=math.inf)
        if self._gate is not None and time.monotonic() - first_s > GATE_S:
            self._gate.lapse()
        if self._gate is None or not self._gate.shut:
            for each in self.trials.values():
                each.opened_s = each.opened_s or time.monotonic()
        self._tell()

    def _tell(self) -> None:
        """Say once who has not taken a batch, when that takes long: nobody else says why nothing goes on."""
        if time.monotonic() < self._tell_s or not (late := self.late):
            return
        self._tell_s = math.inf
        has = "each has" if len(late) > 1 else "it has"
        asked = all(self.trials[name].asking_s for name in late)
        why = f"{has} {'asked for one and waits for the stream' if asked else 'to take them from tsnb.attach()'}"
        say(
            f"{' and '.join(late)}: no batch yet after {SILENT_S:.0f} s, {why}; Ctrl-C ends this, else it ends after "
            f"{LIMIT_S:.0f} s"
        )


@contextlib.contextmanager
def together(starts: Mapping[str, Start], threads: int, least_s: float = 0.0) -> Iterator[ProfiledGroup]:
    """Start trials that begin with the same batch; stop and forget them in the end.

    Args:
        starts: By name, what starts the trial under a name of its own.
        threads: Torch threads of each.
        least_s: Each is watched for so long at least once it has begun.
    """
    gate = Gate(the_hub().new_path("gate"), starts) if len(starts) > 1 else None
    group = ProfiledGroup(gate)
    try:
        for name, start in starts.items():
            called_s = time.monotonic()
            trial = start(gate.path if gate else None)
            group.trials[name] = Profiled(trial, threads, called_s=called_s, least_s=least_s)
        yield group
    finally:
        if gate is not None:
            gate.open()
        _stop(group.trials.values())
        for each in group.trials.values():
            _forget(each.trial)


def _watch(
    group: ProfiledGroup,
    look: Callable[[], StreamReading],
    note: Callable[[Sequence[Profiled]], None],
    still_s: float = math.inf,
) -> bool:
    """Look at trials until each has taken enough batches, or none has taken one for so long; return which it was."""
    trials = list(group.trials.values())
    moved_s = time.monotonic()
    deadline_s, taken = moved_s + LIMIT_S, _taken(trials)
    while not all(each.done for each in trials) and time.monotonic() < deadline_s:
        group.look({consumer.name: consumer for consumer in look().consumers})
        if _taken(trials) > taken:
            moved_s, taken = time.monotonic(), _taken(trials)
        elif time.monotonic() - moved_s > still_s:
            return False
        if not group.over:
            note(trials)
        time.sleep(LOOK_S)
    return True


def _taken(trials: Iterable[Profiled]) -> int:
    """Return how many batches trials have taken, all together."""
    return sum(each.last.batches for each in trials if each.last)


def _leave_longest(
    group: ProfiledGroup,
    look: Callable[[], StreamReading],
    note: Callable[[Sequence[Profiled]], None],
    seen_alone: Collection[str],
) -> None:
    """Stop all trials but the one whose steps take longest, and see that one by itself; not where it ends before."""
    costs = {}
    for name, each in group.trials.items():
        with contextlib.suppress(TsnbError):
            costs[name] = each.cost()
    if not costs:
        return
    name = max(costs, key=lambda each: max(costs[each].step_s, costs[each].cpu_s))
    if name in seen_alone:
        return
    longest = group.trials[name]
    longest.beside_others = costs[name]
    _stop(each for each in group.trials.values() if each is not longest)
    rest = ProfiledGroup(None)
    rest.trials[name] = alone = longest.going_on()
    if _watch(rest, look, note, STILL_S + STILL_BATCHES * longest.batch_s + costs[name].start_s):
        with contextlib.suppress(TsnbError):
            longest.by_itself = alone.cost()
    if longest.by_itself is None and longest.trial.state != "done":
        say(f"{name}: takes no batches without the others; planned by what it costs beside them")


def _stop(trials: Iterable[Profiled]) -> None:
    # their memory is free for those that come
    stop_together(each.trial for each in trials if each.trial.state not in ENDED)
