"""Batches on GPUs: one memory for each GPU that consumers ask for, filled once a batch, by the first to ask.

A consumer's wish is a word: kind, identity of the device, namespaces of its process. The memory is taken with the
first batch that a consumer with that wish is granted, by a thread of its own, since starting CUDA takes seconds; till
then, and wherever there is no place, batches come through the host's arena alone. It is given back with the last such
consumer.

A slot of the host's arena stays taken while a copy from it is under way, although all readers have let go of it.

Everything here is called under the producer's lock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from tsnb.device_sharing.copies import DeviceCopies, DeviceKind, SharingRefused
from tsnb.device_sharing.gpu_slots import GpuSlots
from tsnb.device_sharing.kinds import kind_of, namespaces, obstacle_between, read_wish
from tsnb.machine.gpus import under_wsl
from tsnb.stream.decisions import events as ev
from tsnb.stream.memory.arena import Arena, aligned
from tsnb.stream.producer.devices import StreamDevices
from tsnb.stream.protocol import messages as ms

__all__ = ["OnDevices"]

_log = logging.getLogger("tsnb")

SLACK = 10
"""Places beyond the window: what a few consumers hold, and what has been granted ahead."""
ROOM = 1.25
"""A place has room for this many times the first batch; a larger one comes through the host's arena."""
SHARE = 0.25
"""Of the memory that is free on the device: the models need the rest."""
FEWEST = 3
"""Places with which sharing is worth its memory."""
MOST = 256
"""Places of which a consumer can be told in one message, each with the handle of its event."""

Tell = Callable[[int, ms.Message], None]

_left_behind: list[DeviceCopies] = []
"""Kept until the process ends: consumers may still read that memory, and record its events."""


class _Stock:
    """One device's memory, and its readers."""

    def __init__(self) -> None:
        self.members: set[int] = set()
        self.asked = False
        self.copies: DeviceCopies | None = None
        self.gpu_slots = GpuSlots(0)
        self.place_bytes = 0
        self.refusal = ""


class OnDevices(StreamDevices):
    """The devices of one producer.

    Args:
        arena: The host's arena.
        lock: The producer's lock; taken by the thread that takes memory.
        window: How many batches the fastest consumer may be ahead.
        tell: Sends a member a message.

    Attributes:
        copied_bytes: Bytes copied to devices so far.
    """

    def __init__(
        self, arena: Arena, lock: contextlib.AbstractContextManager[Any], window: int, tell: Tell
    ) -> None:
        self.copied_bytes = 0
        self._arena = arena
        self._lock = lock
        self._places = min(window + SLACK, MOST)
        self._tell = tell
        self._stocks: dict[str, _Stock] = {}
        self._of: dict[int, _Stock] = {}
        self._kept: set[int] = set()
        self._given_up: list[DeviceCopies] = []
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether there is anything to do here."""
        return bool(self._of or self._kept)

    def wish(self, member: int, word: str) -> None:
        """A new consumer would have its batches on a device; an empty word: on none."""
        if not word:
            return
        try:
            kind, identity, theirs = read_wish(word)
            obstacle = obstacle_between(namespaces(), theirs, identity, wsl=under_wsl() and kind == "cuda")
        except ValueError as error:
            obstacle = str(error)
        if obstacle:
            self._tell(member, ms.Device(refusal=obstacle))
            return
        key = f"{kind}|{identity}"
        stock = self._stocks.setdefault(key, _Stock())
        stock.members.add(member)
        self._of[member] = stock
        if stock.copies is not None:
            self._open(stock, member)

    def place(self, granted: ev.Granted) -> int | None:
        """Return where a batch lies on its consumer's device, copying it there if it is the first; None: nowhere."""
        stock = self._of.get(granted.member)
        if stock is None:
            return None
        size = granted.batch.values_offset
        if stock.copies is None:
            self._ask(stock, size)
            return None
        if not 0 < size <= stock.place_bytes:
            return None
        place = stock.gpu_slots.place(granted.batch.slot, granted.member, granted.lease)
        if place is None:
            return None
        if place.copy:
            try:
                stock.copies.copy(granted.batch.slot, size, place.slot)
            except Exception as error:  # noqa: BLE001  # a device in a bad way must not take the stream with it
                self._give_up(stock, error)
                return None
            self.copied_bytes += size
        return place.slot

    def note(self, event: ev.Event) -> None:
        """Take in the events by which consumers let go of places."""
        if isinstance(event, ev.Left):
            self.leave(event.member)
        elif isinstance(event, ev.Heard) and (stock := self._of.get(event.member)) is not None:
            if isinstance(event.message, ms.Release):
                stock.gpu_slots.release(event.member, event.message.lease)
            elif isinstance(event.message, ms.Ask):
                stock.gpu_slots.keep(event.member, frozenset(event.message.held))

    def leave(self, member: int) -> None:
        """A consumer has gone, or wants nothing on a device any more."""
        stock = self._of.pop(member, None)
        if stock is None:
            return
        stock.members.discard(member)
        stock.gpu_slots.leave(member)
        if not stock.members:
            self._stocks = {key: other for key, other in self._stocks.items() if other is not stock}
            if stock.copies is not None:
                self._end(stock.copies)

    def keeps(self, slot: int) -> bool:
        """The host's slot is free for another batch: return whether a copy from it is under way, so that it is not."""
        if not self._stocks and not self._given_up:
            return False
        for stock in self._stocks.values():
            stock.gpu_slots.forget(slot)
        if copying := self._copying(slot):
            self._kept.add(slot)
        return copying

    def settled(self) -> list[int]:
        """Return the slots that were kept and need be no longer."""
        if not self._kept:
            return []
        over = [slot for slot in self._kept if not self._copying(slot)]
        self._kept.difference_update(over)
        return over

    def _copying(self, slot: int) -> bool:
        for stock in list(self._stocks.values()):
            if stock.copies is None:
                continue
            try:
                if stock.copies.copying(slot):
                    return True
            except Exception as error:  # noqa: BLE001  # as in `place`; nothing is copied there any more
                self._give_up(stock, error)
        for copies in self._given_up:
            with contextlib.suppress(Exception):
                if copies.copying(slot):
                    return True
        return False

    def close(self) -> None:
        """Give back all memory that is no longer read; the rest goes with the process."""
        self._closed = True
        for stock in self._stocks.values():
            if stock.copies is not None:
                _left_behind.append(stock.copies)
                self._end(stock.copies, read=stock.gpu_slots.leased)
        for copies in self._given_up:
            self._end(copies, read=True)
        self._stocks.clear()
        self._of.clear()

    def _end(self, copies: DeviceCopies, *, read: bool = False) -> None:
        try:
            if read:
                copies.stop()
            else:
                copies.close()
        except Exception as error:  # noqa: BLE001  # a GPU in a bad way must not take the stream with it
            _log.warning("memory on a device was not released: %s", error)

    # -- taking memory, on a thread of its own -----------------------------------------------------------

    def _ask(self, stock: _Stock, size: int) -> None:
        if stock.asked or size <= 0:
            return
        stock.asked = True
        kind, _, identity = next(key for key, other in self._stocks.items() if other is stock).partition("|")
        taker = threading.Thread(
            target=self._take, args=(stock, kind, identity, size), name="tsnb-device", daemon=True
        )
        taker.start()

    def _take(self, stock: _Stock, kind: str, identity: str, size: int) -> None:
        place_bytes = aligned(int(size * ROOM))
        try:
            of_kind = kind_of(kind)
            places = self._affordable(of_kind, identity, place_bytes)
            copies = of_kind.copies(identity, self._arena, places, place_bytes)
        except Exception as error:  # noqa: BLE001  # as above
            with self._lock:
                self._give_up(stock, error)
            return
        with self._lock:
            if self._closed or not stock.members:
                self._end(copies)
                return
            stock.copies, stock.gpu_slots, stock.place_bytes = copies, GpuSlots(places), place_bytes
            for member in list(stock.members):
                self._open(stock, member)

    def _give_up(self, stock: _Stock, error: Exception) -> None:
        """Tell all consumers that wanted to share a device to make their own copies.

        Memory and events that were taken stay until the process ends: they may hold batches there.
        """
        reason = str(error) if isinstance(error, SharingRefused) else f"{type(error).__name__}: {error}"
        if stock.copies is not None:
            self._given_up.append(stock.copies)
            _left_behind.append(stock.copies)
        stock.copies = None
        for member in list(stock.members):
            self._tell(member, ms.Device(refusal=reason[:500]))
            self.leave(member)

    def _affordable(self, kind: DeviceKind, identity: str, place_bytes: int) -> int:
        places = min(self._places, int(SHARE * kind.free_bytes(identity)) // place_bytes)
        if places < FEWEST:
            raise SharingRefused(
                f"the device has no room for {FEWEST} batches of {place_bytes:,} bytes in a quarter of "
                "its free memory"
            )
        return places

    def _open(self, stock: _Stock, member: int) -> None:
        if stock.copies is None:  # given up meanwhile
            return
        try:
            told = json.dumps(dict(stock.copies.enter()))
        except Exception as error:  # noqa: BLE001  # as above
            self._give_up(stock, error)
        else:
            self._tell(member, ms.Device(told))
