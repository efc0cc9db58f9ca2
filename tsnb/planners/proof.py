"""A bound that a solver proves: before it no order of some trials on one stream can have all done. Pure.

On one stream all trials that train go at one pace, r(S), which depends on which they are, S (`fluid`). Whatever the
order, each moment has such a set, so the seconds d(S) that each of them has in any schedule satisfy

    for each trial     sum of r(S) d(S) over the sets that it is in >= its samples

and the least sum of all d(S) under these is a bound of every makespan. Only sets that fit the memory, and that of the
GPUs, are there; one trial that is larger than all of it runs alone. Starts, waits for an epoch and files that are not
in memory yet make a schedule only longer, so of these no more than the first start is in it. What the bound allows and
no list can do: break a trial off and go on with it later.

`scipy.optimize.milp` solves it, where scipy is installed: 0.1 s for a dozen trials. Saturn (Nagrecha and Kumar 2023)
solves a mixed integer program for the order itself; here that is `scheduling.annealed`'s, and this says how good it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from tsnb.planners.fluid import Course, Job, Resources
from tsnb.planners.scheduling import first_batch_s, fit

__all__ = ["MOST", "proven_s"]

MOST = 12
"""Trials at most: so many have 4,095 sets."""


def proven_s(jobs: Sequence[Job], resources: Resources) -> float | None:
    """Return the seconds before which no order can have all trials done on one stream, as a solver proves it.

    Args:
        jobs: The trials.
        resources: What they have; nothing runs yet.

    Returns:
        It; None where scipy is not installed, there are more than `MOST` trials, or the solver finds none.
    """
    try:
        from scipy.optimize import LinearConstraint, milp
    except ImportError:
        return None
    if not jobs or len(jobs) > MOST:
        return None
    paces = _paces(jobs, replace(resources, loader=replace(resources.loader, disk=None)))
    # a row for each trial, a column for each set: the share of its samples that it takes there in a second
    shares = [
        [pace / max(job.samples, 1e-12) if at in some else 0.0 for some, pace in paces.items()]
        for at, job in enumerate(jobs)
    ]
    found = milp([1.0] * len(paces), constraints=LinearConstraint(shares, 1.0, math.inf))
    if not found.success:
        return None
    return float(found.fun) + first_batch_s(jobs, resources.loader)


def _paces(jobs: Sequence[Job], resources: Resources) -> dict[tuple[int, ...], float]:
    """Return samples/s of each set of trials that may run at once, by their places."""
    found = {}
    room_bytes = resources.memory_bytes - resources.loader.memory_bytes
    for number in range(1, len(jobs) + 1):
        for some in itertools.combinations(range(len(jobs)), number):
            mine = [jobs[at] for at in some]
            if number == 1 or fit(mine, room_bytes):
                found[some] = Course(replace(resources, running=mine), shared=True).paces()[0]
    return found
