"""A small network in two halves, and samples for it that count how often they are prepared."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES = 52
ANEW = {"weights": torch.full((2,), float(int.from_bytes(os.urandom(3), "little")))}
"""Other ones in each process that imports this module."""


def computed_anew(batch: Any) -> Any:
    """Compute with numbers of this module, which a spawned worker imports again."""
    return batch[0].flatten(1)[:, :2] * ANEW["weights"], batch[1]


def trunk() -> nn.Module:
    """Return the frozen half: always the same weights."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5))
    return layers.eval().requires_grad_(False)


class Pictures(Dataset[Any]):
    """Sample i is a picture that follows from i."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self.samples = samples
        self.prepared = torch.zeros(samples, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        self.prepared[index] += 1
        return torch.full((1, 8, 8), float(index)).cumsum(-1), index


class Named(Pictures):
    """The same, in a dict."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return {"image": image, "label": label, "name": f"picture {index}"}


class Counting(nn.Module):
    """Counts how many samples go through it, in all workers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self.inner = trunk()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        self.seen += len(image)
        out: torch.Tensor = self.inner(image)
        return out


def loader(dataset: Dataset[Any] | None = None, **options: Any) -> DataLoader[Any]:
    return DataLoader(
        dataset or Pictures(), **{"batch_size": 8, "num_workers": 2, "shuffle": True, **options}
    )
