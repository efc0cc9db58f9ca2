"""The losses that a trial reports of the batch that it has just computed, for rounds that choose samples by them.

Which sample a row is comes with each batch of a data set that grows (`protocol.messages.Drawn`), and is cut and joined
as the rows are (`rebatching`). So what is reported goes to the producer by sample, whatever the size of this consumer's
batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from tsnb.errors import TsnbError
from tsnb.stream.protocol import messages as ms

__all__ = ["LOSSES_A_POINT", "Given", "Losses", "checked", "in_payloads", "with_rows"]

MOST = 8000
"""Samples in one payload: 64 kB, half of what a packet may have."""
LOSSES_A_POINT = 1 << 15
"""Bytes that cost a consumer one point: they are numbers to be added, and four packets tell those of the largest batch
that tells them."""
MAX_LOSS = 1e30
"""Moving averages of float32 stay finite far below their largest number."""


class Losses(msgspec.Struct, frozen=True):
    """The losses of samples that a trial has trained on, for rounds that choose by them."""

    samples: bytes
    """The index of each sample in the loader's dataset, as little-endian uint32."""
    losses: bytes
    """The loss of each, as little-endian float32."""


class Given(NamedTuple):
    """What is known of the rows of a batch that a loop was given."""

    drawn: bytes
    """The index of each row's sample, as `protocol.messages.Drawn`; empty: it is not known."""
    weights: bytes = b""
    """The weight of each, as `protocol.messages.Drawn`; empty: all are 1."""

    @property
    def rows(self) -> int:
        """Rows of which the sample is known."""
        return len(self.drawn) // 4

    def weighted(self) -> torch.Tensor:
        """Return the weight of each row: float32 [rows]."""
        if len(self.weights) != len(self.drawn):
            return torch.ones(self.rows)
        return torch.from_numpy(np.frombuffer(self.weights, "<f4").astype(np.float32))


def with_rows(call: str, name: str, stream: ms.Welcome, given: Given | None) -> Given:
    """Return what is known of the rows of a consumer's present batch.

    Args:
        call: What its user has called.
        name: The consumer's name.
        stream: Its stream.
        given: Of the batch that its loop was given last; None: it is not in a loop.

    Raises:
        TsnbError: There is no such batch, or it is not known which samples they are.
    """
    if not stream.grows:
        raise TsnbError(
            f"consumer.{call} works in rounds, and stream {stream.name!r} has none because its dataset "
            "does not grow. Serve a DataLoader over tsnb.data.grow(...)."
        )
    if given is None:
        raise TsnbError(
            f"consumer.{call} refers to the current batch of a loop, and no loop over {name!r} is "
            "running. Call it inside the loop over its batches."
        )
    if not given.drawn:
        raise TsnbError(
            f"consumer.{call} needs one row per sample, and this batch of {stream.name!r} does not say "
            "which samples its rows are. Return one row per sample from the collate_fn, in their "
            "order, and use batches of at most 30,000 rows."
        )
    return given


def checked(losses: Any, rows: int) -> npt.NDArray[np.float32]:
    """Return reported losses: float32 [rows].

    Args:
        losses: A tensor on any device, an array or a list; one number for each row.
        rows: Of the batch.

    Raises:
        TypeError: It is something else.
        ValueError: They are not as many as rows, or one is not a finite number.
    """
    try:
        if losses is None:
            raise TypeError
        tensor = losses.detach().cpu() if isinstance(losses, torch.Tensor) else losses
        found = np.asarray(tensor.float() if isinstance(tensor, torch.Tensor) else tensor, np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"Expected losses as a tensor, an array or a list of numbers, got {type(losses).__name__}: "
            f"{losses!r:.60}."
        ) from None
    if found.shape != (rows,):
        raise ValueError(
            f"Losses of shape {found.shape} do not fit a batch of {rows} samples. Report one loss per "
            'sample, before averaging, for example cross_entropy(model(x), y, reduction="none").'
        )
    wrong = np.flatnonzero(~(np.abs(found) < MAX_LOSS))
    if len(wrong):
        raise ValueError(
            f"The loss of row {wrong[0]} is {found[wrong[0]]}, so no losses of this batch were "
            "reported. Report finite losses only. If the training diverges, lower the learning rate."
        )
    return found.astype(np.float32)


def in_payloads(drawn: bytes, losses: npt.NDArray[np.float32]) -> Iterator[Losses]:
    """Give the payloads of the extension `rounds` that tell the losses of some samples.

    Args:
        drawn: As `Given`.
        losses: float32, one for each.
    """
    told = losses.astype("<f4").tobytes()
    for start in range(0, len(told), 4 * MOST):
        stop = start + 4 * MOST
        yield Losses(drawn[start:stop], told[start:stop])
