"""A stream's loader on its way to a kernel: settled in the notebook before one is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tsnb.kernels.cargo.unnamed_file import Cargo
from tsnb.stream.memory.nameless import make_nameless

__all__ = ["LEAVING_MESSAGE", "RECONNECT_S", "SERVED_MESSAGE", "KeptSamples", "Shipment", "seed_of"]
SERVED_MESSAGE = "tsnb_served"
"""Content: the seed of a producer kernel's order (a number or None), and the order's identity."""

LEAVING_MESSAGE = "tsnb_leaving"
"""Without content: the stream of a producer kernel begins to stop."""

RECONNECT_S = 60.0
"""How long consumers wait for a producer that is being started again: a kernel with torch needs seconds on an idle
machine, many on one that runs out of memory."""


class KeptSamples:
    """The memory of a stream's cache, which outlives each of the kernels that serve from it."""

    def __init__(self) -> None:
        self._cargo: Cargo | None = None

    def cargo(self) -> Cargo:
        """Return the cargo to send to a kernel.

        Raises:
            OSError: The system gives no shared memory.
        """
        if self._cargo is None:
            self._cargo = Cargo.received(make_nameless(), shared=True)
        return self._cargo

    def close(self) -> None:
        """Let go of it."""
        self._cargo = None


@dataclass(frozen=True)
class Shipment:
    """A loader, and all that a producer kernel needs to serve it, as often as it is started."""

    arrival: Mapping[str, Any]
    """What the kernel needs to take in the shipped variables (`orders.to_arrive`)."""
    variable: str
    """The loader's name there."""
    source: str | None
    """A cell that builds it there; None: it was shipped."""
    original: Callable[[], Any]
    """Returns the notebook's own loader while it exists."""
    fingerprint: str = ""
    """The same for two loaders that are alike (`kernels.pickling.fingerprint`); "" where it is not known."""
    kept: KeptSamples = field(default_factory=KeptSamples)
    """The cache of its samples: another loader has another."""

    def discard(self) -> None:
        """Let go of the shipped variables."""
        self.arrival["cargo"].close()
        self.kept.close()


def seed_of(loader: Any, given: int | None, spare: int | None, *, restarts: bool = True) -> int | None:
    """Return the seed of a loader: a DataLoader that was given none takes the spare one.

    Not one that has a generator of its own, unless the stream may be started again. Not one that is iterated in a way
    of its own, which takes no seed from us, and not one over an IterableDataset: what that gives is its own affair, and
    a seed would be the user's word that it gives the same again.

    Args:
        loader: What is served.
        given: The user's.
        spare: The notebook's, or one that was chosen for a stream that may be started again; None: there is none.
        restarts: Whether it may be started again.
    """
    if given is not None or spare is None:
        return given
    from torch.utils.data import IterableDataset

    from tsnb.stream.loader.facts import is_plain
    from tsnb.stream.loader.repeating import sampler_chain

    if not is_plain(loader) or isinstance(loader.dataset, IterableDataset):
        return None
    drawing = [loader, *sampler_chain(loader.batch_sampler or loader.sampler)]
    own = any(getattr(one, "generator", None) is not None for one in drawing)
    return spare if restarts or not own else None
