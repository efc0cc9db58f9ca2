"""A device that is memory of the CPU, behind the same contract as a GPU: copies are late, and in other processes seen.

Copies run in a thread of their own, in order, each after a random while, as on a stream. *Recorded* and *over* of each
place's *ready* are numbers in the shared memory: a view waits for the last one that was recorded when it is made.
What a consumer does with a view is over when it lets go of it.
"""

from __future__ import annotations

import mmap
import os
import queue
import random
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

import torch

from tsnb.device_sharing.copies import SharingRefused
from tsnb.device_sharing.kinds import kinds
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.leases import lease

HEAD = 4096
_PAIR = struct.Struct("<QQ")
FREE_BYTES = 1 << 30


class FakeKind:
    """The kind `cpu`: its one device is called `fake`.

    Args:
        late_s: A copy takes up to twice so long.
        closed: Why it cannot be opened in a consumer; empty: it can.
        free: Bytes that are free there.
    """

    def __init__(self, late_s: float = 0.001, closed: str = "", free: int = FREE_BYTES) -> None:
        self.late_s, self.closed, self.free = late_s, closed, free

    def identity(self, device: torch.device) -> str:
        return "fake"

    def free_bytes(self, identity: str) -> int:
        return self.free

    def copies(self, identity: str, arena: Arena, places: int, place_bytes: int) -> FakeCopies:
        return FakeCopies(arena, places, place_bytes, self.late_s)

    def views(self, device: torch.device, told: Mapping[str, Any]) -> FakeViews:
        if self.closed:
            raise SharingRefused(self.closed)
        return FakeViews(told)


def install(**options: Any) -> None:
    """Let `share_on_device=True, device="cpu"` mean this device, in this process."""
    kinds["cpu"] = lambda: FakeKind(**options)


class FakeCopies:
    """The producer's side."""

    def __init__(self, arena: Arena, places: int, place_bytes: int, late_s: float = 0.0) -> None:
        self.arena, self.place_bytes, self.late_s = arena, place_bytes, late_s
        self.fd = os.memfd_create("fake-device")
        os.ftruncate(self.fd, HEAD + places * place_bytes)
        self.memory = mmap.mmap(self.fd, 0)
        self.begun: dict[int, int] = {}
        self.over: dict[int, int] = {}
        self.orders: queue.Queue[tuple[int, int, int] | None] = queue.Queue()
        self.stream = threading.Thread(target=self._run, daemon=True)
        self.stream.start()

    def copy(self, source: int, size: int, place: int) -> None:
        self.begun[source] = self.begun.get(source, 0) + 1
        recorded = _U64.unpack_from(self.memory, place * _PAIR.size)[0]
        _U64.pack_into(self.memory, place * _PAIR.size, recorded + 1)
        self.orders.put((source, size, place))

    def _run(self) -> None:
        while (order := self.orders.get()) is not None:
            source, size, place = order
            start, first = self.arena.offset_of(source), HEAD + place * self.place_bytes
            half = size // 2  # what changes meanwhile shows
            time.sleep(random.random() * self.late_s)
            self.memory[first : first + half] = self.arena.buffer[start : start + half]
            time.sleep(random.random() * self.late_s)
            self.memory[first + half : first + size] = self.arena.buffer[start + half : start + size]
            over = _U64.unpack_from(self.memory, place * _PAIR.size + 8)[0]
            _U64.pack_into(self.memory, place * _PAIR.size + 8, over + 1)
            self.over[source] = self.over.get(source, 0) + 1

    def copying(self, source: int) -> bool:
        return self.over.get(source, 0) < self.begun.get(source, 0)

    def enter(self) -> Mapping[str, Any]:
        return {"pid": os.getpid(), "fd": self.fd, "place_bytes": self.place_bytes}

    def stop(self) -> None:
        self.orders.put(None)
        self.stream.join()

    def close(self) -> None:
        self.stop()
        os.close(self.fd)


_U64 = struct.Struct("<Q")


class FakeViews:
    """A consumer's side."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        fd = os.open(f"/proc/{told['pid']}/fd/{told['fd']}", os.O_RDWR)
        try:
            self.memory = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        self.place_bytes = int(told["place_bytes"])

    def view(self, place: int, size: int, owner: Any) -> torch.Tensor:
        recorded = _U64.unpack_from(self.memory, place * _PAIR.size)[0]
        deadline = time.monotonic() + 30
        while _U64.unpack_from(self.memory, place * _PAIR.size + 8)[0] < recorded:
            assert time.monotonic() < deadline, "a copy that does not end"
            time.sleep(0.0002)
        keep = [owner]
        held = lease(self.memory, HEAD + place * self.place_bytes, self.place_bytes, keep.clear)
        return torch.frombuffer(held, dtype=torch.uint8, count=size)

    def close(self) -> None:
        pass  # the mapping goes with the last view
