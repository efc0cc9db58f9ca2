"""Runs every trial for some batches on one stream, in waves that fit the memory, and counts what a sample costs each.

A trial is run as `tsnb.run` runs it, in a kernel of its own, under another name and without output; when it has taken
enough it is stopped, and nothing of it is kept: no record, no process, no stream. The user's own models and random
numbers are in another process, so nothing here touches them.

The first one runs alone, since nothing is known of its memory, and where a start takes a moment so does each of the
others. Then all that fit begin together behind a gate and take the same batches: so each has been seen alone and
beside the others, which tells how much longer a step takes in a crowd, and all have been seen on one stream.

Where a start takes long, one more is seen alone: all but the one with the longest steps are stopped, and it goes on.
How much longer the others take in a crowd those two tell: one of small steps, say, and the one of the longest. One that
takes no batch without the others (a rank waits for its peers) is planned by what it cost beside them.

Each trial is profiled with each strategy. One that fails or dies with what is preferred is run with the next.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tsnb.config import PROFILED
from tsnb.errors import TsnbError
from tsnb.experiments.overview.board import launch
from tsnb.experiments.plan import LONGEST
from tsnb.experiments.trial import Trial
from tsnb.machine.memory import free_memory
from tsnb.planners.strategies import Strategy
from tsnb.planning.trial_costs import Profile, Profiled, joined
from tsnb.planning.waves import SOON_S, Start, Waves, largest_bytes
from tsnb.planning.wishes import TrialWish
from tsnb.serving import serve
from tsnb.stalling.measured_code import undisturbed

__all__ = ["FreeMemory", "Silent", "free_bytes", "profile", "profile_name", "profiled", "starter"]

KEPT = 0.05
"""This share of what is free is left to everything else."""

_numbers = itertools.count(1)


class Silent:
    """An outlet that shows nothing."""

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Drop it."""


def free_bytes() -> float:
    """Return the memory that is free now; infinite where the system does not tell."""
    free = free_memory()
    return math.inf if free is None else float(free.size)


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

    The first one runs alone, and each of the others where a start takes a moment (`SOON_S`). Then all of them run
    together, if they fit the memory at twice as much each as the largest took; else as many at once as fit.

    Args:
        wanted: The trials.
        loader: What they take batches of.
        threads: Torch threads of each.
        memory_bytes: For all that run at once.
        least_s: Each is watched for so long at least once it has begun.
        patient: Whether it goes on when one failed: the profile says so then, as of one whose process died.
        note: As `Waves` takes it.

    Raises:
        TsnbError: One failed where it is not patient, took too few batches, or the processes of all died.
        Exception: As `tsnb.run` and `tsnb.serve` raise.
    """
    stream = f"{PROFILED}{os.getpid()}-{next(_numbers)}"
    starts = {each.name: starter(each, stream, threads) for each in wanted}
    first = next(iter(starts))

    def refuse(_: str, each: Profiled) -> None:
        if not patient and each.trial.state != "crashed":
            each.cost()  # one that failed ends it all now

    # in step: a small trial would be over before a large one has begun
    with undisturbed(loader), serve(loader, name=stream, late_join=0.0, window=8) as producer:
        waves = Waves(producer.status, threads, memory_bytes, least_s=least_s, note=note, refuse=refuse)
        alone = waves.run({first: starts[first]})
        others = {name: start for name, start in starts.items() if name != first}
        lost = {name: each for name, each in alone.items() if each.trial.state == "crashed"}
        whole = not lost and waves.holds(starts, alone)
        if whole and alone[first].starts_within(SOON_S):
            seen_alone, lost = waves.each_alone(others)
            alone |= seen_alone
            others = {name: start for name, start in others.items() if name not in lost}
            whole = not lost and waves.holds(starts, alone)
        going = starts if whole else others
        seen = alone | waves.run(going, largest_bytes(alone), seen_alone=alone.keys()) | lost
        if len(going) > 1:
            seen |= waves.again_alone(going, seen)
    costs, failed, last = {}, {}, None
    for name, each in seen.items():
        try:
            costs[name] = each.cost()
        except TsnbError as error:
            if not (patient and each.failed) and each.trial.state != "crashed":
                raise
            failed[name], last = each.how_it_failed(alone=not patient), error
    if last is not None and not costs and not patient:
        raise last
    if failed:
        peaks = {name: seen[name].memory_bytes for name in failed if seen[name].trial.state == "crashed"}
        return Profile(costs, failed=failed, died_bytes=peaks)
    by_itself = {name: each.by_itself for name, each in seen.items() if each.by_itself is not None}
    return joined(by_itself | {name: each.cost() for name, each in alone.items()}, costs, seen, whole=whole)


def profiled(
    wanted: Sequence[TrialWish],
    to_try: Iterable[Strategy],
    loader: Any,
    *,
    memory_bytes: float,
    least_s: float,
    note: Callable[[Sequence[Profiled]], None],
) -> dict[Strategy, Profile]:
    """Run trials for some batches each with each strategy; return what a sample costs them.

    A profile lacks those whose process died, and, where the plan chooses values, those that failed; it says why.

    Args:
        wanted: The trials.
        to_try: The strategies, the preferred one first.
        loader: What they take batches of.
        memory_bytes: For all that run at once.
        least_s: Each is watched for so long at least once it has begun.
        note: Is given those that run, whenever their memory has been looked at.

    Raises:
        TsnbError: One failed, or took too few batches: with each value, where the plan chooses among several. The
            processes of all died.
        Exception: As `profile` raises.
    """
    found: dict[Strategy, Profile] = {}
    for strategy in to_try:
        failed = {
            name for other, seen in found.items() if other.values == strategy.values for name in seen.failed
        }
        several = [each.given(strategy.values) for each in wanted if each.name not in failed]
        if several:
            found[strategy] = profile(
                several,
                loader,
                threads=strategy.threads,
                memory_bytes=memory_bytes,
                least_s=least_s,
                patient=bool(strategy.values),
                note=note,
            )
    some = any(seen.costs for seen in found.values())
    for each in wanted:
        died = all(each.name in seen.died_bytes for seen in found.values() if each.name in seen.failed)
        if not any(each.name in seen.costs for seen in found.values()) and not (some and died):
            whys = {
                strategy: seen.failed[each.name]
                for strategy, seen in found.items()
                if each.name in seen.failed
            }
            with_each = "; ".join(f"with {strategy}: {why}" for strategy, why in whys.items())
            raise TsnbError(f"Trial {each.name!r} cannot be profiled with any value. {with_each}")
    return found


def profile_name(name: str) -> str:
    """Return what a trial is called while it is profiled: the end of a long name is what tells it from others."""
    mine = f"{PROFILED}{os.getpid()}-{next(_numbers)}-"  # another plan may profile a trial of that name now
    return mine + name[-(LONGEST - len(mine)) :].lstrip("-._")


def starter(each: TrialWish, stream: str, threads: int) -> Start:
    """Return what starts a trial on a stream as one that is only profiled, behind a gate if it is given one."""

    def start(gate: Path | None) -> Trial:
        return launch(each.planned(profile_name(each.name), stream, threads, gate), Silent())

    return start
