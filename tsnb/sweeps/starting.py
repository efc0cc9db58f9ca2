"""Starting a sweep: `tsnb.sweep` of a function, and `swept` of any code, as `%%sweep` starts a cell.

The code and what it reads are packed once, when the sweep is started; every trial gets them with its own parameters,
however late it starts and whatever has been changed meanwhile. Under a cell the output of all trials comes as whole
lines, each with its trial's name before it (`marking`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tsnb.conducting.conductor import Conductor
from tsnb.conducting.live_places import LivePlaces
from tsnb.config import MAX_CONSUMERS
from tsnb.discovery import registry
from tsnb.experiments.overview.board import trials
from tsnb.experiments.plan import OPTION_NAMES, TrialPlan, name_of
from tsnb.experiments.replanning import replanned
from tsnb.experiments.running.engine import engine_of
from tsnb.kernels.output.outlets import Outlet, outlet_here
from tsnb.option_kinds import whole
from tsnb.options import runs_here
from tsnb.planners.queueing import Places
from tsnb.sweeps.folds import folds_of
from tsnb.sweeps.generations import Evolution, population
from tsnb.sweeps.plan_wish import PlanWish
from tsnb.sweeps.planned import PlannedPlaces
from tsnb.sweeps.population import (
    MEMBERS,
    Breeding,
    Population,
    member_names,
    require_breedable,
    require_forks,
)
from tsnb.sweeps.pruning.race_table import Race, race
from tsnb.sweeps.pruning.rungs import Halving, halving
from tsnb.sweeps.settled import FunctionCode, Settled, TrialCode, naming_of, title_of, trial_names
from tsnb.sweeps.space_grammar import TypedRule
from tsnb.sweeps.spaces import settings
from tsnb.sweeps.sweep import Sweep, enter

__all__ = ["rule_of", "sweep", "swept"]

ROTATE = whole("the batches per turn, a whole number, 1 or more", 1)
AT_ONCE = whole("how many trials run at once, 1 or more", 1)


def sweep(
    fn: Callable[..., Any],
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    space: Mapping[str, Any] | None = None,
    n: int | None = None,
    folds: int | None = None,
    evolve: Evolution | None = None,
    at_once: int | None = None,
    rotate: int | None = None,
    prune: Halving | Race | None = None,
    name: str | None = None,
    seed: int | None = None,
    plan: bool = False,
    deadline: str | datetime | None = None,
    choose: Mapping[str, Sequence[Any]] | None = None,
    **options: Any,
) -> Sweep:
    """Run a function once per parameter combination, as background trials.

    Returns at once, with a plan after a profile of some 20 batches of each trial. Trials that start together get the
    same batches in the same order.

    Example:
        >>> sweep = tsnb.sweep(train, grid={"lr": [0.1, 0.01]})
        >>> sweep.wait().best("loss")

    Args:
        fn: Training function that takes the parameters and reads from `tsnb.attach()`.
        grid: Values by parameter name. Each combination is one trial. Defaults to None.
        space: Distributions (`tsnb.search.loguniform(1e-4, 1e-1)`) or lists by parameter name. A grid is run for
            every draw. Defaults to None.
        n: Number of draws from the space. Defaults to None.
        folds: Number of folds of a cross-validation. Each trial gets `fold` for `tsnb.attach(fold=fold)`
            (docs/cross-validation.md). Defaults to None.
        evolve: Rule `tsnb.search.population("loss", every=500)`: clones of the best of `n` trials (8) replace the
            worst. Defaults to None.
        at_once: Number of trials that run at once. Defaults to all, or two per core if there are more.
        rotate: Number of batches after which trials take turns. `at_once` is then how many train at the same time
            (docs/sweeps.md). Defaults to None.
        prune: Rule that stops worse trials early, `tsnb.search.halving("loss", every=100)` or
            `tsnb.search.race("loss")`. Defaults to None.
        name: Prefix of the trials' names, or a whole name with parameters in braces, "cnn-lr{lr}". A running sweep
            of that name is stopped. Defaults to the function's name.
        seed: Number that seeds the draws, the folds and every trial. Defaults to None.
        plan: Whether to profile the trials first and run them in the order that ends soonest. `at_once` is then the
            most. Defaults to False.
        deadline: Time by which all must be done: "18:00", "2026-11-24 08:00" or a datetime. Makes a plan. Defaults
            to None.
        choose: Values by parameter name from which the plan picks one per trial, the preferred first
            (docs/plan-a-session.md). Defaults to None.
        **options: Options of `tsnb.run` (stream, batch_size, threads) and arguments that are equal in all trials.
            With a plan, several `threads` or `device` are allowed.

    Returns:
        The sweep, which maps names to trials, with `wait()`, `stop()`, `best("loss")` and `results()`.

    Raises:
        ValueError: If parameters, name or an option are invalid.
        TypeError: If the parameters do not fit the function.
        UndefinedNames: If the function reads names that are not defined.
        NotShippable: If the function or one of its parameters cannot be pickled.
        ExtraMissing: If `engine` is "ray" and Ray is not installed.
        TsnbError: If the cluster does not exist, or no plan can be made: no length, no trial profiled, or one took
            no batch.
        ProducerNotFound: If a plan is wanted and no stream is served, or several are and none is named.
    """
    if prune is not None and not isinstance(prune, (Halving, Race)):
        raise TypeError(
            f"prune= takes a rule, got {prune!r:.40}. Write for example "
            'prune=tsnb.search.halving("loss", every=100).'
        )
    if evolve is not None:
        _refuse("evolve", grid=grid, folds=folds, at_once=at_once, rotate=rotate, prune=prune, plan=plan,
                deadline=deadline, choose=choose)  # fmt: skip
    if folds is not None:
        _refuse("folds", grid=grid, space=space, n=n)
        grid = {"fold": folds_of(folds, seed)}
        name, at_once = f"{name or name_of(fn)}-fold{{fold[0]}}", folds if at_once is None else at_once
    code = FunctionCode(fn, options.pop("with_", ()), options.pop("check", True))
    made = swept(
        code,
        name or name_of(fn),
        grid=grid,
        space=space,
        n=n,
        rule=evolve or prune,
        at_once=at_once,
        rotate=rotate,
        plan=plan,
        deadline=deadline,
        choose=choose,
        **({**options} if seed is None else {**options, "seed": seed}),
    )
    made.folds = folds or 0
    return made


def _refuse(option: str, **others: Any) -> None:
    """Refuse options that do not go with another one.

    Raises:
        ValueError: One of them was given.
    """
    for other, value in others.items():
        if value not in (None, False):
            raise ValueError(f"{other}= does not work with {option}=. Remove one of them.")


def swept(
    code: TrialCode,
    template: str,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    space: Mapping[str, Any] | None = None,
    n: int | None = None,
    rule: Halving | Race | Evolution | None = None,
    at_once: int | None = None,
    rotate: int | None = None,
    outlet: Outlet | None = None,
    plan: bool = False,
    deadline: str | datetime | None = None,
    choose: Mapping[str, Sequence[Any]] | None = None,
    **options: Any,
) -> Sweep:
    """Run code once per parameter combination, as `sweep` runs a function, and return at once.

    Args:
        code: The code.
        template: The sweep's name, or the trials' name with parameters in braces.
        grid: As `sweep` takes it, and what follows.
        space: What values are drawn from.
        n: How many draws.
        rule: Which trials end early, or are replaced.
        at_once: How many trials run at once; where they take turns, train.
        rotate: The batches of a turn.
        outlet: Where their output goes; left out: under the running cell, or to the terminal.
        plan: Whether they are planned first.
        deadline: By when all must be done.
        choose: Values from which the plan picks one per trial.
        **options: What all trials share, as `TrialCode.settled` takes it.

    Raises:
        Exception: As `sweep` raises.
    """
    bred = isinstance(rule, Evolution)
    if bred:
        n = MEMBERS if n is None else n
        require_breedable(space or {}, n, options)
    params = settings(grid, space, n, options.get("seed"))
    wish = PlanWish.of(
        plan,
        deadline,
        threads=options.get("threads"),
        device=options.get("device"),
        choose=choose,
        swept=params[0],
        given=options,
    )
    shared = {**options, **(wish.options if wish else {})}
    names = member_names(template, len(params)) if bred else trial_names(template, params)
    title = template if bred else title_of(template)
    told = code.settled(names[0], title, shared, {**params[0], **(wish.params if wish else {})})
    if not bred:
        told = replace(told, naming=naming_of(template, params[0]))
    each = dict(zip(names, map(dict, params), strict=True))
    return start(title, told, each, at_once, rule, outlet, wish, rotate, space)


def start(
    title: str,
    plan: TrialPlan,
    params: dict[str, dict[str, Any]],
    at_once: int | None,
    rule: Halving | Race | Evolution | None,
    outlet: Outlet | None = None,
    wish: PlanWish | None = None,
    rotate: int | None = None,
    space: Mapping[str, Any] | None = None,
) -> Sweep:
    """Start a sweep from its settled plan.

    Args:
        title: Its name.
        plan: What its trials have in common.
        params: What each has for itself, by its name.
        at_once: How many run at once; where they take turns, train.
        rule: Which of them end early, or are replaced.
        outlet: Where their output goes; left out: under the running cell, or to the terminal.
        wish: That they are planned first; None: they are not.
        rotate: The batches of a turn; None: they take none.
        space: What the values of clones are drawn from.

    Raises:
        ValueError: `at_once` or `rotate` is below 1, the trials are to be detached, a device is invalid, trials on a
            cluster are to be planned or to take turns, or more of these than a stream takes.
        ProducerNotFound: They are to take turns, and nothing is served; or several streams are, and none is named.
        TsnbError: They are to be cloned, and cannot be forked here.
        Exception: A trial could not be started; then none runs.
    """
    try:
        _check(plan, params, at_once, planned=wish is not None)
        if rotate is not None:
            _check_turns(rotate, plan, params, wish)
        engine = engine_of(plan)
        engine.join()
        most, why = engine.places(_on_their_devices(plan, params), len(params))
        if rotate is not None:
            plan = _with_turns(plan, title, rotate, at_once or most)
            at_once, most = None, len(params)
        judge = rule.begin(params, plan.options.seed) if rule else None
        here = outlet or outlet_here(title)
        if isinstance(rule, Evolution):
            require_forks()
            at_once = len(params)
            source: Settled = Breeding(title, plan, params, here, space or {})
        else:
            source = Settled(title, plan, params, here)
        places = _places(source, plan, params, at_once, most, wish)
    except BaseException:
        plan.discard()
        raise
    conductor = Conductor(source, places, judge)
    foretell = None
    if isinstance(places, PlannedPlaces):
        from tsnb.sweeps.forecast import follow_plan  # needs torch

        foretell = follow_plan(f"sweep {title!r}", places, conductor)
    made = (Population if isinstance(rule, Evolution) else Sweep)(
        title, params, conductor, *((rule.metric, rule.mode) if rule else ()), foretell=foretell
    )
    enter(made)
    if wish is None and at_once is None and places.at_once < len(params):
        source.say(
            f"{len(params)} trials, {places.at_once} at once, {why}; at_once={len(params)} runs all of "
            "them at the same time"
        )
    made.begin()
    return made


def _places(
    source: Settled,
    plan: TrialPlan,
    params: Mapping[str, Mapping[str, Any]],
    at_once: int | None,
    most: int,
    wish: PlanWish | None,
) -> Places:
    """Return the places of a sweep, its trials waiting there."""
    if wish is not None:
        from tsnb.sweeps.forecast import plan_places  # needs torch

        planned = plan_places(plan, params, at_once, wish, source.say)
        if wish.chooses:
            source.take_choice(planned.gives)
        return planned
    here = runs_here(plan.options.engine)
    places = LivePlaces(at_once or most, trials.get) if here else Places(at_once or most)
    places.add(params)
    return places


def rule_of(typed: TypedRule | None) -> Halving | Race | Evolution | None:
    """Return the rule that was typed; None: none was.

    Raises:
        ValueError: A number is out of its range.
        UnknownDirection: Nothing says whether a high or a low value of the metric is good.
    """
    made: Mapping[str, Callable[..., Halving | Race | Evolution]]
    made = {"halving": halving, "race": race, "population": population}
    return None if typed is None else made[typed.word](**typed.options)


def _on_their_devices(plan: TrialPlan, params: Mapping[str, Mapping[str, Any]]) -> TrialPlan:
    """Return a plan for all devices that the trials name, where the device is one of their parameters."""
    named: Any = tuple(
        dict.fromkeys(str(given["device"]) for given in params.values() if given.get("device"))
    )
    if not (named and runs_here(plan.options.engine)):
        return plan
    return replace(plan, options=replace(plan.options, device=named))


def _check_turns(
    rotate: int, plan: TrialPlan, params: Mapping[str, Mapping[str, Any]], wish: PlanWish | None
) -> None:
    ROTATE.checked("rotate", rotate)
    if wish is not None:
        raise ValueError(
            "rotate= excludes plan= and deadline=, because trials that take turns have no order to plan. "
            "Keep one of them. A plan runs all trials at once where that is fastest, and then ends no later "
            "than turns do."
        )
    if not runs_here(plan.options.engine):
        raise ValueError(
            f"rotate= does not work with engine={plan.options.engine!r}, because trials take turns on one "
            "machine only. Remove it."
        )
    if len(params) > MAX_CONSUMERS:
        raise ValueError(
            f"rotate= attaches all {len(params)} trials at once, but a stream takes {MAX_CONSUMERS}. Draw "
            "fewer (n=), or remove rotate=."
        )


def _with_turns(plan: TrialPlan, title: str, rotate: int, at_once: int) -> TrialPlan:
    """Return a plan whose trials take turns on the stream that they attach to by default.

    Raises:
        ProducerNotFound: Nothing is served; or several streams are, and none is named.
    """
    stream = plan.options.stream or registry.away() or registry.find().name
    return replace(plan, options=replace(plan.options, stream=stream, rotation=(title, rotate, at_once)))


def _check(
    plan: TrialPlan, params: Mapping[str, Mapping[str, Any]], at_once: int | None, *, planned: bool
) -> None:
    if at_once is not None:
        AT_ONCE.checked("at_once", at_once)
    if plan.options.detach:
        raise ValueError(
            "The trials of a sweep end with the notebook, which starts and stops them. Remove detach."
        )
    if plan.options.needs is not None or any("needs" in own for own in params.values()):
        raise ValueError(
            "needs= is for trials that are started one by one. Remove it. A sweep with plan=True starts only "
            "trials that fit into memory together, and at_once= sets how many run."
        )
    for trial, own in params.items():  # before any is started
        if checked := {option: own[option] for option in own if option in OPTION_NAMES}:
            replace(plan.options, **checked).check(trial)
        if planned:  # else the last of them would be refused when the first have been profiled
            replanned(plan, {**own, "name": trial}).discard()
