"""What says which of several trials end early, from what they log. Pure: events in, trials to be stopped out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsnb.records.writes import LoggedRow

__all__ = ["Cut", "Rule"]


@dataclass(frozen=True)
class Cut:
    """One trial that is to be stopped."""

    name: str
    """The trial."""
    step: int
    """The step of the rung."""
    value: float
    """What it had logged there."""
    place: int
    """Its place among those that were compared, from 1."""
    of: int
    """How many those were."""
    said: str = ""
    """Why, in words, where its place does not say it."""
    parents: tuple[str, ...] = ()
    """Trials of one of which a clone is to take its place; where none can be made, it goes on. Empty: none is."""

    @property
    def why(self) -> str:
        """Why it is stopped."""
        return self.said or f"rank {self.place} of {self.of}"


class Rule(ABC):
    """Says which trials of one sweep are stopped early.

    Attributes:
        metric: The logged number that decides.

    Args:
        metric: Name of the number that is compared.
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric

    @property
    @abstractmethod
    def wanted(self) -> str:
        """What the trials have to do before any can be stopped early."""

    @property
    @abstractmethod
    def reached(self) -> bool:
        """Whether any trial has ever been compared."""

    @abstractmethod
    def start(self, names: Iterable[str]) -> None:
        """Take in trials that start together."""

    @abstractmethod
    def take(self, name: str, row: LoggedRow) -> list[Cut]:
        """Take what a trial logged; return the trials to stop."""

    @abstractmethod
    def end(self, name: str, *, withdrawn: bool) -> list[Cut]:
        """Note that a trial has ended; return the trials to stop now that no rung waits for it.

        Args:
            name: The trial.
            withdrawn: It failed, crashed or was stopped by hand: its values count no more.
        """

    def learn(self, name: str, report: Mapping[str, Any]) -> None:  # noqa: B027 (most rules need none of it)
        """Take what is known of a trial's consumers, as `Trial.report` has it. Called before its rows are taken."""

    def remarks(self) -> list[str]:
        """Return what the user is to be told of trials that cannot be compared, each once."""
        return []

    def keep(self, name: str) -> None:  # noqa: B027 (only what is to be replaced is kept)
        """Let a trial that was to be replaced go on."""

    def adopt(self, name: str, parent: str) -> None:  # noqa: B027 (only what is replaced has clones)
        """Take in a clone: it has come as far as its parent."""
