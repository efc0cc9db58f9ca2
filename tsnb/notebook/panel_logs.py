"""The logs of this notebook's trials, as the panel's log pane asks for them."""

from __future__ import annotations

from tsnb.experiments.board import trials
from tsnb.panel.logs import LogPart

__all__ = ["TrialLogs"]


class TrialLogs:
    """Gives the panel the logs of the trials on this notebook's board."""

    def trials(self) -> list[tuple[str, str]]:
        """Return name and state of each trial, in the order of their first start."""
        return [(trial.name, trial.state) for trial in trials.values()]

    def read(self, name: str, run: str, position: int, most: int) -> LogPart | None:
        """Return what a trial's log has from a position on, from its start if that was another run's."""
        trial = trials.get(name)
        if trial is None:
            return None
        this = f"{trial.started_s:.6f}"
        start, text, still_open = trial.log_since(position if run == this else 0, most)
        return LogPart(this, start, text, still_open)
