"""A stream of numbers to sweep on, an outlet that remembers, and an end to what a test started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.experiments import trials


class Page:
    """An outlet that keeps what was shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, dict[str, Any]]] = []

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        self.shown.append((kind, content))

    @property
    def text(self) -> str:
        return "".join(content["text"] for kind, content in self.shown if kind == "stream")


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def numbers() -> Iterator[tsnb.streams.Producer]:
    """Serve 0 to 399 in an order of its own each epoch, 4 at a time."""
    loader = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4, shuffle=True)
    with tsnb.serve(loader, name="numbers") as producer:
        yield producer


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """End this test's trials with it."""
    yield
    trials.clear()
