"""What a row of docs/what-can-be-served.md says of a loader, and the samples that all loaders give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

SAMPLES, BATCH = 50, 4
SEED = "with `seed=`"


class Images(Dataset[Any]):
    """Sample i: eight numbers that tell it, and its label."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return torch.arange(8) * 0.1 + index, index


@dataclass(frozen=True)
class Row:
    """One kind of loader."""

    source: str
    """As the page calls it."""
    make: Callable[[Path], Any]
    """Makes a new one, from a directory with shards."""
    in_place: bool
    """Whether workers write into the arena; else the producer copies each batch once."""
    length: bool
    """Whether the consumer has `len()`."""
    set_epoch: str
    """What is told the epoch, if anything of it is."""
    resume: str
    """"yes", with a seed given to `tsnb.serve`, or "no"."""
    needs: str = ""
    """A package that `make test` does not install: without it the row is left out."""

    @property
    def cells(self) -> list[str]:
        """The row of the page's table."""
        path = "in place" if self.in_place else "copied"
        return [self.source, path, "yes" if self.length else "no", self.set_epoch or "-", self.resume]
