"""Batches shared on a CUDA device, as `copies` wants it.

The memory is taken from the driver itself, not from torch's allocator: it is one piece, other processes may open it
whatever `expandable_segments` says, and it is given back as a whole. A view is a tensor over an object that says
`__cuda_array_interface__`; torch keeps that object until the tensor's storage has gone, and its finalizer is the
release, as that of a ctypes array is for the host's arena.

No process ever makes its stream wait for an event that another process records. On a GPU it was seen that such a wait
never ends when the other process is killed, or its kernel fails, and that it holds up all later copies to all trials.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from tsnb.device_sharing.copies import SharingRefused
from tsnb.device_sharing.driver import Driver, PinnedSlots
from tsnb.native.endings import ending
from tsnb.stream.memory.arena import Arena

__all__ = ["Cuda"]

AHEAD = 2
"""So many batches may have kernels that are not over when the loop takes the next one; then the processor waits for the
oldest. With the batch that the loop still has and the one that it takes, these are all that one consumer may hold."""
COPY_S = 2.0
"""A copy that takes longer is not waited for: batches come through the host from then on."""
LOOK_S = 0.0002
"""How often it is looked whether a copy is over."""

_cuda: Any = torch.cuda  # annotated in part only


class Cuda:
    """The kind `cuda`."""

    def identity(self, device: torch.device) -> str:
        """Return its UUID, "GPU-..." or "MIG-..."."""
        with _refusals():
            _cuda.init()
            number = _cuda.current_device() if device.index is None else device.index
            word = "MIG" if " MIG " in _cuda.get_device_name(number) else "GPU"
            return f"{word}-{Driver().uuid_of(number)}"

    def free_bytes(self, identity: str) -> int:
        """Return the memory that is free there; starts CUDA in this process."""
        number = self._number(identity)
        with _refusals():
            return int(_cuda.mem_get_info(number)[0])

    def copies(self, identity: str, arena: Arena, places: int, place_bytes: int) -> CudaCopies:
        """Take memory there."""
        number = self._number(identity)
        with _refusals():
            return CudaCopies(number, arena, places, place_bytes)

    def views(self, device: torch.device, told: Mapping[str, Any]) -> CudaViews:
        """Open the producer's memory."""
        number = _cuda.current_device() if device.index is None else device.index
        with _refusals():
            return CudaViews(number, told)

    def _number(self, identity: str) -> int:
        with _refusals():
            _cuda.init()
            for number in range(_cuda.device_count()):
                if self.identity(torch.device("cuda", number)) == identity:
                    return number
        raise SharingRefused(f"the loader's process does not see the GPU {identity}")


class _refusals(contextlib.AbstractContextManager[None]):  # noqa: N801 (read as a word: `with _refusals():`)
    """Turns what torch raises inside the block into `SharingRefused`."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(
            error, (RuntimeError, AssertionError, ValueError)
        ):  # torch's AcceleratorError is the first
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise SharingRefused(f"CUDA refused it ({said[0][:200]})") from error


class _Span:
    """Memory of a device, for torch to make a tensor over."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 2,
        }  # fmt: skip


class _Held(_Span):
    """The same, of a batch that is lent: the end of the last tensor over it ends the lease, once its kernels are over.

    Made in the thread that iterates; `__del__` comes in any.

    Args:
        address: Of the memory.
        size: Its bytes.
        owner: Kept until the kernels that read the memory are over; its end tells the producer.
        over: Recorded behind those kernels.
        stream: Theirs.
        ending_here: Where both are put then.
    """

    __slots__ = ("__del__",)

    def __init__(
        self, address: int, size: int, owner: Any, over: Any, stream: Any, ending_here: deque[tuple[Any, Any]]
    ) -> None:
        super().__init__(address, size)
        self.__del__ = ending(partial(_mark, over, stream, owner, ending_here))


def _mark(over: Any, stream: Any, owner: Any, ending_here: deque[tuple[Any, Any]]) -> None:
    # the CUDA of an ending interpreter may be gone: then the lease ends at once
    with contextlib.suppress(Exception):
        over.record(stream)
        ending_here.append((over, owner))


def _tensor(span: _Span, number: int) -> torch.Tensor:
    made = torch.as_tensor(span, device=torch.device("cuda", number))
    if made.data_ptr() != span.address:
        raise SharingRefused("torch copied memory instead of viewing it")
    return made


class CudaCopies:
    """The producer's side of one GPU.

    Args:
        number: The GPU, as this process counts.
        arena: The host's arena.
        places: How many batches there is room for.
        place_bytes: Bytes of each.
    """

    def __init__(self, number: int, arena: Arena, places: int, place_bytes: int) -> None:
        self._number = number
        self._arena = arena
        self._place_bytes = place_bytes
        self._driver = Driver(number=number)
        self._pinned = PinnedSlots(arena, self._driver)
        self._sources: dict[int, Any] = {}
        with _cuda.device(number), contextlib.ExitStack() as undo:
            self._stream = _cuda.Stream()
            self._address, self._handle = self._driver.allocate(places * place_bytes)
            undo.callback(self._driver.free, self._address)
            self._memory = _tensor(_Span(self._address, places * place_bytes), number)
            self._ready = [_cuda.Event(interprocess=True) for _ in range(places)]
            for event in self._ready:
                event.record(self._stream)  # one that was never recorded has no handle
            undo.pop_all()

    def copy(self, source: int, size: int, place: int) -> None:
        """Begin to copy a batch."""
        start = self._arena.offset_of(source)
        host = torch.frombuffer(self._arena.buffer, dtype=torch.uint8, count=size, offset=start)
        first = place * self._place_bytes
        with _cuda.device(self._number), _cuda.stream(self._stream):
            self._pinned.pin(source, size)
            self._memory[first : first + size].copy_(host, non_blocking=True)
            self._ready[place].record(self._stream)
        self._sources[source] = self._ready[place]

    def copying(self, source: int) -> bool:
        """Whether a copy from that slot is not over."""
        event = self._sources.get(source)
        if event is None:
            return False
        if not event.query():  # recorded again for a later copy, it tells too late, never too early
            return True
        del self._sources[source]
        return False

    def enter(self) -> Mapping[str, Any]:
        """Return what a consumer needs."""
        with _cuda.device(self._number):
            return {
                "memory": _text(self._handle),
                "place_bytes": self._place_bytes,
                "ready": [_text(event.ipc_handle()) for event in self._ready],
            }

    def stop(self) -> None:
        """Wait for the copies, and unlock the arena: CUDA would take what is mapped there next for the same pages."""
        with _cuda.device(self._number):
            self._stream.synchronize()
            self._pinned.close()

    def close(self) -> None:
        """Give the memory back."""
        self.stop()
        with _cuda.device(self._number):
            del self._memory
            self._driver.free(self._address)


class CudaViews:
    """A consumer's side.

    Args:
        number: The GPU, as this process counts.
        told: What `CudaCopies.enter` has returned.
    """

    def __init__(self, number: int, told: Mapping[str, Any]) -> None:
        self._number = number
        self._driver = Driver(number=number)
        with _cuda.device(number), contextlib.ExitStack() as undo:
            self._address = self._driver.open(_bytes(told["memory"]))
            undo.callback(self._driver.close, self._address)
            device = torch.device("cuda", number)
            from_handle = _cuda.Event.from_ipc_handle
            self._ready = [from_handle(device, _bytes(handle)) for handle in told["ready"]]
            self._place_bytes = int(told["place_bytes"])
            undo.pop_all()
        self._ending: deque[tuple[Any, Any]] = deque()

    def view(self, place: int, size: int, owner: Any) -> torch.Tensor:
        """Return a place's first bytes, for kernels of the stream that is current now."""
        with _refusals():
            self._end(AHEAD)
            self._wait_for_copy(self._ready[place])
            with _cuda.device(self._number):
                over = _cuda.Event()
            address, stream = self._address + place * self._place_bytes, _cuda.current_stream(self._number)
            return _tensor(_Held(address, size, owner, over, stream, self._ending), self._number)

    def _end(self, most: int) -> None:
        """End the leases whose kernels are over; wait for this process's own until no more than `most` are left."""
        while self._ending and (len(self._ending) > most or self._ending[0][0].query()):
            over, _ = self._ending[0]
            over.synchronize()
            self._ending.popleft()

    def _wait_for_copy(self, ready: Any) -> None:
        """Wait on the host: the copy takes milliseconds, or never ends because the producer was killed.

        Raises:
            SharingRefused: It is not over in time.
        """
        until = time.monotonic() + COPY_S
        while not ready.query():
            if time.monotonic() > until:
                raise SharingRefused(f"a copy by the loader's process did not finish within {COPY_S:.0f} s")
            time.sleep(LOOK_S)

    def close(self) -> None:
        """Wait for what had read the views, and let go."""
        with contextlib.suppress(Exception), _cuda.device(self._number):
            self._end(0)
            self._driver.close(self._address)


def _text(handle: bytes) -> str:
    return base64.b64encode(handle).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
