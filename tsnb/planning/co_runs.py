"""Some trials run together for a moment: which groups, how fast each is there, and how many at once are worth it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tsnb.checks.devices import Devices
from tsnb.experiments.board import stop_together
from tsnb.experiments.trial import ENDED
from tsnb.planners.fluid import Job
from tsnb.planners.scheduling import fit_devices
from tsnb.planning.trial_costs import LEAST, LIMIT_S, LOOK_S, SKIP
from tsnb.planning.waves import ProfiledGroup, Start, together
from tsnb.telemetry.readings import StreamReading

__all__ = ["CoRun", "at_once", "co_runs", "gpu_advice", "groups"]

GROUP = 4
"""So many are run together at most to see how fast they are."""
WORTH = 0.03
"""Running more at once has to be better by this."""


@dataclass(frozen=True)
class CoRun:
    """Some trials that were run together for a moment."""

    names: tuple[str, ...]
    """Which."""
    per_s: Mapping[str, float]
    """Samples/s of each, by name."""
    seconds: float
    """How long they were watched."""

    def gain(self, alone_per_s: Mapping[str, float]) -> float:
        """Return how many times as fast they are done as one after the other, if each takes as many samples."""
        if not all(alone_per_s.get(name) and self.per_s.get(name) for name in self.names):
            return 0.0
        return sum(1 / alone_per_s[name] for name in self.names) * min(self.per_s.values())


def groups(
    names: Sequence[str],
    peaks: Mapping[str, float],
    memory_bytes: float,
    jobs: Mapping[str, Job] | None = None,
) -> list[tuple[str, ...]]:
    """Return groups of up to four that fit together, the largest trials first; trials that fit with none are left out.

    Args:
        names: The trials.
        peaks: Bytes of each, by name.
        memory_bytes: For all that run at once.
        jobs: What each takes of a GPU, by name; None: nothing.
    """

    def fit(group: Sequence[str]) -> bool:
        there = [jobs[each] for each in group] if jobs else []
        return sum(peaks[each] for each in group) <= memory_bytes and fit_devices(there)

    left = sorted(names, key=lambda name: -peaks[name])
    found = []
    while left:
        group = [left.pop(0)]
        for name in list(left):
            if len(group) < GROUP and fit([*group, name]):
                group.append(name)
                left.remove(name)
        if len(group) > 1:
            found.append(tuple(group))
    return found


def at_once(runs: Sequence[CoRun], alone_per_s: Mapping[str, float]) -> int | None:
    """Return how many may run at once, from what was measured; None: as many as fit.

    Args:
        runs: Groups of two to four.
        alone_per_s: Samples/s of each trial alone, by name.
    """
    gains: dict[int, list[float]] = {1: [1.0]}
    for each in runs:
        if gain := each.gain(alone_per_s):
            gains.setdefault(len(each.names), []).append(gain)
    middle = {number: statistics.median(values) for number, values in gains.items()}
    most = max(middle)
    better = [n for n, gain in middle.items() if gain > middle[most] * (1 + WORTH)]
    return max(better, key=middle.__getitem__) if better and most > 1 else None


def gpu_advice(jobs: Mapping[str, Job], look: Callable[[], Devices]) -> tuple[str, ...]:
    """Return how trials share a GPU where several compute on one; nothing where no two do.

    Args:
        jobs: The trials, by name.
        look: Looks at the machine.
    """
    on = [job.device for job in jobs.values() if job.device]
    return look().advice if len(set(on)) < len(on) else ()


def co_runs(
    starts: Mapping[str, Start], look: Callable[[], StreamReading], threads: int, seconds: float
) -> list[CoRun]:
    """Run a group, watch it; stop half of it, and watch the others, down to two. Nothing of them is kept.

    Args:
        starts: By name, what starts the trial under a name of its own.
        look: Gives a reading of the stream that they are on.
        threads: Torch threads of each.
        seconds: How long each group is watched.

    Raises:
        Exception: As a start or a look raises.
    """
    found = []
    with together(starts, threads) as group:
        going = list(group.trials)
        while len(going) > 1:
            run = _watched(group, going, look, seconds)
            if run is None:
                break
            found.append(run)
            going, leaving = going[: len(going) // 2], going[len(going) // 2 :]
            stop_together(group.trials[name].trial for name in leaving)
    return found


def _watched(
    whole: ProfiledGroup, names: Sequence[str], look: Callable[[], StreamReading], seconds: float
) -> CoRun | None:
    """Watch trials once all have taken some batches; None where one ends before there is something to see."""
    group = {name: whole.trials[name] for name in names}
    deadline_s = time.monotonic() + LIMIT_S
    first: dict[str, tuple[int, int]] = {}
    last: dict[str, tuple[int, int]] = {}
    began_s = now_s = time.monotonic()
    while now_s < deadline_s and not (first and now_s - began_s >= seconds):
        time.sleep(LOOK_S)
        readings = {consumer.name: consumer for consumer in look().consumers}
        whole.look(readings)
        now = {name: (reading.batches, reading.passed) for name, reading in readings.items()}
        here = {name: now.get(each.trial.name, (0, 0)) for name, each in group.items()}
        if any(each.trial.state in ENDED for each in group.values()):
            break
        now_s = time.monotonic()
        if first:
            last = here
        elif all(batches > SKIP for batches, _ in here.values()):
            first, began_s = here, now_s
    took_s = now_s - began_s
    if not last or took_s <= 0 or any(last[name][0] - first[name][0] < LEAST for name in group):
        return None
    return CoRun(tuple(group), {name: (last[name][1] - first[name][1]) / took_s for name in group}, took_s)
