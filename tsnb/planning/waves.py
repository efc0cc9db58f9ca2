"""Runs trials for some batches each, in waves that fit the memory: those of one wave begin together, behind a gate.

That is no sweep on the conductor's loop (`conducting`). A conductor waits for news: a number was logged, a trial has
ended, so the next one starts. Here nothing ends by itself and nobody tells anything: clocks of trials and of their
stream are read fifty times a second or more, and what they show ends a whole wave at once, all but one of it, or none.

And says before about how long it takes to measure loader and trials: the seconds that were asked for, and what starts
take on an ordinary machine. How long the user's own code takes before its first batch, and for some 20 of them, nobody
knows yet; so each line says that it may take longer.

    the loader       4 measurements with their starts, and half of one more of two loaders at once
    a plan           with each setting: each trial alone, the first for longer, and all of them together
    a planned sweep  with each setting: the first trial alone, then as many together as will run at once
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from tsnb.errors import TsnbError
from tsnb.experiments import trials as board
from tsnb.experiments.overview.board import stop_together
from tsnb.experiments.trial import ENDED, Trial
from tsnb.kernels.gate import Gate
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.outlets import outlet_here
from tsnb.planners.strategies import Strategy
from tsnb.planning.trial_costs import FIRST_LOOKS_S, LIMIT_S, LOOK_S, Profiled
from tsnb.telemetry.readings import ConsumerReading, StreamReading

__all__ = [
    "LONGER",
    "MOST",
    "SOON_S",
    "ProfiledGroup",
    "Start",
    "Waves",
    "about",
    "largest_bytes",
    "loader_s",
    "next_wave",
    "profiled_s",
    "say",
    "settings_text",
    "together",
    "trials_text",
    "waves_s",
]

SAFE = 2.0
"""A trial that is not profiled yet is taken to need so many times the memory of the largest that is."""
MOST = 16
"""So many are profiled at once at most."""
SOON_S = 2.0
"""Where a start takes no longer, each trial is seen alone, too, before all run together: it starts twice for that."""
ALONE_S = 0.5
"""For so long, at most; the first one as long as was asked for."""
GATE_S = 60.0
"""Those that are profiled together wait so long for one that takes longer before its first batch."""

SILENT_S = 10.0
"""After so long it is said who has not taken a batch yet."""

STILL_BATCHES = 5
"""The one that goes on alone is given up if it takes no batch for as long as so many took it beside the others..."""
STILL_S = 2.0
"""... and as it took to start, and so many seconds: a stream has to begin another epoch now and then."""

START_S = 1.0
"""From asking for a trial to its first batch, where its own code costs nothing."""
SERVED_S = 1.0
"""Beginning and ending the streams on which the loader is measured."""
SEEN_S = 0.5
"""Some 20 batches that take no time."""


LONGER = "longer if a trial starts slowly or its batches take long"
"""What is behind each time."""

Start = Callable[[Path | None], Trial]
"""Starts a trial, behind a gate if there is one."""


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


def largest_bytes(seen: Mapping[str, Profiled]) -> float:
    """Return the memory of the largest of some trials; 0: there is none."""
    return max((each.memory_bytes for each in seen.values()), default=0.0)


@dataclass(frozen=True)
class Waves:
    """Runs trials for some batches each, as many at once as fit; stops and forgets them, and returns what was seen."""

    look: Callable[[], StreamReading]
    """Gives a reading of the stream that they are on."""
    threads: int
    """Torch threads of each."""
    memory_bytes: float = math.inf
    """For all of them together; 0: one after the other."""
    _: KW_ONLY
    least_s: float = 0.0
    """Each is watched for so long at least once it has begun."""
    most: int | None = None
    """So many run at once at most; None: `MOST`. With it the first, if it ran alone, is seen again among others."""
    note: Callable[[Sequence[Profiled]], None] = lambda _: None
    """Is given those that run, whenever their memory has been looked at."""
    refuse: Callable[[str, Profiled], None] = lambda *_: None
    """Is given each trial and its name when it has been seen, and raises where the others need not be."""
    still_s: float = math.inf
    """They are given up if none takes a batch for so long."""

    def run(
        self,
        starts: Mapping[str, Start],
        size_bytes: float = 0.0,
        *,
        seen_alone: Collection[str] | None = None,
    ) -> dict[str, Profiled]:
        """Run trials; those that run at once begin together, with the same batch.

        Args:
            starts: By name, what starts the trial under a name of its own.
            size_bytes: The memory of the largest one that has been seen before; 0: none has, so the first runs alone.
            seen_alone: The one with the longest steps of several is seen by itself, too, in the end, but for these,
                which have been; None: none is.

        Raises:
            Exception: As a start, a look or a refusal raises.
        """
        seen: dict[str, Profiled] = {}
        left = list(starts)
        while left:
            wave = left[: next_wave(len(left), size_bytes, self.memory_bytes, self.most)]
            again = self.most is not None and not seen and len(wave) == 1 < min(self.most, len(left))
            left = left[0 if again else len(wave) :]
            with together({name: starts[name] for name in wave}, self.threads, self.least_s) as group:
                self._watch(group, self.still_s)
                if seen_alone is not None and len(wave) > 1:
                    self._leave_longest(group, seen_alone)
                _stop(group.trials.values())
                seen |= group.trials
                for name, each in group.trials.items():
                    self.refuse(name, each)
            size_bytes = max(size_bytes, largest_bytes(seen))
        return seen

    def holds(self, starts: Mapping[str, Start], seen: Mapping[str, Profiled]) -> bool:
        """Return whether several trials may run all at once, as large as those that have been seen."""
        return 1 < len(starts) == next_wave(len(starts), largest_bytes(seen), self.memory_bytes, self.most)

    def each_alone(self, starts: Mapping[str, Start]) -> tuple[dict[str, Profiled], dict[str, Profiled]]:
        """Run trials one after the other; return those of which enough was seen, and those whose process died.

        One that stands still, or fails, may need the others (a rank, its peers): it is in neither.

        Args:
            starts: As `run` takes them.
        """
        least_s, still_s = min(self.least_s, ALONE_S), SOON_S + STILL_S
        each = replace(self, memory_bytes=0.0, least_s=least_s, still_s=still_s, refuse=lambda *_: None)
        seen, lost = dict[str, Profiled](), dict[str, Profiled]()
        for name, one in each.run(starts).items():
            with contextlib.suppress(TsnbError):
                one.cost()
                seen[name] = one
            if one.trial.state == "crashed":
                lost[name] = one
        return seen, lost

    def again_alone(self, starts: Mapping[str, Start], seen: Mapping[str, Profiled]) -> dict[str, Profiled]:
        """Run those trials once more, each alone, that died beside others; return what was seen of them.

        The system may have killed another one than the one that was too large.

        Args:
            starts: As `run` took them.
            seen: What it returned.
        """
        died = {name: start for name, start in starts.items() if seen[name].trial.state == "crashed"}
        alone = replace(self, memory_bytes=0.0, most=None, note=lambda _: None, refuse=lambda *_: None)
        return alone.run(died)

    def _watch(self, group: ProfiledGroup, still_s: float) -> bool:
        """Look at trials until each has taken enough, or none has taken a batch for so long; return which it was."""
        trials = list(group.trials.values())
        moved_s = time.monotonic()
        deadline_s, taken = moved_s + LIMIT_S, _taken(trials)
        while not all(each.done for each in trials) and time.monotonic() < deadline_s:
            group.look({consumer.name: consumer for consumer in self.look().consumers})
            if _taken(trials) > taken:
                moved_s, taken = time.monotonic(), _taken(trials)
            elif time.monotonic() - moved_s > still_s:
                return False
            if not group.over:
                self.note(trials)
            time.sleep(FIRST_LOOKS_S if any(each.begins for each in trials) else LOOK_S)
        return True

    def _leave_longest(self, group: ProfiledGroup, seen_alone: Collection[str]) -> None:
        """Stop all trials but the one whose steps take longest, and see that by itself; not where it ends before."""
        costs = {}
        for name, each in group.trials.items():
            with contextlib.suppress(TsnbError):
                costs[name] = each.cost()
        name = max(costs, key=lambda each: max(costs[each].step_s, costs[each].cpu_s), default="")
        if not name or name in seen_alone:
            return
        longest = group.trials[name]
        longest.beside_others = costs[name]
        _stop(each for each in group.trials.values() if each is not longest)
        rest = ProfiledGroup(None)
        rest.trials[name] = alone = longest.going_on()
        if self._watch(rest, STILL_S + STILL_BATCHES * longest.batch_s + costs[name].start_s):
            with contextlib.suppress(TsnbError):
                longest.by_itself = alone.cost()
        if longest.by_itself is None and longest.trial.state != "done":
            say(f"{name}: takes no batches without the other trials, so the plan uses its cost next to them")


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
        to_do = (
            "requested one and waits for the stream" if asked else "to take its batches from tsnb.attach()"
        )
        why = f"{has} {to_do}"
        say(
            f"{' and '.join(late)}: no batch yet after {SILENT_S:.0f} s, {why}. Ctrl-C ends this, otherwise "
            f"it ends after {LIMIT_S:.0f} s"
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


def _taken(trials: Iterable[Profiled]) -> int:
    """Return how many batches trials have taken, all together."""
    return sum(each.last.batches for each in trials if each.last)


def _stop(trials: Iterable[Profiled]) -> None:
    # their memory is free for those that come
    stop_together(each.trial for each in trials if each.trial.state not in ENDED)


def say(line: str) -> None:
    """Show a line under the running cell, or in the terminal.

    Args:
        line: Without an end.
    """
    outlet_here("profile").publish("stream", {"name": "stdout", "text": f"{line}\n"})


def loader_s(seconds: float, workers: int, *, cold: bool) -> float:
    """Return about how many seconds it takes to measure a loader for a plan.

    Args:
        seconds: Of each measurement.
        workers: Of the loader: without any, two of it at once are not tried.
        cold: Whether the disk is measured, too.
    """
    return SERVED_S + seconds * (4.0 + (1.5 if workers else 0.0) + (1.0 if cold else 0.0))


def profiled_s(trials: int, settings: int, seconds: float) -> float:
    """Return about how many seconds it takes to profile trials for a plan.

    Args:
        trials: So many.
        settings: So many strategies, each with which they are profiled.
        seconds: Each is watched for so long.
    """
    each_s = START_S + max(SEEN_S, seconds)
    return settings * (each_s if trials == 1 else 2 * each_s + (trials - 1) * (START_S + SEEN_S))


def waves_s(trials: int, settings: int, at_once: int) -> float:
    """Return about how many seconds it takes to profile the trials of a planned sweep.

    Args:
        trials: So many are profiled.
        settings: So many strategies, each with which they are profiled.
        at_once: So many of them together.
    """
    waves = 1 if trials == 1 else 1 + math.ceil(trials / max(1, at_once))
    return settings * waves * (START_S + SEEN_S)


def about(seconds: float) -> str:
    """Return a time that nobody knows well: "5 s", "25 s", "3 min".

    Args:
        seconds: The time.
    """
    if seconds < 90:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    return f"about {round(seconds / 60)} min"


def trials_text(number: int) -> str:
    """Return a number of trials in words: "1 trial", "3 trials"."""
    return f"{number} trial{'s' * (number != 1)}"


def settings_text(strategies: Sequence[Strategy]) -> str:
    """Return with what each trial is profiled, to stand behind their number; empty where there is no choice.

    Args:
        strategies: With which they are profiled.
    """
    return f", each with {' and with '.join(map(str, strategies))}" if len(strategies) > 1 else ""
