"""Batches shared on a CUDA device, as `copies` wants it. Not yet run on a GPU.

The memory is taken from the driver itself, not from torch's allocator: it is one piece, other processes may open it
whatever `expandable_segments` says, and it is given back as a whole. A view is a tensor over an object that says
`__cuda_array_interface__`; torch keeps that object until the tensor's storage has gone, and its finalizer is the
release, as that of a ctypes array is for the host's arena.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from tsnb.arena.memory import Arena
from tsnb.device_sharing.copies import SharingRefused
from tsnb.device_sharing.driver import Driver, PinnedSlots
from tsnb.native.endings import ending

__all__ = ["Cuda"]

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
            raise SharingRefused(f"CUDA refuses it ({said[0][:200]})") from error


class _Span:
    """Memory of a device, for torch to make a tensor over."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 2,
        }  # fmt: skip


class _Held(_Span):
    """The same, of a batch that is lent: the end of the last tensor over it ends the lease.

    Made in the thread that iterates; `__del__` comes in any. `owner`, whose end tells the producer, goes after it.
    """

    __slots__ = ("__del__",)

    def __init__(self, address: int, size: int, owner: Any, done: Any, stream: Any) -> None:
        super().__init__(address, size)
        self._owner = owner
        self.__del__ = ending(partial(_mark, done, stream))


def _mark(done: Any, stream: Any) -> None:
    # after the kernels that have been given to this stream so far, and those of what was let go of before, maybe on
    # another stream: the event tells of its last record only. The CUDA of an ending interpreter may be gone
    with contextlib.suppress(Exception):
        stream.wait_event(done)
        done.record(stream)


def _tensor(span: _Span, number: int) -> torch.Tensor:
    made = torch.as_tensor(span, device=torch.device("cuda", number))
    if made.data_ptr() != span.address:
        raise SharingRefused("torch copied memory that it should only have viewed")
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
        self._done: dict[int, Any] = {}
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

    def copy(self, source: int, size: int, place: int, after: Sequence[int]) -> None:
        """Begin to copy a batch."""
        start = self._arena.offset_of(source)
        host = torch.frombuffer(self._arena.buffer, dtype=torch.uint8, count=size, offset=start)
        first = place * self._place_bytes
        with _cuda.device(self._number), _cuda.stream(self._stream):
            self._pinned.pin(source, size)
            for member in after:
                if member in self._done and not self._done[member].query():
                    self._stream.wait_event(self._done[member])
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

    def enter(self, member: int) -> Mapping[str, Any]:
        """Take a consumer in."""
        with _cuda.device(self._number):
            done = self._done[member] = _cuda.Event(interprocess=True)
            done.record(self._stream)
            return {
                "memory": _text(self._handle),
                "place_bytes": self._place_bytes,
                "ready": [_text(event.ipc_handle()) for event in self._ready],
                "done": _text(done.ipc_handle()),
            }

    def leave(self, member: int) -> None:
        """Forget a consumer."""
        self._done.pop(member, None)

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
            self._done = from_handle(device, _bytes(told["done"]))
            self._place_bytes = int(told["place_bytes"])
            undo.pop_all()

    def view(self, place: int, size: int, owner: Any) -> torch.Tensor:
        """Return a place's first bytes, for kernels of the stream that is current now."""
        with _refusals():
            stream = _cuda.current_stream(self._number)
            stream.wait_event(self._ready[place])
            address = self._address + place * self._place_bytes
            return _tensor(_Held(address, size, owner, self._done, stream), self._number)

    def close(self) -> None:
        """Wait for what had read the views, and let go."""
        with contextlib.suppress(Exception), _cuda.device(self._number):
            self._done.synchronize()
            self._driver.close(self._address)


def _text(handle: bytes) -> str:
    return base64.b64encode(handle).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
