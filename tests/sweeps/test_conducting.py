"""What a conductor does for each piece of news: it may not grow with the number of trials of its sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tsnb.conducting.conductor import Conductor, TrialSource
from tsnb.experiments.bookkeeping import LoggedNumbers
from tsnb.experiments.trial import Trial
from tsnb.planners.queueing import Places
from tsnb.records.writes import LoggedRow
from tsnb.sweeps.pruning.rungs import Ladder, halving

MANY, FEW = 2000, 200
AT_ONCE = 4


class Counted(dict[str, Any]):
    """The runners of a ladder; notes how many of them are looked at when all are."""

    looked_at = 0

    def values(self) -> Any:
        self.looked_at += len(self)
        return super().values()

    def items(self) -> Any:
        self.looked_at += len(self)
        return super().items()


class Told:
    """A trial that attaches, logs twice and is done, and tells of all of it at once: there is no kernel behind it."""

    def __init__(self, name: str) -> None:
        self.name, self.state, self.attached = name, "running", False
        self.metrics = LoggedNumbers()
        self.reports = 0
        self.life = SimpleNamespace(was_queued=False)

    @property
    def report(self) -> dict[str, Any]:
        self.reports += 1
        return {"samples": 80}

    def listen(self, listener: Callable[[Any, Sequence[LoggedRow]], None]) -> None:
        self.attached = True
        listener(self, [])
        for step in (10, 20):
            listener(self, [LoggedRow(step, 0, step, 8 * step, 0.0, {"loss": float(self.name)})])
        self.state = "done"
        listener(self, [])


class Launches(TrialSource):
    """Starts such trials."""

    def __init__(self) -> None:
        self.trials: list[Told] = []
        self.ended_ones = 0

    def launch(self, name: str, gate: Path | None) -> Trial:
        self.trials.append(Told(name))
        return self.trials[-1]  # type: ignore[return-value]

    def ended(self, trial: Trial) -> None:
        self.ended_ones += 1

    def say(self, line: str) -> None:
        pass


def looks(number: int) -> tuple[int, int]:
    """Conduct so many trials; return how often a report, and how often a runner among all was looked at."""
    places, source, ladder = Places(AT_ONCE), Launches(), Ladder(halving("loss", every=100))
    places.add(str(index) for index in range(number))
    counted = ladder._runners = Counted()
    Conductor(source, places, ladder).run()
    assert source.ended_ones == number
    ladder.check()
    return sum(trial.reports for trial in source.trials), counted.looked_at


def test_the_work_for_a_sweep_grows_with_its_trials_and_not_with_their_square() -> None:
    """What ran an hour ago is not looked at again for each number that is logged now."""
    few, many = looks(FEW), looks(MANY)
    for looked_at, at in zip(many, few, strict=True):
        assert looked_at <= 2 * MANY / FEW * at + MANY
    assert many[0] <= 6 * (1 + AT_ONCE) * MANY
