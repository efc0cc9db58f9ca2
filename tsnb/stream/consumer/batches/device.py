"""A consumer's batches on a GPU: one copy that all consumers of the device share, or copies of its own made ahead.

`DeviceShare` knows which batches lie on the device; one that shares is handed in as part of a `DeviceAccess`.

`Prefetch` copies a few loader batches ahead of the loop, on a stream of their own, from locked memory. The loop's own
stream waits for a batch's copy when the batch is given, on the GPU; the processor waits for nothing. The source
of a copy stays ours until the copy is over: the host's views are kept beside their event, and checked at each step.
Only batches that have arrived are copied ahead, so a slow loader does not delay them further.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch

from tsnb.errors import GroupBroken, TsnbError
from tsnb.stream.memory.arena import Arena
from tsnb.stream.this_process import this_process

if TYPE_CHECKING:
    from tsnb.stream.consumer.batches.unpacking import Delivered

__all__ = [
    "CudaUploads",
    "DeviceAccess",
    "DeviceShare",
    "Locked",
    "Prefetch",
    "Uploads",
    "device_access",
    "uploads_for",
]


class DeviceShare:
    """What one connection knows of its device: that nothing is shared there.

    Attributes:
        wish: The wish to send to the producer; empty: none.
        refusal: Why batches are not shared; empty while they may be.
        taken: Batches that were read on the device.
    """

    def __init__(self) -> None:
        self.wish = self.refusal = ""
        self.taken = 0

    def open(self, handles: str) -> bool:
        """Open the producer's memory; return whether that went well."""
        self.refuse("it was not requested")
        return False

    def refuse(self, reason: str) -> None:
        """Batches come through the host's arena from now on."""
        self.refusal = reason

    def lies(self, lease: int, place: int) -> None:
        """The batch of that lease, which follows, lies in a place of the device."""

    def has(self, lease: int) -> bool:
        """Whether the batch of that lease lies in a place of the device."""
        return False

    def view(self, lease: int, size: int, owner: Any) -> torch.Tensor | None:
        """Return a batch's bytes on the device, uint8 [size]; None: it does not lie there.

        Args:
            lease: The batch's.
            size: Bytes of its arrays.
            owner: Kept alive by the tensor, and by all that is made of it.
        """

    def close(self) -> None:
        """Let go of the memory; no view is left."""


class Locked:
    """The slots of the arena that this process has page-locked for copies to a GPU: none."""

    def pin(self, slot: int, size: int) -> bool:
        """Lock a slot's first bytes, if they are not; return whether they are."""
        return False

    def __contains__(self, slot: object) -> bool:
        return False

    def close(self) -> None:
        """Unlock all. The copies from them must be over, and the arena still mapped."""


class DeviceAccess:
    """What a consumer can do with memory for devices: nothing. `tsnb.attaching` hands in one that shares and locks."""

    def share(self, device: torch.device | None, producer: int) -> DeviceShare:
        """Return what a connection knows of its device.

        Args:
            device: Where batches are wanted to be shared; None: nowhere.
            producer: The process that serves them.
        """
        return DeviceShare()

    def locked(self, arena: Arena) -> Locked:
        """Return the slots of an arena that this process has locked."""
        return Locked()


def device_access() -> DeviceAccess:
    """Return what this process's consumers do with memory for devices."""
    found: DeviceAccess = this_process.device_access or DeviceAccess()
    return found


class Uploads(Protocol):
    """Copies one batch at a time to a device."""

    def begin(self, delivered: Delivered) -> Any:
        """Begin to copy a batch's tensors, and put the copies in their place; return what tells the end of it."""

    def give(self, delivered: Delivered, ticket: Any) -> None:
        """Have the loop's stream wait for that."""

    def close(self) -> None:
        """Wait for all copies, and let go of what they were made from."""


class CudaUploads:
    """The same on a GPU.

    Args:
        device: Which.
        pin: Locks the memory that a batch lies in, where that can be done.
    """

    def __init__(self, device: torch.device, pin: Callable[[Delivered], None]) -> None:
        self._cuda: Any = torch.cuda  # annotated in part only
        self._device = device
        self._pin = pin
        self._stream = self._cuda.Stream(device)
        self._under_way: deque[tuple[Any, list[Any]]] = deque()

    def begin(self, delivered: Delivered) -> Any:
        """Begin to copy."""
        sources = delivered.leaves
        with self._cuda.device(self._device), self._cuda.stream(self._stream):
            self._pin(delivered)
            delivered.leaves = [
                leaf.to(self._device, non_blocking=True) if isinstance(leaf, torch.Tensor) else leaf
                for leaf in sources
            ]
            over = self._cuda.Event()
            over.record(self._stream)
        delivered.shared = False
        self._under_way.append((over, sources))
        return over

    def give(self, delivered: Delivered, ticket: Any) -> None:
        """Have the current stream wait, and its kernels count as users of the memory."""
        stream = self._cuda.current_stream(self._device)
        stream.wait_event(ticket)
        for leaf in delivered.leaves:
            if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
                leaf.record_stream(stream)
        while self._under_way and self._under_way[0][0].query():
            self._under_way.popleft()

    def close(self) -> None:
        """Wait for all copies."""
        while self._under_way:
            self._under_way[0][0].synchronize()
            self._under_way.popleft()


def uploads_for(device: torch.device, pin: Callable[[Delivered], None]) -> Uploads | None:
    """Return what copies to a device; None where there is nothing to copy to, as on the CPU or without CUDA.

    Args:
        device: Where batches are wanted.
        pin: Locks the memory that a batch lies in.
    """
    there = device.type == "cuda" and torch.cuda.is_available()
    return CudaUploads(device, pin) if there else None


class Prefetch:
    """Takes batches from a loop's source and hands them out, up to `ahead` of them copied before they are asked for.

    Args:
        ahead: How many batches are copied ahead.
        uploads: Copies them.
        arrived: Whether something was sent that has not been taken, so that a batch would not be waited for.
    """

    def __init__(self, ahead: int, uploads: Uploads, arrived: Callable[[], bool]) -> None:
        self._ahead = ahead
        self._uploads = uploads
        self._arrived = arrived
        self._ready: deque[tuple[Delivered, Any]] = deque()
        self._end: BaseException | None = None

    def next(self, take: Callable[[], Delivered]) -> Delivered:
        """Return the next batch, on the device.

        Args:
            take: Returns the next batch; raises `StopIteration` at the epoch's end, or what went wrong. Not kept: it is
                the loop's, which has to end with its last reference.

        Raises:
            StopIteration: The epoch has ended.
            TsnbError: What `take` raised, once all that came before it has been given; at once where another rank died.
        """
        if not self._ready:
            if self._end is not None:
                raise self._end
            self._begin(take())
        while self._end is None and len(self._ready) <= self._ahead and self._arrived():
            try:
                self._begin(take())
            except (StopIteration, TsnbError) as error:
                if isinstance(error, GroupBroken) and error.at_once:
                    raise
                self._end = error.with_traceback(None)
        delivered, ticket = self._ready.popleft()
        self._uploads.give(delivered, ticket)
        return delivered

    def _begin(self, delivered: Delivered) -> None:
        self._ready.append((delivered, self._uploads.begin(delivered)))

    def close(self) -> None:
        """Forget what was not given."""
        self._ready.clear()
        self._uploads.close()
