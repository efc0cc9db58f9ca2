"""Reading batches that lie on a device: what goes wrong there is told as what it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tsnb.stream.consumer.batches.unpacking import Unpacker
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.layout import ArrayLeaf, Layout

LAYOUT = Layout("a", (ArrayLeaf("tensor", "float32", (4,), 64),), has_values=False)  # type: ignore[arg-type]
BATCH = ms.Batch(0, 1, 0, 0, 4, 7, 80, 0, 3)


class Full:
    """A view on a device that has no memory left for a copy of it."""

    def clone(self) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")


class Device:
    """Says where a batch lies."""

    def __init__(self, *leases: int) -> None:
        self.leases = set(leases)
        self.asked: list[tuple[int, int]] = []

    def has(self, lease: int) -> bool:
        return lease in self.leases

    def view(self, lease: int, size: int, owner: Any) -> Any:
        self.asked.append((lease, size))
        return Full()


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create()
    made.fit(2, 4096)
    yield made
    made.close()


def test_a_device_without_room_is_no_breach_of_the_protocol(arena: Arena) -> None:
    """The user's own error comes through: it says what to do, and ends no connection."""
    device = Device(7)
    unpacker = Unpacker(arena, 4, ScratchPool(), lambda _: None, device)  # type: ignore[arg-type]
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        unpacker.read(BATCH, LAYOUT, private=True)
    assert device.asked == [(7, 80)]


def test_a_batch_that_does_not_lie_there_costs_no_look(arena: Arena) -> None:
    """It is read from the host, as without a device."""
    device = Device()
    unpacker = Unpacker(arena, 4, ScratchPool(), lambda _: None, device)  # type: ignore[arg-type]
    assert unpacker.read(BATCH, LAYOUT, private=False).leaves[0].shape == (4,)
    assert not device.asked
