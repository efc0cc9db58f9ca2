"""What a plan may choose of each of several trials, so that all are done soonest: its strategy. Pure.

With how many torch threads it computes; which of the values it has that a user leaves to the plan (a limit for
`tsnb.offload`, say); and on which GPU it is, by `scheduling.spread`.

Each trial was measured with each strategy, so it is a `Job` for each of them, the preferred one first: the fewest
threads, the first value. Another one is taken

- where the preferred one does not fit the memory, not even alone (`fitting`), or the trial failed with it;
- where all end sooner by more than `WORTH`: a tie, or what a measurement is off (`steadied`), is no reason.

Two forms: for a way whose order does not depend on the strategies (`best_strategies`), and for a list of trials on one
stream, whose order and places are found together with them (`soonest`, and `most_within` where all must be done by a
time).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tsnb.planners.fluid import Job, Resources
from tsnb.planners.scheduling import (
    MANY,
    ROUGH,
    ROUNDS,
    Listed,
    Schedule,
    annealed,
    fits,
    listed,
    spread,
    within,
)

__all__ = [
    "WORTH",
    "Jobs",
    "Strategy",
    "StrategyList",
    "best_strategies",
    "by_trial",
    "fitting",
    "given_words",
    "in_each",
    "in_threads",
    "most_within",
    "on_devices",
    "soonest",
    "steadied",
    "with_strategies",
]

WORTH = 0.03
"""What ends all of them sooner by less than this share is not worth a way that is less simple, or more threads."""
MOST_OFF = 0.25
"""A step that is faster by so much with another strategy is faster, however much it varied."""
LESS = 0.1
"""A strategy that takes less memory by this share is smaller: no thread more or less makes so much of a difference."""
PLAYS = 2000
"""So many choices of strategies are played at most for a dozen trials: fewer for more, as each takes longer."""
MISSES = 3
"""Where so many are not done in time with other strategies either, the longer ones are not tried."""


class Strategy(NamedTuple):
    """One way to run a trial, that a plan may choose."""

    threads: int = 1
    """Torch threads that it computes with."""
    gives: tuple[tuple[str, Any], ...] = ()
    """Options and parameters that it is started with, threads included where the plan chooses those."""

    @property
    def values(self) -> dict[str, Any]:
        """The parameters among them, by name."""
        return {name: value for name, value in self.gives if name != "threads"}

    def __str__(self) -> str:
        """Return what it gives, in words: "2 torch threads, limit=2GiB"."""
        return ", ".join(given_words(name, value) for name, value in self.gives)


Jobs = Mapping[str, Mapping[Strategy, Job]]
"""The trials by name, each as it is with each strategy that it may have: the preferred one first."""


@dataclass(frozen=True)
class StrategyList(Listed):
    """A list of trials on one stream, and the strategy of each of them."""

    strategies: Mapping[str, Strategy]
    """That of each, by name; of those, too, that the list leaves out for want of time."""

    @classmethod
    def of(cls, found: Listed, strategies: Mapping[str, Strategy]) -> StrategyList:
        """Return a list with the strategies of its trials."""
        return cls(found.order, found.at_once, found.schedule, strategies)


def given_words(name: str, value: Any) -> str:
    """Return in words what a strategy gives a trial: "2 torch threads", "limit=2GiB".

    Args:
        name: The option or parameter.
        value: Its value.
    """
    return f"{value} torch thread{'s' if value > 1 else ''}" if name == "threads" else f"{name}={value}"


def in_threads(threads: Mapping[str, int]) -> str:
    """Return how many torch threads trials have, in words: "1 thread each", "1 thread, wide-cnn 2".

    Args:
        threads: By the trial's name.
    """
    usual = min(threads.values(), key=lambda number: (-list(threads.values()).count(number), number))
    others = [f"{name} {number}" for name, number in threads.items() if number != usual]
    return ", ".join([f"{usual} thread{'s' if usual > 1 else ''}{'' if others else ' each'}", *others])


def in_each(given: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return in words what trials are given: ["1 thread, wide-cnn 2", "limit=None each", "device=cuda:0, b cuda:1"].

    Args:
        given: By the trial's name, options and parameters by their name; the same ones for each.
    """
    found = []
    for word in next(iter(given.values()), {}):
        values = {name: each[word] for name, each in given.items()}
        if word == "threads":
            found.append(in_threads(values))
            continue
        usual = max(values.values(), key=list(values.values()).count)
        others = [f"{name} {value}" for name, value in values.items() if value != usual]
        found.append(", ".join([f"{word}={usual}{'' if others else ' each'}", *others]))
    return found


def by_trial(jobs: Mapping[Strategy, Iterable[Job]]) -> dict[str, dict[Strategy, Job]]:
    """Return trials by name, each as it is with each strategy.

    Args:
        jobs: They, by strategy, the preferred one first; a trial may lack some.
    """
    found: dict[str, dict[Strategy, Job]] = {}
    for strategy, several in jobs.items():
        for job in several:
            found.setdefault(job.name, {})[strategy] = job
    return found


def with_strategies(jobs: Jobs, chosen: Mapping[str, Strategy]) -> list[Job]:
    """Return the trials as they are with their strategies.

    Args:
        jobs: As they are with each.
        chosen: The strategy of each, by name.
    """
    return [each[chosen[name]] for name, each in jobs.items()]


def steadied(jobs: Jobs, off: Mapping[str, float]) -> dict[str, dict[Strategy, Job]]:
    """Return each trial with the strategies that are clearly faster, or smaller, than all that are preferred to them.

    What a measurement of a few batches is off could otherwise give a trial threads that gain it nothing. A trial's
    start is the same with all strategies; one that is only smaller is not faster either.

    Args:
        jobs: The trials with each strategy, as they were measured.
        off: How far off their steps may be, as a share, by name.
    """

    def steady(name: str, each: Mapping[Strategy, Job]) -> dict[Strategy, Job]:
        sooner = 1 - max(WORTH, min(MOST_OFF, off.get(name, 0.0)))
        kept: dict[Strategy, Job] = {}
        for strategy, job in each.items():
            first = next(iter(kept.values()), job)
            if not all(job.step_s < other.step_s * sooner or _smaller(job, other) for other in kept.values()):
                continue
            step_s, cpu_s = job.step_s, job.cpu_s
            if step_s >= first.step_s * sooner:
                step_s, cpu_s = max(step_s, first.step_s), max(cpu_s, first.cpu_s)
            kept[strategy] = replace(
                job, step_s=step_s, cpu_s=cpu_s, start_s=first.start_s, start_cpu_s=first.start_cpu_s
            )
        return kept

    return {name: steady(name, each) for name, each in jobs.items()}


def _smaller(job: Job, other: Job) -> bool:
    """Tell whether a trial takes clearly less memory than with another strategy: the machine's, or its GPU's."""
    return job.memory_bytes < other.memory_bytes * (1 - LESS) or job.device_bytes < other.device_bytes * (
        1 - LESS
    )


def fitting(jobs: Jobs, memory_bytes: float) -> dict[str, dict[Strategy, Job]]:
    """Return each trial with those strategies that fit the memory when it runs alone; if none does, the smallest ones.

    Args:
        jobs: The trials with each strategy.
        memory_bytes: For all that run at once.
    """
    found = {}
    for name, each in jobs.items():
        alone = {strategy: job for strategy, job in each.items() if fits(job, memory_bytes)}
        least_bytes = min(job.memory_bytes for job in each.values())
        found[name] = alone or {
            strategy: job for strategy, job in each.items() if job.memory_bytes * (1 - LESS) <= least_bytes
        }
    return found


def on_devices(
    jobs: Jobs, room_bytes: Mapping[str, float], running: Sequence[Job] = ()
) -> tuple[dict[str, str], dict[str, dict[Strategy, Job]]]:
    """Give each trial one of some devices, whatever its strategy; return that, by name, and the trials there.

    Args:
        jobs: The trials with each strategy.
        room_bytes: The devices, and their memory for all trials; none: trials stay where they were seen.
        running: Trials that have started before, with the samples that are left to them, where they are.
    """
    if not room_bytes:
        return {}, {name: dict(each) for name, each in jobs.items()}
    several = [next(iter(each.values())) for each in jobs.values()]
    placed = {job.name: job for job in spread(several, room_bytes, running)}

    def there(name: str, job: Job) -> Job:
        device = "" if placed[name].device == "cpu" else placed[name].device  # a job's device is a GPU
        return replace(job, device=device, device_room_bytes=placed[name].device_room_bytes)

    found = {name: {key: there(name, job) for key, job in each.items()} for name, each in jobs.items()}
    return {name: job.device for name, job in placed.items()}, found


def _preferred(jobs: Jobs) -> dict[str, Strategy]:
    return {name: next(iter(each)) for name, each in jobs.items()}


def _all_with(jobs: Jobs, strategy: Strategy) -> dict[str, Strategy]:
    """Return that strategy for all trials that may have it, and for the others the one that is preferred."""
    return {name: strategy if strategy in each else next(iter(each)) for name, each in jobs.items()}


def _every(jobs: Jobs) -> list[Strategy]:
    """Return the strategies that there are; none where no trial has a choice."""
    choice = any(len(each) > 1 for each in jobs.values())
    return list(dict.fromkeys(strategy for each in jobs.values() for strategy in each)) if choice else []


def best_strategies(jobs: Jobs, play: Callable[[Sequence[Job]], Schedule]) -> dict[str, Strategy]:
    """Return the strategy of each trial, by name: another than the preferred one only where that is worth it.

    From each strategy for all of them one trial's is changed at a time, those first that take longest, for as long as
    that ends the last one sooner. Then those by which all of it hardly gains go back to what is preferred.

    Args:
        jobs: The trials with each strategy.
        play: Returns how long they take in the way that is asked about.
    """
    preferred = _preferred(jobs)

    def ends_s(chosen: Mapping[str, Strategy]) -> float:
        return play(with_strategies(jobs, chosen)).makespan_s

    best, best_s = preferred, ends_s(preferred) * (1 - WORTH)
    for strategy in _every(jobs):
        mine = _plainer(jobs, _improved(jobs, _all_with(jobs, strategy), ends_s), ends_s)
        if (mine_s := ends_s(mine)) < best_s:
            best, best_s = mine, mine_s
    return best


def _longest_first(jobs: Jobs) -> list[str]:
    """Return the names of trials, those first that take longest with what is preferred."""
    several = with_strategies(jobs, _preferred(jobs))
    return [job.name for job in sorted(several, key=lambda job: -job.samples * job.step_s)]


def _improved(
    jobs: Jobs, mine: dict[str, Strategy], ends_s: Callable[[Mapping[str, Strategy]], float]
) -> dict[str, Strategy]:
    """Return strategies from which no change of a single one ends the last trial sooner, as far as was tried."""
    plays = PLAYS * min(1.0, (MANY / max(1, len(jobs))) ** 2)
    mine_s, changed, played = ends_s(mine), True, 0
    while changed and played < plays:
        changed = False
        for name in _longest_first(jobs):
            for other in [each for each in jobs[name] if each != mine[name]]:
                tried = {**mine, name: other}
                if (tried_s := ends_s(tried)) < mine_s * (1 - 1e-9):
                    mine, mine_s, changed = tried, tried_s, True
                played += 1
    return mine


def _plainer(
    jobs: Jobs, mine: dict[str, Strategy], ends_s: Callable[[Mapping[str, Strategy]], float]
) -> dict[str, Strategy]:
    """Return strategies with what is preferred for each trial whose own is not worth it to all of them."""
    preferred, worth_s = _preferred(jobs), ends_s(mine) * (1 + WORTH)
    for name in _longest_first(jobs):
        tried = {**mine, name: preferred[name]}
        if mine[name] != preferred[name] and ends_s(tried) <= worth_s:
            mine = tried
    return mine


def soonest(jobs: Jobs, resources: Resources, *, rounds: int = ROUNDS) -> StrategyList:
    """Return a good list of trials on one stream, with the strategies with which it ends soonest.

    Args:
        jobs: The trials with each strategy.
        resources: What they have; trials that run already keep their strategies.
        rounds: As `annealed` takes it.
    """

    def best(chosen: Mapping[str, Strategy], rounds: int) -> Listed:
        return annealed(with_strategies(jobs, chosen), resources, rounds=rounds)

    def suited(found: Listed) -> dict[str, Strategy]:  # in the order and places of that list
        def play(mine: Sequence[Job]) -> Schedule:
            by_name = {job.name: job for job in mine}
            order = [by_name[name] for name in found.order]
            return listed(order, replace(resources, at_once=found.at_once))

        return best_strategies(jobs, play)

    preferred = _preferred(jobs)
    plain = StrategyList.of(best(preferred, rounds), preferred)
    tried = [plain]
    for strategy in _every(jobs):
        all_with = _all_with(jobs, strategy)
        mine = suited(plain if all_with == preferred else best(all_with, rounds // 4))
        if all(mine != other.strategies for other in tried):
            tried.append(StrategyList.of(best(mine, rounds), mine))
    first = min(tried, key=lambda each: each.schedule.makespan_s)
    return first if first.schedule.makespan_s < plain.schedule.makespan_s * (1 - WORTH) else plain


def most_within(
    jobs: Jobs, resources: Resources, limit_s: float, *, rounds: int = ROUNDS
) -> tuple[StrategyList, dict[str, float]]:
    """Return a list of the most trials that are done by a time, with their strategies; when the others would be.

    First those that are done by then with the preferred ones. Then of the others, those first that would be done first,
    what is done by then where all may have another strategy.

    Args:
        jobs: The trials with each strategy.
        resources: What they have; trials that run already keep their strategies.
        limit_s: By when, in seconds from now.
        rounds: As `annealed` takes it, for the final list.

    Returns:
        The list of those that are done in time, and the seconds from now at which each of the others would be done if
        it were added to them.
    """
    preferred = _preferred(jobs)
    found, late = within(with_strategies(jobs, preferred), resources, limit_s, rounds=rounds)
    if not _every(jobs):
        return StrategyList.of(found, preferred), late
    anyhow_s = listed([], resources).ends_s

    def in_time(names: Sequence[str], rounds: int) -> StrategyList | None:
        some = {name: each for name, each in jobs.items() if name in names}
        best = soonest(some, resources, rounds=rounds)
        return best if best.schedule.in_time(limit_s, anyhow_s) else None

    taken, misses = StrategyList.of(found, preferred), 0
    for name in sorted(late, key=late.__getitem__):
        more = in_time([*taken.order, name], max(1, rounds // ROUGH))
        misses += more is None
        taken = more or taken
        if misses == MISSES:
            break
    taken = in_time(taken.order, rounds) or taken
    left = {name: end_s for name, end_s in late.items() if name not in taken.order}
    return StrategyList.of(taken, {**preferred, **taken.strategies}), left
