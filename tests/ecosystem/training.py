"""What the tests of trainers share: a tiny model, its losses, the pages' code blocks, and a watch on held batches."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tests.ecosystem.trying import copied, same
from tsnb.stream.consumer.attaching import detach_all

PAGES = Path(__file__).parents[2] / "docs" / "frameworks"
SAMPLES, BATCH, EPOCHS = 50, 4, 2
HELD = 8


class Digits(Dataset[Any]):
    """Sample i: eight numbers, and one of three classes."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return torch.sin(torch.arange(8.0) * (index + 1)), index % 3


class Rows(Digits):
    """The same as dicts."""

    def __getitem__(self, index: int) -> Any:
        images, labels = super().__getitem__(index)
        return {"images": images, "labels": labels}


class Network(torch.nn.Module):
    """A small one, which begins with the same weights each time."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))

    def forward(self, images: torch.Tensor) -> Any:
        """Return the scores."""
        return self.layers(images)


class Steps:
    """A training step that notes its loss."""

    def __init__(self) -> None:
        self.network = Network()
        self.optimizer: Any = torch.optim.SGD(self.network.parameters(), lr=0.05)
        self.losses: list[float] = []

    def __call__(
        self,
        images: Any,
        labels: Any,
        network: Any = None,
        optimizer: Any = None,
        backward: Callable[[Any], Any] = torch.Tensor.backward,
    ) -> float:
        optimizer = optimizer or self.optimizer
        loss = torch.nn.functional.cross_entropy((network or self.network)(images), labels)
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()
        self.losses.append(loss.item())
        return loss.item()


class Watch:
    """A consumer's `transform` that holds the last batches, and looks whether they stay as they were."""

    def __init__(self) -> None:
        self.held: deque[tuple[Any, Any]] = deque(maxlen=HELD)
        self.batches = 0

    def __call__(self, batch: Any) -> Any:
        self.batches += 1
        self.held.append((batch, copied(batch)))
        for held, as_it_was in self.held:
            assert same(held, as_it_was), "a batch changed while it was held"
        return batch


class Shared:
    """The loader served, and `tsnb` as the pages' blocks see it: whatever attaches is watched."""

    def __init__(self, dataset: Dataset[Any] | None = None, make_epoch: Any = None) -> None:
        self.watch = Watch()
        self.producer = tsnb.serve(make_epoch or DataLoader(dataset or Digits(), BATCH), name="shared")
        self.tsnb = SimpleNamespace(attach=partial(tsnb.attach, stream="shared", transform=self.watch))

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *_: object) -> None:
        detach_all()
        self.producer.stop()


def blocks(page: str) -> list[Any]:
    """Return a page's code blocks, to be executed."""
    path = PAGES / page
    found = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    return [compile(block, str(path), "exec") for block in found]


def own_losses(epochs: int = EPOCHS) -> list[float]:
    """Return the losses of a plain loop over a loader of its own."""
    step = Steps()
    for _ in range(epochs):
        for images, labels in DataLoader(Digits(), BATCH):
            step(images, labels)
    return step.losses
