"""What a source gives and has, and what may stand in for parts of a DataLoader.

| contract | who implements it | who calls it, in the producer |
|---|---|---|
| `Given` | each pass of a `sources.Source` | the loading thread |
| `Workers` | a DataLoader's workers | the loading thread; `pids`, `change` and numbers: any thread |
| `OwnOrder` | a data set that grows | the loading thread |
| `SampleStore` | a cache of prepared samples | the loading thread |

`tsnb.serving` makes orders and stores. The producer closes them once its threads have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from torch.utils.data import DataLoader, get_worker_info

from tsnb.errors import LoaderFailed

__all__ = [
    "AllGiven",
    "Covering",
    "EpochIs",
    "EpochLength",
    "Given",
    "OrderedBatches",
    "OwnOrder",
    "Ready",
    "SampleStore",
    "Skipped",
    "StandIn",
    "StepFailed",
    "Workers",
    "number_of",
    "worker_row",
]


class StepFailed(LoaderFailed):
    """What a step after the loader raised; the loader itself is in order.

    It crosses from a worker as torch's text about an error, from which it takes its own text again.

    Args:
        text: What happened. A further line says what to do, and the lines after that are a traceback.
    """

    def __init__(self, text: str) -> None:
        _, met, after = text.partition(f"{__name__}.StepFailed: ")
        self._text = (after if met else text).rstrip("\n")
        what, _, more = self._text.partition("\n")
        self._what = what
        self._advice, _, trace = more.partition("\n")
        super().__init__(self.said(""), trace)

    @classmethod
    def of(cls, what: str, advice: str = "", trace: str = "") -> StepFailed:
        """Make one.

        Args:
            what: What happened, in a line. Where it has advice, it has a colon before what was raised.
            advice: What to do, in a line.
            trace: A traceback.
        """
        return cls(f"{what}\n{advice}\n{trace}")

    def said(self, where: str) -> str:
        """Return what happened and what to do, in a line; `where`: at which batch it was."""
        if not self._advice:
            return self._what
        kind, colon, message = self._what.partition(": ")
        return f"{kind}{f' {where}' if where else ''}{colon}{message} {self._advice}"

    def __str__(self) -> str:
        return self._text


class Ready(NamedTuple):
    """The next batch of a pass."""

    batch: Any
    """`Placed` where a worker has written it into the arena; else what the loader gave, which is copied."""
    drawn: Sequence[Any] | None = None
    """What the sampler gave for its rows: indices of the dataset; None: not known."""


class Skipped(NamedTuple):
    """A batch before the one with which the pass should begin: no consumer gets it, and its slot is free."""

    batch: Any
    """As `Ready.batch`."""


class AllGiven(NamedTuple):
    """Comes after the last batch where that is known before the workers have ended, which takes them a while."""


class Covering(NamedTuple):
    """Comes before the batches of a pass that holds more samples than it was asked for."""

    cover: int | None
    """The samples that it holds, a bit each; None: all."""


class EpochIs(NamedTuple):
    """Comes before the batches of a pass that is another epoch than it was asked for, and while there is none yet."""

    number: int


Given = Ready | Skipped | AllGiven | Covering | EpochIs
"""What a pass gives, one after the other."""


class Workers(Protocol):
    """The processes in which a source prepares its batches."""

    @property
    def number(self) -> int:
        """How many there are; may change with the epoch."""

    @property
    def ahead(self) -> int:
        """Batches that they prepare ahead of the one asked for; may change with every batch."""

    @property
    def prefetch(self) -> int:
        """Batches that each prepares ahead, in the loader's own words."""

    @property
    def wanted(self) -> int:
        """Their number, once what was asked for has taken effect."""

    @property
    def handing_over(self) -> bool:
        """Whether workers from before a change still hand in what they had."""

    def pids(self) -> tuple[int, ...]:
        """Return the processes that there are now."""

    def wake(self) -> None:
        """Let those go on that were stopped, so that they can be ended."""

    def why_fixed(self, number: int) -> str:
        """Return why there cannot be so many now; "" if there can."""

    def change(self, number: int, prefetch: int | None = None, *, advised: bool = True) -> None:
        """Change their number, from the next batch that has not been handed out yet.

        Args:
            number: Processes, 1 or more; as many as now are replaced by new ones.
            prefetch: Batches that each prepares ahead, 1 or more; None: as many as now.
            advised: Whether torch may warn of more than there are cores: not where that was measured to help.

        Raises:
            ValueError: There cannot be so many; says why.
        """


class StandIn:
    """Stands for the loader's dataset in its workers.

    Args:
        dataset: The user's; may have been made fit to travel.

    Attributes:
        dataset: The user's.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]


def number_of(index: Any, samples: int) -> int | None:
    """Return a sample's number, if an index is one of 0 to `samples` - 1."""
    try:
        number: int = index.__index__()
    except (AttributeError, TypeError):
        return None
    return number if 0 <= number < samples else None


def worker_row() -> int:
    """Return the row of shared memory that this worker counts in: 0 in the serving process, else from 1 on."""
    info = get_worker_info()
    return 0 if info is None else info.id + 1


class EpochLength(Protocol):
    """How long an epoch is by now."""

    @property
    def batches(self) -> int:
        """In it."""

    @property
    def samples(self) -> int:
        """In it."""


class OrderedBatches(Protocol):
    """Orders batches in place of the loader's batch sampler. Used by the loading thread."""

    @property
    def order(self) -> EpochLength | None:
        """Of the epoch that was begun last."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration orders."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[list[int]]: ...


class OwnOrder(Protocol):
    """The order of a data set that grows: samples enter an epoch while it is given."""

    @property
    def seed(self) -> int:
        """Of the order and of the workers' random numbers."""

    @property
    def order(self) -> str:
        """As `Source.order`."""

    def batches(self) -> OrderedBatches:
        """Return what orders its batches."""

    def weights_of(self, samples: Sequence[int]) -> bytes:
        """Return the weights of a batch's samples, as `protocol.messages.Drawn`; empty where all are 1.

        Args:
            samples: Of the epoch that was begun last.
        """

    def close(self) -> None:
        """Let go of its files. Called in the thread that stops the stream, without the producer's lock."""


class SampleStore(Protocol):
    """Keeps prepared samples for epochs to come."""

    def dataset(self, dataset: Any, loader: DataLoader[Any], workers: int) -> StandIn:
        """Return what workers see in place of the loader's dataset. Called once, before they start.

        Args:
            dataset: The loader's, made fit to travel.
            loader: The user's.
            workers: How many there will be.

        Raises:
            ValueError: Its samples cannot be kept; says why.
            ArenaFull: There is not enough memory.
        """

    def epoch_over(self, *, whole: bool) -> None:
        """An epoch has been prepared to its end. Called by the loading thread, while no worker prepares anything.

        Args:
            whole: Whether from its start, too.
        """

    def close(self) -> None:
        """Let go of the memory. Called in the thread that stops the stream, under the producer's lock."""
