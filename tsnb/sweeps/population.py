"""Population based training: the worst of some trials go on as clones of the best, with values a little different.

Jaderberg et al., "Population Based Training of Neural Networks" (2017), with their truncation selection. A generation
is decided at the steps `every`, `2 * every`, `3 * every`..., when every live trial has come there:

| step | what happens |
|---|---|
| ready | all have logged the metric at the generation's step, or past it |
| exploit | each of the last `share` is stopped; a clone of one drawn from the first `share` takes its place |
| explore | the clone's live values are those of its parent times 0.8 or 1.2, within the space; a choice is drawn anew |

The clone has the parent's weights, optimizer, random numbers and place in the stream (`Trial.clone`), so a generation
costs a fork and not a checkpoint, and all go on taking the same batches. It is made before the trial that it replaces
is stopped: where no clone can be made that trial goes on as it is, and the reason is said.

Members do not stand still while a generation is decided. `generations` decides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tsnb.config import check_name
from tsnb.errors import TsnbError
from tsnb.experiments.board import launch
from tsnb.experiments.clones import CloneWish
from tsnb.experiments.engine import engine_of
from tsnb.experiments.functions import plan_function
from tsnb.experiments.plan import OPTION_NAMES, TrialPlan, name_of
from tsnb.experiments.trial import ENDED, Trial
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.capping import Budget
from tsnb.kernels.output.marking import marked
from tsnb.kernels.output.outlets import Outlet, outlet_here
from tsnb.kernels.processes.forking import await_server
from tsnb.planners.queueing import Places
from tsnb.sweeps.conductor import Conductor, Launcher
from tsnb.sweeps.generations import Evolution, Generations, explored
from tsnb.sweeps.pruning.rungs import Cut
from tsnb.sweeps.settled import Settled, settle_cell
from tsnb.sweeps.spaces import settings
from tsnb.sweeps.sweep import Sweep, enter

__all__ = ["MEMBERS", "Population", "population"]


MEMBERS = 8
"""How many trials run side by side, unless it is said."""
FORKS_S = 120.0
"""How long the start waits for the notebook's fork server: in a notebook's first seconds it imports torch."""


class Breeder(Conductor):
    """Runs the trials of a population: what is stopped is replaced by a clone.

    Args:
        course: Starts the first generation.
        places: Its places.
        generations: Which trials are replaced.
        space: Of the values that a clone changes.
        params: Of every trial, by its name; grows with each clone.
        title: The population's name.
        seed: Of the draws; None: others every time.
        outlet: Returns where the output of a clone goes, by its name.
    """

    def __init__(
        self,
        course: Launcher,
        places: Places,
        generations: Generations,
        *,
        space: Mapping[str, Any],
        params: dict[str, dict[str, Any]],
        title: str,
        seed: int | None,
        outlet: Callable[[str], Outlet],
    ) -> None:
        super().__init__(course, places, generations)
        self._generations = generations
        self._space = space
        self._params = params
        self._title = title
        self._random = random.Random(seed)
        self._outlet = outlet
        self._seen: set[str] = set()

    def _judged(self, news: Any) -> list[Cut]:
        """Return the trials to stop after this: those that a clone has replaced.

        Raises:
            TsnbError: The trials read values of the space that nothing can change in a clone.
        """
        if news.rows and news.trial.name not in self._seen:
            self._seen.add(news.trial.name)
            _require_live(self._space, news.trial)
        made = [self._replaced(cut) for cut in super()._judged(news)]
        return [cut for cut in made if cut is not None]

    def _replaced(self, cut: Cut) -> Cut | None:
        """Have a clone take a trial's place; None where that goes on, or has ended meanwhile."""
        why = f"{self._metric} {cut.value:.4g}, {cut.why}"
        if self.trials[cut.name].state in ENDED:
            return None
        able = [name for name in self._generations.parents[cut.name] if self.trials[name].state == "running"]
        if not able:
            self._keep(cut, f"{why}: the better trials have ended")
            return None
        parent = self.trials[self._random.choice(able)]
        changes = explored(self._space, parent.live, self._random)
        name = f"{self._title}-{len(self._params) + 1}"
        try:
            wish = CloneWish(parent, name, changes, self._title)
            clone = launch(parent.life.plan, self._outlet(name), wish)
        except (TsnbError, ValueError, TimeoutError) as error:
            self._keep(cut, f"{why}: {error}")
            return None
        self._params[name] = {**self._params[parent.name], **changes}
        self._generations.adopt(name, parent.name)
        self._places.leave([cut.name])
        self._places.join(name)
        self._take_in(clone)
        said = ", ".join(f"{word} {_shown(value)}" for word, value in changes.items())
        return replace(cut, said=f"{cut.why}; {name}, a clone of {parent.name}, takes its place ({said})")

    def _keep(self, cut: Cut, why: str) -> None:
        self._generations.keep(cut.name)
        self._course.say(f"{cut.name} continues at step {cut.step}, {why}")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _require_live(space: Mapping[str, Any], trial: Trial) -> None:
    """Refuse to go on with values that no clone could change.

    Raises:
        TsnbError: There is one.
    """
    fixed = [name for name in space if name not in trial.live]
    if fixed:
        first = fixed[0]
        raise TsnbError(
            f"The population cannot change {', '.join(fixed)}, because trial {trial.name!r} reads no live "
            f"hyperparameter of that name. Write {first} = tsnb.live({first!r}, {first}) at the top of the "
            f"function, and read it in every batch: float({first}), or {first}.apply(optimizer). Pass values "
            "that stay the same as keywords, not in the space"
        )


class Population(Sweep):
    """The trials of a population, clones too, by their names. Shows as a table in a notebook.

    `stopped_early` has each trial that was replaced: at which step, with which value, and by which clone.
    """

    def _row(self, name: str) -> dict[str, Any]:
        trial = self._conductor.trials.get(name)
        live = (
            {}
            if trial is None
            else {word: trial.live[word] for word in self.params[name] if word in trial.live}
        )
        return {
            **super()._row(name),
            **self._named(live),
            "parent": None if trial is None else _origin(trial),
        }

    def _table(self) -> list[list[str]]:
        head, *rows = super()._table()
        parents = [_origin(self[row[0]]) if row[0] in self._conductor.trials else None for row in rows]
        return [
            [head[0], "parent", *head[1:]],
            *([row[0], parent or "", *row[1:]] for row, parent in zip(rows, parents, strict=True)),
        ]


def _origin(trial: Trial) -> str | None:
    """Return which trial it is a clone of, and from where on, as `tsnb.results` has it."""
    return None if trial.parent is None else trial.parent.told


def population(
    train: Callable[..., Any],
    *,
    space: Mapping[str, Any],
    n: int,
    rule: Evolution,
    name: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> Population:
    """Run a function as a population, and return at once: `tsnb.sweep(evolve=)`.

    Args:
        train: The function; it gets the values of the space by name.
        space: What the values are drawn from, by name. Clones stay within it.
        n: How many trials run side by side, 2 or more.
        rule: How it evolves.
        name: What the trials' names begin with, by default the function's name: cnn-1, cnn-2... A running population
            or sweep of that name is stopped.
        seed: Seeds the draws, and every trial.
        **options: Options of `tsnb.run`, and arguments of the function that are the same in all trials.

    Raises:
        ValueError: A number is out of its range, the name or an option is invalid, or the trials could not be cloned:
            on a cluster, on a GPU, detached.
        Exception: As `tsnb.sweep` raises.
    """
    generations = _settled(space, n, rule, options)
    title, drawn = check_name(name or name_of(train), "sweep"), settings(None, space, n, seed)
    given = {**options, **drawn[0]} | ({} if seed is None else {"seed": seed})
    ours = {word: given.pop(word) for word in list(given) if word in OPTION_NAMES}
    ours |= {word: given.pop(word) for word in ("with_", "check") if word in options}
    plan = plan_function(train, given, name=f"{title}-1", **{**ours, "sweep": title})
    return _begun(title, plan, drawn, generations, space, seed)


def population_cell(
    name: str,
    source: str,
    namespace: Mapping[str, Any],
    *,
    space: Mapping[str, Any],
    n: int,
    rule: Evolution,
    seed: int | None = None,
    transform: Callable[[str], str] = str,
    also: Iterable[str] = (),
    check: bool = True,
    **options: Any,
) -> Population:
    """Run a cell as a population: as `population` runs a function. The values of the space are its variables.

    Args:
        name: What the trials' names begin with.
        source: The cell.
        namespace: The notebook's variables.
        space: As `population` takes it, and what follows.
        n: How many trials run side by side.
        rule: How it evolves.
        seed: Seeds the draws, and every trial.
        transform: IPython's `transform_cell`.
        also: Variables that it takes along whether it reads them or not.
        check: Whether names that are not defined are refused.
        **options: `plan.TrialOptions`, by name.

    Raises:
        Exception: As `population` and `run_cell` raise.
    """
    generations = _settled(space, n, rule, options)
    title, drawn = check_name(name, "sweep"), settings(None, space, n, seed)
    given = {**options} if seed is None else {**options, "seed": seed}
    plan = settle_cell(
        title, f"{title}-1", source, namespace, drawn[0], given, transform=transform, also=also, check=check
    )
    return _begun(title, plan, drawn, generations, space, seed)


def _settled(space: Mapping[str, Any], n: int, rule: Evolution, options: Mapping[str, Any]) -> Generations:
    """Return what decides, if all that was given can be.

    Raises:
        ValueError: It cannot.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 2:
        raise ValueError(f"n={n!r} is invalid. Pass a whole number, 2 or more.")
    _require_clonable(options)
    generations = Generations(rule.metric, rule.mode, rule.every, rule.share)
    if not space:
        raise ValueError(
            "A population needs hyperparameters to change: space={'lr': tsnb.search.loguniform(1e-4, 1e-1)}"
        )
    taken = sorted({*space} & {*OPTION_NAMES})
    if taken:
        raise ValueError(
            f"{', '.join(taken)} cannot be in the space, because a clone cannot change an option of its "
            "trial. Pass it as a keyword."
        )
    return generations


def _begun(
    title: str,
    plan: TrialPlan,
    drawn: Sequence[Mapping[str, Any]],
    rule: Generations,
    space: Mapping[str, Any],
    seed: int | None,
) -> Population:
    """Start a population from its settled plan.

    Raises:
        TsnbError: Its trials cannot be forked here.
        Exception: A trial could not be started; then none runs.
    """
    try:
        params = {check_name(f"{title}-{number}", "trial"): dict(own) for number, own in enumerate(drawn, 1)}
        engine_of(plan).join()
        _require_forks()
    except BaseException:
        plan.discard()
        raise
    here, budget = outlet_here(title), Budget()
    places = Places(len(params))
    places.add(params)
    breeder = Breeder(
        Settled(title, plan, params, here),
        places,
        rule,
        space=space,
        params=params,
        title=title,
        seed=seed,
        outlet=lambda clone: marked(here, clone, budget),
    )
    made = Population(title, params, breeder, rule.metric, rule.mode)
    enter(made)
    made.begin()
    return made


def _require_forks() -> None:
    """Wait until trials are forked, as those have to be that are cloned.

    Raises:
        TsnbError: They are not.
    """
    hub = the_hub()
    if not hub.call(await_server(hub, FORKS_S), 2 * FORKS_S):
        raise TsnbError(
            "A population clones its trials, which requires forked processes, but here they are spawned. "
            "Remove TSNB_START=spawn from the environment. If it is not set, the notebook's fork server is "
            "not ready: try again"
        )


def _require_clonable(options: Mapping[str, Any]) -> None:
    """Refuse trials of which it is known that none can be cloned.

    Raises:
        ValueError: They are such.
    """
    for option, fine, why in (
        ("detach", (None, False), "a detached trial cannot be cloned. Remove detach"),
        ("engine", (None, "local"), "a trial on a cluster cannot be cloned. Remove engine"),
        ("device", (None, "cpu"), "a trial that uses a GPU cannot be cloned. Pass device='cpu'"),
    ):
        value = options.get(option)
        if value not in fine:
            raise ValueError(
                f"{option}={value!r} is invalid, because a population clones its trials, and {why}."
            )
