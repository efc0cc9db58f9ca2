"""`Race`: who is ahead among the trials of this process, as a table that is up to date; the rule for `prune=` too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tsnb.experiments import trials as board
from tsnb.experiments.trial import ENDED, Trial
from tsnb.records.scores import direction_of
from tsnb.records.writes import LoggedRow
from tsnb.sweeps.pruning.racing import SEEDS, Racing, Verdict
from tsnb.text.words import html_table, text_table

__all__ = ["Race", "race"]


class Race:
    """Which trials are ahead now: a table of verdicts, up to date each time it is shown; by `tsnb.search.race`.

    Attributes:
        metric: The logged number that decides.
        error: The chance that any verdict is wrong, however often it is looked at.
        mode: Which values are better: "min" or "max".

    Args:
        metric: Name of the number that is compared.
        error: Chance that any verdict is wrong, however often the table is looked at.
        mode: "min" or "max": which direction is good.
        of: Names of the trials; None: those of this notebook that run, and those that ran when it was last shown.
    """

    def __init__(self, metric: str, error: float, mode: str, of: Sequence[str] | None = None) -> None:
        self.metric = metric
        self.error = error
        self.mode = mode
        self._of = None if of is None else tuple(of)
        self._racing = Racing(metric, mode, error)
        self._taken: dict[str, tuple[int, int]] = {}  # the trial's run, and how many of its rows

    def begin(self, params: Mapping[str, Mapping[str, Any]], seed: Any) -> Racing:
        """Return what prunes a sweep by this rule.

        Args:
            params: The parameters of each trial by its name; may grow.
            seed: What the random numbers of all begin with; None: nothing in particular.

        Raises:
            ValueError: The trials would begin with different weights, so that nothing could be concluded.
        """
        if seed is None and any("seed" not in own for own in params.values()):
            raise ValueError(
                "prune=tsnb.search.race(...) compares trials that start with the same weights, and this "
                f"sweep has no seed. Nothing was started. Add seed=0, or sweep over {SEEDS} or more seeds "
                "(grid={'seed': [0, 1, 2]})."
            )
        return Racing(self.metric, self.mode, self.error, lambda name: (params[name], seed))

    def look(self) -> list[Verdict]:
        """Return the state of every two trials now: those that are decided first.

        Raises:
            NoSuchTrial: No trial has a given name.
        """
        if self._of is not None:
            some = [board[name] for name in self._of]
        else:
            some = [
                trial
                for trial in board.values()
                if trial.state in {"running", "paused"} or trial.name in self._taken
            ]
        rows = {trial: trial.metrics.rows for trial in some}
        for (
            trial
        ) in some:  # all of them, before the first is read: nothing is forgotten that one may still come to
            self._enter(trial, bool(rows[trial]))
        for trial in some:
            self._read(trial, rows[trial])
        return sorted(self._racing.verdicts(), key=lambda verdict: not verdict.decided)

    def _enter(self, trial: Trial, logs: bool) -> None:
        if logs and self._taken.get(trial.name, (0, 0))[0] != trial.number:
            self._racing.enter(trial.name, trial.params, trial.options.get("seed"))
            self._taken[trial.name] = trial.number, 0
        if trial.name in self._taken:  # a trial's first rows may come before the report
            self._racing.learn(trial.name, trial.report)

    def _read(self, trial: Trial, rows: Sequence[LoggedRow]) -> None:
        if trial.name not in self._taken:
            return
        for row in rows[self._taken[trial.name][1] :]:
            self._racing.watch(trial.name, row)
        self._taken[trial.name] = trial.number, len(rows)
        if trial.state in ENDED:
            self._racing.end(trial.name, withdrawn=False)

    def end_losers(self) -> list[str]:
        """Stop every running trial that another running one is ahead of now; return their names."""
        behind = [name for name, _ in self._racing.losers(self.look())]
        for name in behind:
            board[name].stop()
        return behind

    def _rows(self) -> list[list[str]]:
        rows = [["now", "sure", "batches"]]
        for verdict in self.look():
            if verdict.decided:
                now, sure = f"{verdict.ahead} is ahead of {verdict.behind}", verdict.sure
            else:
                now, sure = f"{verdict.ahead}, {verdict.behind}", verdict.reason or "open"
            rows.append([now, sure, str(verdict.batches)])
        return rows

    def __repr__(self) -> str:
        rows = self._rows()
        return "\n".join(text_table(rows)) if rows[1:] else f"no two trials have logged {self.metric!r} yet"

    def _repr_html_(self) -> str:
        rows = self._rows()
        return html_table(rows) if rows[1:] else f"<p>{escape(repr(self))}</p>"


def race(
    metric: str = "loss", *, error: float = 0.01, mode: str | None = None, trials: Sequence[str] | None = None
) -> Race:
    """Compare trials batch by batch, and stop the trials that are behind.

    The chance that any verdict is ever wrong is at most `error`, however often you look. A trial that is ahead now
    need not be ahead at the end. For that, compare at the end of an epoch or use `tsnb.search.halving`.

    Example:
        >>> prune = tsnb.search.race("loss", error=0.05)

    Args:
        metric: Number that the trials log for every batch with `tsnb.log`. Defaults to "loss".
        error: Chance of a wrong verdict, above 0 and below 0.5. Defaults to 0.01.
        mode: "min" if smaller is better, "max" if larger is. Defaults to `tsnb.records.direction`, else the
            metric's name.
        trials: Names of the trials to compare. Defaults to the running trials of this notebook.

    Returns:
        A live table of verdicts with `look()` and `end_losers()`, which is also the rule for `prune=` of
        `tsnb.sweep`.

    Raises:
        ValueError: If `error` is out of range, or `mode` is another word.
        UnknownDirection: If tsnb cannot tell whether a high or a low value of the metric is good.
    """
    if not 0.0 < error < 0.5:
        raise ValueError(
            f"error={error!r} is invalid. Pass the chance of a wrong verdict, above 0 and below 0.5 (0.01 "
            "is 1%)."
        )
    return Race(metric, error, direction_of(metric, mode), trials)
