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

Members do not stand still while a generation is decided. `generations` decides, and `conductor` replaces them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tsnb.config import check_name
from tsnb.errors import TsnbError
from tsnb.experiments.overview.board import launch
from tsnb.experiments.plan import OPTION_NAMES, TrialPlan
from tsnb.experiments.running.starts import CloneWish
from tsnb.experiments.trial import Trial
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.outlets import Outlet
from tsnb.kernels.processes.forking import await_server
from tsnb.option_kinds import TWO_OR_MORE
from tsnb.sweeps.generations import explored
from tsnb.sweeps.settled import Settled
from tsnb.sweeps.sweep import Sweep

__all__ = ["MEMBERS", "Breeding", "Population", "member_names", "require_breedable", "require_forks"]


MEMBERS = 8
"""How many trials run side by side, unless it is said."""
FORKS_S = 120.0
"""How long the start waits for the notebook's fork server: in a notebook's first seconds it imports torch."""


class Breeding(Settled):
    """A source whose trials are replaced by clones of others.

    Args:
        title: The population's name.
        plan: What the first trials have in common.
        params: Of every trial, by its name; grows with each clone.
        here: Where their output goes.
        space: Of the values that a clone changes.
    """

    def __init__(
        self,
        title: str,
        plan: TrialPlan,
        params: dict[str, dict[str, Any]],
        here: Outlet,
        space: Mapping[str, Any],
    ) -> None:
        super().__init__(title, plan, params, here)
        self._space, self._all, self._random = space, params, random.Random(plan.options.seed)

    def logs(self, trial: Trial) -> None:
        """Refuse to go on with values that no clone could change.

        Raises:
            TsnbError: There is one.
        """
        if fixed := [name for name in self._space if name not in trial.live]:
            first = fixed[0]
            raise TsnbError(
                f"The population cannot change {', '.join(fixed)}, because trial {trial.name!r} reads no live "
                f"hyperparameter of that name. Write {first} = tsnb.live({first!r}, {first}) at the top of the "
                f"function, and read it in every batch: float({first}), or {first}.apply(optimizer). Pass values "
                "that stay the same as keywords, not in the space"
            )

    def clone(self, parents: Sequence[Trial]) -> tuple[Trial, str]:
        """Start a clone of one of some trials, with values near its own."""
        parent, name = self._random.choice(parents), f"{self.title}-{len(self._all) + 1}"
        changes = explored(self._space, parent.live, self._random)
        clone = launch(
            parent.life.plan, self._outlet(name), CloneWish(parent.life, name, changes, self.title)
        )
        self._all[name] = {**self._all[parent.name], **changes}
        said = ", ".join(f"{word} {_shown(value)}" for word, value in changes.items())
        return clone, f"{name}, a clone of {parent.name}, takes its place ({said})"


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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


def member_names(title: str, number: int) -> list[str]:
    """Return the names of a population's first trials: cnn-1, cnn-2...

    Raises:
        ValueError: The population's name is invalid.
    """
    check_name(title, "sweep")
    return [check_name(f"{title}-{each}", "trial") for each in range(1, number + 1)]


def require_breedable(space: Mapping[str, Any], n: int, options: Mapping[str, Any]) -> None:
    """Refuse what cannot be a population.

    Args:
        space: What the values are drawn from, by name.
        n: How many trials run side by side.
        options: What all trials share.

    Raises:
        ValueError: There are fewer than two trials, no values that change, or trials that cannot be cloned.
    """
    TWO_OR_MORE.checked("n", n)
    _require_clonable(options)
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


def require_forks() -> None:
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
