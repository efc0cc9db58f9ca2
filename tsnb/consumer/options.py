"""How a consumer wants its batches, and what it has taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Options", "Stats"]


@dataclass(frozen=True)
class Options:
    """How one consumer wants its batches; see `tsnb.attach`."""

    batch_size: int | None = None
    drop_last: bool = False
    device: str | torch.device | None = None
    transform: Callable[[Any], Any] | None = None
    private: bool = False
    on_lag: str = "wait"
    join: str = "epoch"
    reconnect_s: float | None = None


@dataclass(frozen=True)
class Stats:
    """What a consumer has taken so far."""

    batches: int
    """Loader batches."""
    samples: int
    """Samples in them."""
    epochs: int
    """Epochs taken to their end."""
    inside_s: float
    """Seconds spent inside epochs: waiting, and in the loop's own code."""
    copied: int
    """Batches that had to be copied: `private`, past the hold, or straddling two loader batches."""
    held: int
    """Slots of the arena that are kept by batches still referenced in this process."""
    waited_s: float
    """Seconds spent waiting for batches, whoever was to blame."""
    skipped: int = 0
    """Loader batches that were given up (`on_lag="skip"`)."""
    reconnects: int = 0
    """How often the producer was started again, and this consumer went on."""
