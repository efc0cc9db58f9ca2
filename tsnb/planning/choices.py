"""What is left to a plan: with how many threads, and with which value of a parameter, each trial runs.

A *strategy* of a trial (`planners.strategies`) is one combination of a number of threads and of a value for each
parameter that `choose` names. Each trial is profiled with each; one that fails or dies with what is preferred is run
with the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tsnb.errors import TsnbError
from tsnb.experiments.plan import OPTION_NAMES
from tsnb.planners.strategies import Jobs, Strategy, fitting
from tsnb.planning.profiling import profile
from tsnb.planning.trial_costs import Profile, Profiled
from tsnb.planning.wishes import TrialWish
from tsnb.words import size_text

__all__ = ["Choices", "choices_for", "not_run", "profiled", "read_choices", "strategies", "too_large"]

Choices = tuple[tuple[str, tuple[Any, ...]], ...]
"""Parameters, and the values of which each trial has one: the preferred one first."""


def read_choices(
    choose: Mapping[str, Sequence[Any]], taken: Mapping[str, str], instead: Callable[[str], str]
) -> Choices:
    """Return parameters and the values of each, each value once.

    Args:
        choose: As the user gives it.
        taken: Parameters that trials have otherwise, and how, in words: "swept over".
        instead: Says of an option what to do instead.

    Raises:
        ValueError: One is an option, is given otherwise too, or its values are not a list of plain ones.
    """
    found = []
    for name, values in choose.items():
        if name in OPTION_NAMES or name in ("epochs", "name"):
            raise ValueError(
                f"choose={{{name!r}: ...}} is invalid, because a plan picks only parameters that change how a "
                f"trial runs and not what it trains, such as a limit for tsnb.offload. {instead(name)}"
            )
        if name in taken:
            raise ValueError(f"{name} is {taken[name]} and also in choose=. Remove one of them.")
        if not isinstance(values, (list, tuple, range)) or not values or not all(map(_is_plain, values)):
            raise ValueError(
                f"choose={{{name!r}: {values!r}}} is invalid. Pass a list of numbers, strings or None with "
                'the preferred value first, for example choose={"limit": [None, "2GiB"]}.'
            )
        found.append((name, tuple(dict.fromkeys(values))))
    return tuple(found)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def strategies(choose: Choices, several: Sequence[int], threads: int) -> list[Strategy]:
    """Return all strategies, the preferred one first: other values count less than more threads.

    Args:
        choose: The values that are left to the plan.
        several: Numbers of torch threads that are, the fewest first; empty: none.
        threads: Torch threads of a trial, where the plan does not choose them.
    """
    names = [name for name, _ in choose]
    return [
        Strategy(
            number or threads,
            (*([("threads", number)] if number else ()), *zip(names, values, strict=True)),
        )
        for values in itertools.product(*(values for _, values in choose))
        for number in several or (0,)
    ]


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


def choices_for(wanted: Sequence[TrialWish], choose: Mapping[str, Sequence[Any]]) -> Choices:
    """Return what `tsnb.plan` was asked to choose for some trials.

    Raises:
        ValueError: As `read_choices`.
        TypeError: A trial does not take such a parameter.
    """
    taken = {word: f"set for {each.name}" for each in wanted for word in each.params}
    found = read_choices(choose, taken, _instead)
    for each in wanted:
        each.require_fit({name: values[0] for name, values in found})
    return found


def _instead(name: str) -> str:
    own = {"threads": "threads=(1, 2)", "device": 'devices=["cuda:0", "cuda:1"]'}
    return (
        f"Pass it as its own argument: {own[name]}."
        if name in own
        else f"Pass it to each trial: (train, {{{name!r}: ...}})."
    )


def not_run(found: Mapping[Strategy, Profile]) -> list[str]:
    """Say of trials that are not run with a value why they are not: they failed with it, or died."""
    return [
        f"{name} is not run with {strategy}: {why}"
        for strategy, seen in found.items()
        for name, why in seen.failed.items()
    ]


def too_large(jobs: Jobs, memory_bytes: float) -> list[str]:
    """Say of trials that do not fit with what is preferred for them, where they fit with another value.

    Args:
        jobs: The trials with each strategy, the preferred one first.
        memory_bytes: For all that run at once.
    """
    lines = []
    for name, each in fitting(jobs, memory_bytes).items():
        first, job = next(iter(jobs[name].items()))
        if first not in each:
            size = job.memory_bytes if job.memory_bytes > memory_bytes else job.device_bytes
            lines.append(f"{name} is not run with {first}: it does not fit the memory ({size_text(size)})")
    return lines
