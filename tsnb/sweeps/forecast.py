"""The plan of a sweep of real trials: what they cost, measured on their stream; what it foretells, in words.

The decisions are `planned`'s; this gives it costs, the wall clock, the stream's counters and the clones that are there.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tsnb.conducting.conductor import Conductor
from tsnb.errors import TsnbError
from tsnb.experiments.overview.board import launch, trials
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.remaining import leavers
from tsnb.experiments.replanning import replanned
from tsnb.experiments.running.engine import ThisMachine, engine_of
from tsnb.experiments.trial import ENDED, Trial
from tsnb.machine.cores import available_cores
from tsnb.planners.strategies import in_each
from tsnb.planners.timeline import Span, Timeline, show
from tsnb.planning.conducting import drawn, told
from tsnb.planning.places import oversized
from tsnb.planning.profiling import Silent, profile_name
from tsnb.planning.served import ServedCosts, Twin, costs_on, samples_taken
from tsnb.planning.waves import LONGER, MOST, Start, about, settings_text, waves_s
from tsnb.planning.wishes import one_epoch_text, too_large
from tsnb.sweeps.plan_wish import PlanWish
from tsnb.sweeps.planned import Conditions, PlannedPlaces, late_line
from tsnb.telemetry.observer import status
from tsnb.telemetry.readings import PlanReading
from tsnb.telemetry.watching import planners, watch
from tsnb.text.words import clock_time, duration, interval

__all__ = ["follow_plan", "plan_places", "show_plan"]


PLACES_A_CORE = 2
"""So many trials a core are profiled at once where it is left to the plan how many run."""

BASIS = "some batches of each trial on the stream, and how fast those that run have gone since"
"""From what a planned sweep foretells."""


def plan_places(
    plan: TrialPlan,
    params: Mapping[str, Mapping[str, Any]],
    at_once: int | None,
    wish: PlanWish,
    say: Callable[[str], None],
) -> PlannedPlaces:
    """Profile the trials of a sweep on its stream; return the places that start them by plan, and say what it is.

    Args:
        plan: What the trials have in common.
        params: What each has for itself, by its name.
        at_once: How many run at once at most; None: as many as the plan finds best.
        wish: By when they are to be done, and what is left to the plan.
        say: Shows a line to the user.

    Raises:
        ValueError: They are to run on a cluster, or do not say how many epochs they take and have to end in time.
        Exception: As `costs_on` raises.
    """
    if not isinstance(engine_of(plan), ThisMachine):
        raise ValueError(
            "plan= and deadline= work on this machine only. Remove them, or remove engine='ray'."
        )
    strategies = wish.strategies(_most_threads(plan, params))
    twins = _twins(params, at_once or PLACES_A_CORE * math.ceil(available_cores()))
    alone = [name for name in params if name not in twins]
    epochs = ", which differ only in their epochs" if twins and len(alone) == 1 else ""
    some = f"{len(alone)} of {len(params)} trials{epochs}" if twins else f"{len(params)} trials"
    took = about(waves_s(len(alone), len(strategies), min(MOST, at_once or MOST)))
    say(f"profiling {some}{settings_text(strategies)} for the plan: {took}, {LONGER}")
    on = dict(zip(params, itertools.cycle({"device": device} for device in wish.devices)))
    starts = {
        strategy: {
            name: _starter(plan, name, {**own, **dict(strategy.gives), **on.get(name, {})})
            for name, own in params.items()
            if name not in twins
        }
        for strategy in strategies
    }
    must_end = math.isfinite(wish.end_s)
    costs = costs_on(plan.options.stream, starts, twins=twins, at_once=at_once, must_end=must_end)
    for assumed in costs.unsure.values():
        say(assumed)
    if assumed := one_epoch_text(costs.open_ended).strip():
        say(assumed)
    for line in _too_large(costs):
        say(line)
    conditions = Conditions(
        costs.jobs,
        costs.resources,
        costs.off,
        wish.end_s,
        costs.stream,
        {device: costs.room_bytes.get(device, math.inf) for device in wish.devices},
    )
    places = PlannedPlaces(
        at_once or len(params),
        conditions,
        clock=time.time,
        taken=lambda: samples_taken(costs.stream),
        clones=lambda: _clones(costs.stream),
        left_s=partial(_left_s, costs.stream),
        say=say,
    )
    places.add(params)
    for line in _said(places, costs, wish):
        say(line)
    return places


def _twins(params: Mapping[str, Mapping[str, Any]], at_once: int) -> dict[str, Twin]:
    """Return the trials that need no profile, as they differ from another one in their number of epochs alone.

    That one takes the most epochs of them, so that there is enough of it to see. As many as run at once are profiled in
    any case: what a sample costs, it costs among others.

    Args:
        params: What each has for itself, by its name.
        at_once: So many run at once.
    """
    groups: dict[Any, list[str]] = {}
    for name, own in params.items():
        number = own.get("epochs")
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            rest = [
                (key, type(value), value if isinstance(value, (int, float, str, type(None))) else id(value))
                for key, value in own.items()
                if key != "epochs"
            ]
            groups.setdefault(tuple(rest), []).append(name)
    found: dict[str, Twin] = {}
    for names in groups.values():
        seen = max(names, key=lambda name: int(params[name]["epochs"]))
        most = int(params[seen]["epochs"])
        found |= {name: Twin(seen, params[name]["epochs"] / most) for name in names if name != seen}
    spare = max(0, len(params) - max(at_once, len(params) - len(found)))
    shortest = sorted(found, key=lambda name: found[name].times)  # there is least to see of them
    return {name: found[name] for name in shortest[:spare]}


def _most_threads(plan: TrialPlan, params: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the most torch threads that a trial has, where no choice is left to the plan."""
    return max([plan.options.threads or 1, *(int(own.get("threads") or 1) for own in params.values())])


def _too_large(costs: ServedCosts) -> list[str]:
    """Say of trials that do not fit with what is preferred for them, or with nothing that there is."""
    memory_bytes = costs.resources.memory_bytes
    lines = too_large(costs.jobs, memory_bytes)
    sizes = {name: min(job.memory_bytes for job in each.values()) for name, each in costs.jobs.items()}
    if large := oversized(sizes, memory_bytes):
        lines.append(f"{large} Until then it runs alone and may be killed.")
    return lines


def _starter(plan: TrialPlan, name: str, own: Mapping[str, Any]) -> Start:
    def start(gate: Path | None) -> Trial:
        one = replanned(plan, {**own, "name": profile_name(name)})
        alone = replace(one.options, sweep="", log_to=(), restart=None, after=None, gate=gate)
        return launch(replace(one, options=alone), Silent())

    return start


def _clones(stream: str) -> dict[str, tuple[str, float]]:
    """Return the clones that run: of each its parent, and how many of the stream's samples had gone by for that.

    A plan counts those, and a trial what it was given of them: where it takes a part, a clone says how large that is.
    """
    parents = {t.name: t.parent for t in trials.own if t.parent is not None and t.state not in ENDED}
    per_sample: dict[str, float] = {}
    if parents:
        with contextlib.suppress(TsnbError, OSError):
            per_sample = {c.name: c.passed / c.samples for c in status(stream).consumers if c.samples}
    return {
        name: (parent.name, parent.samples * per_sample.get(name, 1.0)) for name, parent in parents.items()
    }


def _left_s(stream: str) -> dict[str, float]:
    """Return in how many seconds the trials on a stream end, as far as that is seen."""
    ends = leavers({trial.name: stream for trial in trials.own if trial.state not in ENDED})
    return {each.name: each.left_s for each in ends if math.isfinite(each.left_s)}


def _said(places: PlannedPlaces, costs: ServedCosts, wish: PlanWish) -> list[str]:
    """Return the first plan in words."""
    now_s = time.time()
    found = places.foretell()
    lines = []
    if found.order:
        last_s = max(found.ends_s.values()) - now_s
        order = "; ".join(
            [", ".join(found.order), *in_each({name: places.gives(name) for name in found.order})]
        )
        low, high = map(duration, interval(last_s, costs.off))
        # a time that has passed today is tomorrow's: it is said which day was understood
        by = f" (wanted by {clock_time(wish.end_s, now_s)})" if math.isfinite(wish.end_s) else ""
        word = "all done" if not found.late_s else f"{len(found.order)} of {len(places.waiting)} done"
        lines.append(
            f"{word} in {duration(last_s)} ({low} to {high}, 80% interval), at "
            f"{clock_time(now_s + last_s, now_s)}{by}; {found.at_once} at once, in the order {order}"
        )
    if found.late_s:
        lines.append(late_line(found.late_s, now_s, costs.off, wish.end_s))
    return lines


def show_plan(title: str, places: PlannedPlaces, conductor: Conductor) -> Callable[[], Timeline]:
    """Have a planned sweep drawn from now on, by `tsnb.plot("plan")` and in its stream's report.

    Args:
        title: What it is called.
        places: Its places.
        conductor: Has the trials that have been started.

    Returns:
        What returns the plan as it is by then.
    """
    drawn = partial(_timeline, title, places, conductor)
    show(drawn)
    return drawn


def follow_plan(title: str, places: PlannedPlaces, conductor: Conductor) -> Callable[[], Timeline]:
    """Show a planned sweep (`show_plan`) and, until it is over, tell its stream when its trials end.

    Whoever watches the stream hears of that. The plan is made anew when a clone has begun or ended.

    Args:
        title: What it is called.
        places: Its places.
        conductor: Has the trials that have been started.

    Returns:
        What returns the plan as it is by then.
    """

    def says(stream: str) -> PlanReading | None:
        if conductor.over:
            with contextlib.suppress(ValueError):
                planners.remove(says)
            return None
        return _says(places, conductor) if stream == places.stream else None

    def look(trial: Trial) -> None:
        if conductor.over:
            with contextlib.suppress(ValueError):
                trials.watchers.remove(look)
        elif trial.parent is not None:
            conductor.look_again()

    planners.append(says)
    trials.watchers.append(look)
    watch(places.stream)
    return show_plan(title, places, conductor)


def _says(places: PlannedPlaces, conductor: Conductor) -> PlanReading | None:
    """Return what a planned sweep says last: of a running trial what was said when another one began or ended."""
    if (found := places.foresight) is None:
        return None
    started = ((_started(name, conductor), end_s) for name, end_s in found.ends_s.items())
    running = [(trial, end_s) for trial, end_s in started if trial is not None]
    waiting = places.waiting
    last_s = max((found.ends_s[name] for name in waiting if name in found.ends_s), default=found.made_s)
    return told(running, len(waiting), last_s, places.off, found.made_s)


def _timeline(title: str, places: PlannedPlaces, conductor: Conductor) -> Timeline:
    """Return when its trials start and end: as planned first, as it was, and as foretold now."""
    origin_s, now_s = places.first_s, time.time()
    firsts = dict(list(places.firsts.items()))  # the sweep's thread adds to them
    started = {name: trial for name in firsts if (trial := _started(name, conductor)) is not None}
    starts_s, ends_s = (
        ({}, {}) if places.foresight is None else (places.foresight.starts_s, places.foresight.ends_s)
    )

    def since(spans: Mapping[str, Span]) -> dict[str, Span]:
        return {name: (start_s - origin_s, end_s - origin_s) for name, (start_s, end_s) in spans.items()}

    found = drawn(since(firsts), since(places.ahead(now_s)), started, starts_s, ends_s, origin_s)
    return Timeline(title, found, (places.stream,), origin_s, places.off, BASIS)


def _started(name: str, conductor: Conductor) -> Trial | None:
    """Return a trial of a sweep, or a clone of one, if it has been started."""
    trial = conductor.trials.get(name)
    if trial is None and (clone := trials.get(name)) is not None and clone.parent is not None:
        return clone
    return trial
