"""Pure: what a sample costs in, samples/s of k equal trials out.

A trial cannot be faster than the slowest of these, all in seconds a sample: model, loader and cores, as plans have them
(`planners.fluid.bounds`), and

    device   k trials on one GPU, each as long as it computes there

With c the CPU time of computing and p that of preparing, the last one is k(p + c)/cores with a loader for each trial,
and (p + kc)/cores with one for all. Their quotient, k(p + c)/(p + kc), is what sharing gives where the cores are all
that limits. Where a model or a loader is slower than its share of the cores, that one decides, and sharing gives less.

One trial is not calculated where it was measured, with all that costs no CPU time, such as waking up; of several, none
is faster than one alone.

`ways` makes these costs of what was counted, by the medians of several rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tsnb.planners.fluid import bounds
from tsnb.stalling.figures import Interval, between, percent, rate, times
from tsnb.text.printable import harmless
from tsnb.text.words import html_table, text_table

if TYPE_CHECKING:
    from tsnb.stalling.measuring import Counted

__all__ = [
    "Computing",
    "Loading",
    "Round",
    "Sharing",
    "TrialPace",
    "Way",
    "foretell",
    "others",
    "separate",
    "shared",
    "ways",
    "with_workers",
]


@dataclass(frozen=True)
class Loading:
    """What one loader costs, a sample."""

    wall_s: float
    """Seconds a sample while no model computes and no other program uses its cores."""
    cpu_s: float
    """CPU seconds of everything but the training process's own thread: workers, and the sharing process."""
    taking_s: float
    """CPU seconds of the training process's thread to get it: of each trial, shared or not."""
    workers: int
    """Worker processes; with 0 a plain loader works in the training process, and nothing overlaps."""


@dataclass(frozen=True)
class Computing:
    """What one step costs, a sample."""

    wall_s: float = 0.0
    """Seconds a sample on batches that lie ready."""
    cpu_s: float = 0.0
    """CPU seconds of all threads of the training process."""
    device_s: float = 0.0
    """Seconds that a GPU is busy; 0 without one."""


@dataclass(frozen=True)
class Way:
    """One way of feeding a trial, measured with one trial or none."""

    loading: Loading
    computing: Computing | None = None
    """One step; None: no model was given."""
    one_s: float = 0.0
    """Seconds a sample of one trial; 0 where it was not measured."""


@dataclass(frozen=True)
class TrialPace:
    """How fast each of k equal trials is."""

    samples_per_s: float
    """Of each trial."""
    limit: str
    """What it cannot go past: model, loader, device or cores."""
    cores: float
    """Cores busy at that pace, all trials and loaders together."""
    interval: Interval | None = None
    """What `samples_per_s` lies between in 80 of 100 cases; None: not known."""


@dataclass(frozen=True, repr=False)
class Sharing:
    """k equal trials on this machine: a loader each, and one loader for all. Shown as a table."""

    trials: int
    separate: TrialPace
    """With a loader each."""
    shared: TrialPace
    """On one loader."""
    gain_interval: Interval | None = None
    """What `gain` lies between in 80 of 100 cases; None: not known."""
    basis: str = ""
    """What it was calculated from, a sentence."""
    cpu_saved_interval: Interval | None = None
    """What `cpu_saved` lies between in 80 of 100 cases; None: not known."""

    @property
    def gain(self) -> float:
        """How many times faster each trial is on one loader."""
        return self.shared.samples_per_s / self.separate.samples_per_s

    @property
    def cpu_saved(self) -> float:
        """Share of the CPU time of the same training that sharing saves, up to 1; below 0 where it costs more."""
        own, one = (pace.cores / pace.samples_per_s for pace in (self.separate, self.shared))
        return 1 - one / own

    def _rows(self) -> list[list[str]]:
        def row(name: str, pace: TrialPace) -> list[str]:
            return [name, rate(pace.samples_per_s), between(pace.interval), pace.limit]

        return [
            ["", "samples/s each", "80% interval", "limit"],
            row("separate loaders", self.separate),
            row("one shared loader", self.shared),
            ["gain", times(self.gain), between(self.gain_interval, times), ""],
            ["CPU saved", percent(self.cpu_saved), between(self.cpu_saved_interval, percent), ""],
        ]

    def _head(self) -> str:
        return "One trial:" if self.trials == 1 else f"{self.trials} equal trials at once:"

    def __repr__(self) -> str:
        return harmless("\n".join(filter(None, [self._head(), *text_table(self._rows()), self.basis])))

    def _repr_html_(self) -> str:
        return f"<p>{self._head()}</p>{html_table(self._rows())}<p><small>{escape(self.basis)}</small></p>"


def foretell(trials: int, own: Way, one: Way, cores: float) -> Sharing:
    """Return what so many equal trials get.

    Args:
        trials: How many train at the same time.
        own: With a loader each.
        one: With one loader for all.
        cores: CPU cores for all of it; may be broken.

    Raises:
        ValueError: Fewer than one trial, or no core.
    """
    if trials < 1 or cores <= 0:
        raise ValueError(
            f"{trials} trials on {cores} cores is invalid. Pass at least 1 trial and more than 0 cores."
        )
    return Sharing(trials, separate(trials, own, cores), shared(trials, one, cores))


def separate(trials: int, way: Way, cores: float) -> TrialPace:
    """Return the pace of trials that have a loader each."""
    plain, computing = way.loading, way.computing or Computing()
    in_turn = 0.0 if plain.workers else computing.wall_s
    cpu_s = trials * (plain.cpu_s + plain.taking_s + computing.cpu_s)
    return _slowest(trials, way, cpu_s, cores, loader=plain.wall_s + in_turn)


def shared(trials: int, way: Way, cores: float) -> TrialPace:
    """Return the pace of trials on one loader."""
    served, computing = way.loading, way.computing or Computing()
    cpu_s = served.cpu_s + trials * (served.taking_s + computing.cpu_s)
    return _slowest(trials, way, cpu_s, cores, loader=served.wall_s)


def with_workers(way: Way, workers: int) -> Way:
    """Return the way with another number of workers: as much faster, but not faster than its batches are taken."""
    loading = way.loading
    now = max(1, loading.workers)
    if not loading.workers:  # its work in the training process is the workers' then
        loading = replace(loading, cpu_s=loading.cpu_s + loading.taking_s, taking_s=0.0)
    wall_s = max(loading.wall_s * now / workers, loading.taking_s)
    return Way(replace(loading, wall_s=wall_s, workers=workers), way.computing)


def _slowest(trials: int, way: Way, cpu_s: float, cores: float, *, loader: float) -> TrialPace:
    computing = way.computing or Computing()
    found = bounds([way.loading.taking_s + computing.wall_s], loader, cpu_s, cores)
    found["device"] = trials * computing.device_s
    limit = max(found, key=found.__getitem__)
    slowest_s = found["cores"] if trials == 1 and way.one_s else found[limit]
    second = max(slowest_s, way.one_s, 1e-12)
    return TrialPace(1 / second, limit, cpu_s / second)


class Round(NamedTuple):
    """Everything measured once."""

    alone: Counted
    """The loader as it is."""
    computing: Counted | None
    """The step; None if none was given."""
    together: Counted | None
    """Both."""
    served: Counted
    """The loader, shared."""
    together_served: Counted | None
    """That and the step."""


def ways(rounds: list[Round], workers: int, *, on_gpu: bool) -> tuple[Way, Way]:
    """Return what a trial costs with a loader of its own, and on one that is shared.

    Args:
        rounds: At least one.
        workers: The loader's.
        on_gpu: Whether the step computes there.
    """
    plain = _loading([r.alone for r in rounds], workers)
    served = _loading([r.served for r in rounds], workers)
    steps = [r.computing for r in rounds if r.computing is not None]
    together = [r.together for r in rounds if r.together is not None]
    together_served = [r.together_served for r in rounds if r.together_served is not None]
    if not steps:
        return Way(plain), Way(served)
    # Caches and memory are busier when all cores work, and that is how several trials will run: a step beside a loader
    # of its own shows how much. Beside a shared one, which has little to do, a core may be idle.
    crowd = _crowd(_median(steps, "computing_s"), _median(together, "computing_s"))
    cpu_s = _median(steps, "computing_s") * crowd
    wall_s = median(run.each(run.wall_s - run.no_core_s) for run in steps) * crowd
    computing = Computing(wall_s, cpu_s, wall_s if on_gpu else 0.0)
    busy_s = _median(together, "rest_s") + _median(together, "taking_s")
    crowd = _crowd(plain.cpu_s + plain.taking_s, busy_s)
    own_s, one_s = _one_s(together), _one_s(together_served)
    # alone it is at least as fast as beside a model, whatever a busy moment made of it
    plain, served = _slower(plain, crowd, own_s), _slower(served, crowd, one_s)
    return Way(plain, computing, own_s), Way(served, computing, one_s)


def others(rounds: list[Round]) -> float | None:
    """Return the cores that other programs took, on average over all rounds."""
    runs = [run for each in rounds for run in each if run is not None]
    taken = [run.others_s for run in runs if run.others_s is not None]
    return sum(taken) / sum(run.wall_s for run in runs) if len(taken) == len(runs) else None


def _one_s(together: list[Counted]) -> float:
    """Return the seconds a sample of one trial, on a machine without other programs."""
    return median(run.each(run.wall_s - min(run.no_core_s, run.others_s or 0.0)) for run in together)


def _slower(loading: Loading, crowd: float, most_s: float) -> Loading:
    wall_s = min(loading.wall_s * crowd, most_s)
    return Loading(wall_s, loading.cpu_s * crowd, loading.taking_s * crowd, loading.workers)


def _crowd(alone_s: float, together_s: float) -> float:
    """Return how many times as much CPU time something takes when everything runs at once."""
    return max(1.0, together_s / alone_s) if alone_s else 1.0


def _median(runs: list[Counted], name: str) -> float:
    """Return a cost a sample, the median of several runs."""
    return median(run.each(getattr(run, name)) for run in runs)


def _loading(runs: list[Counted], workers: int) -> Loading:
    wall_s = median(run.each(run.wall_s - run.no_core_s) for run in runs)
    return Loading(wall_s, _median(runs, "rest_s"), _median(runs, "taking_s"), workers)
