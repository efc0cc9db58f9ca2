"""What a stream is served from, and how: settled in the notebook before a kernel is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tsnb.clusters import address_of, check_in_step
from tsnb.config import check_balance

__all__ = ["RECONNECT_S", "RESTARTS", "ServeOptions", "Shipment", "seed_of"]

RESTARTS = ("on-crash",)
"""When a producer may be started again by itself."""


RECONNECT_S = 60.0
"""How long consumers wait for a producer that is being started again: a kernel with torch needs seconds on an idle
machine, many on one that runs out of memory."""


@dataclass(frozen=True)
class ServeOptions:
    """How a loader is served: `tsnb.serve`'s keywords, and two that only a background kernel knows.

    Raises:
        ValueError: `engine` is none; `restart` is none of `RESTARTS`, or stands beside `detach` or a cluster; there is
            no such mode, or not on a cluster.
    """

    window: int = 8
    """How many batches the fastest consumer may be ahead of the slowest."""
    rubber_band: float = 0.02
    """The share of an epoch that may have gone by for a newcomer to still get all of it."""
    patience_s: float = 30.0
    """Seconds that others wait for a consumer that stands still."""
    seed: int | None = None
    """Makes the order of samples a function of (seed, epoch)."""
    workers: int | None = None
    """The DataLoader's number of workers, where that is to be another."""
    engine: str = "local"
    """"ray" or "ray://HOST:PORT": for consumers on every machine of that cluster."""
    mode: str = "pace"
    """How compute is divided between consumers."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """By consumer name, for the mode "weights"."""
    rebalance: bool = False
    """Whether cores and torch threads are moved between trials and the loader's workers."""
    guard: bool = False
    """Whether all trials look for changes of a batch in place by checksums."""
    detach: bool = False
    """Whether it outlives this notebook."""
    restart: str | None = None
    """"on-crash": its kernel is started again when it dies without having been asked to."""

    def __post_init__(self) -> None:
        check_balance(self.mode, self.weights)
        if self.restart is not None and self.restart not in RESTARTS:
            raise ValueError(
                f"restart={self.restart!r}: give {' or '.join(map(repr, RESTARTS))}, or nothing."
            )
        if address_of(self.engine) is not None:
            check_in_step(self.mode, rebalance=self.rebalance)
            if self.restart is not None:
                raise ValueError(
                    "restart= works on this machine only: consumers on others would not wait for a new producer. Leave "
                    "out restart or engine."
                )
        if self.restart is not None and self.detach:
            raise ValueError(
                "a detached producer cannot be started again by the notebook that it outlives: leave out detach or "
                "restart. For both, serve it in a terminal: tsnb serve MODULE:NAME --name NAME --restart on-crash."
            )


@dataclass(frozen=True)
class Shipment:
    """What a producer kernel is started from, as often as it is started."""

    arrival: Mapping[str, Any]
    """What the kernel needs to take in what was shipped (`orders.to_arrive`)."""
    variable: str
    """What the loader is called there."""
    source: str | None
    """A cell that builds it there; None: it was shipped."""
    original: Callable[[], Any]
    """Returns the notebook's own loader, while there is that."""
    fingerprint: str = ""
    """What two loaders share that are alike (`kernels.pickling.fingerprint`); "" where it is not known."""

    def discard(self) -> None:
        """Let go of what was shipped."""
        self.arrival["cargo"].close()


def seed_of(loader: Any, given: int | None, spare: int | None) -> int | None:
    """Return the seed of a loader that may be started again: a DataLoader that was given none takes the spare one.

    Not one that is iterated in a way of its own, which takes no seed from us, and not one over an IterableDataset: what
    that gives is its own affair, and a seed would be the user's word that it gives the same again.

    Args:
        loader: What is served.
        given: The user's.
        spare: One that was chosen; None: nothing is started again.
    """
    if given is not None or spare is None:
        return given
    from torch.utils.data import IterableDataset

    from tsnb.producer.dataloader import is_plain

    seedable = is_plain(loader) and not isinstance(loader.dataset, IterableDataset)
    return spare if seedable else None
