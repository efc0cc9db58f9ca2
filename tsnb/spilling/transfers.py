"""Copies between host memory and a device, and what waits for them: all of spilling that knows CUDA.

    in:    host memory -> device   bring()   a stream of its own; computing waits for it (wait)
    out:   device -> host memory   write()   a stream of its own, after what has been computed so far
    drop:  the device's memory goes          after what has been computed so far, and after write()

Memory that comes in is allocated on the stream that brings it in and freed there, so what is brought in next may take
its place without a wait on the host: that stream waits on the device until computing and writing are over. Computing
means the stream that is current at each call; a model that computes on several streams at once must join them itself.

`Transfers` is the same for the CPU: a copy is over when the call returns. Tests run on it; `CudaTransfers` has not been
run on a GPU yet.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tsnb.errors import TsnbError
from tsnb.machine.memory import free_memory
from tsnb.spilling.pages import bytes_of

__all__ = ["CudaTransfers", "Transfers", "device_of"]

_cuda: Any = torch.cuda  # annotated in part only
_PORTABLE = 1
"""cudaHostRegisterPortable: pinned for every device's context."""


def device_of(places: Mapping[str, torch.device], asked: torch.device | None = None) -> torch.device:
    """Return where an offloaded model is trained.

    Args:
        places: Where its parameters are, by name.
        asked: Where the user wants it.

    Raises:
        TsnbError: It is on several devices, on one of another kind, or on another one than the user wants.
    """
    first: dict[torch.device, str] = {}
    for name, place in places.items():
        if place.type != "meta":
            first.setdefault(place, name)
    for place, name in first.items():
        if place.type not in ("cpu", "cuda"):
            raise TsnbError(
                f"tsnb.offload supports models on the CPU or a CUDA GPU, and {name!r} is on {place}. "
                "Leave it out there."
            )
    if asked is not None and asked.type not in ("cpu", "cuda"):
        raise TsnbError(
            f"device={str(asked)!r} is not supported: tsnb.offload trains on the CPU or a CUDA GPU."
        )
    if len(first) > 1:
        (one, name), (other, another), *_ = first.items()
        raise TsnbError(
            f"This model is on several devices, {name!r} on {one} and {another!r} on {other}, but "
            "tsnb.offload needs all of it on one. Move it to the CPU, and pass device= for the GPU to "
            "train on."
        )
    where = next(iter(first), None)
    if asked is None or where is None:
        return asked or where or torch.device("cpu")
    if where.type == "cpu":
        return asked
    if asked.type == "cpu" or asked.index not in (None, where.index):
        raise TsnbError(
            f"This model is on {where}, but device={str(asked)!r} was requested. Leave device= out."
        )
    return where


class Transfers:
    """Copies on the CPU.

    Attributes:
        device: Where tensors are computed with.

    Args:
        device: The device to copy to and from.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def host_memory(self, size: int) -> npt.NDArray[np.uint8]:
        """Return host memory that is copied from and to: uint8 [size].

        Raises:
            TsnbError: There is not enough.
        """
        try:
            return np.empty(size, np.uint8)
        except MemoryError:
            raise TsnbError(
                f"There is no host memory for {size:,} bytes of an offloaded model's parameters and "
                "optimizer states. Free some memory."
            ) from None

    def blank(self, like: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device, contiguous, of the same type and shape, without memory."""
        made = torch.empty(like.shape, dtype=like.dtype, device=self.device)
        made.untyped_storage().resize_(0)
        return made

    def bring(self, tensor: torch.Tensor, home: torch.Tensor) -> Any:
        """Give a tensor memory and begin to copy its values in.

        Returns:
            What to `wait` for before computing with it.
        """
        tensor.untyped_storage().resize_(bytes_of(tensor))
        tensor.copy_(home)
        return None

    def write(self, tensor: torch.Tensor, home: torch.Tensor) -> Any:
        """Begin to copy a tensor's values out, as they are after what has been computed so far.

        Returns:
            What to `wait` for before it is written to, and to `drop` it with.
        """
        home.copy_(tensor)
        return None

    def wait(self, copied: Any) -> None:
        """Have what is computed from now on come after a copy."""

    def drop(self, tensor: torch.Tensor, written: Any) -> None:
        """Take a tensor's memory, after what has been computed so far and after it was written."""
        tensor.untyped_storage().resize_(0)

    def finish(self) -> None:
        """Wait, on the host, until all copies are over."""

    def free_bytes(self) -> int | None:
        """Return the device's memory that is free, or kept by torch for new tensors; None if not known."""
        free = free_memory()
        return None if free is None else free.size

    def trim(self) -> None:
        """Give memory of the device that torch keeps for new tensors back to it."""

    def close(self) -> None:
        """Let go of host memory; tensors that are still over it keep it."""


class CudaTransfers(Transfers):
    """Copies on one GPU, each way on a stream of its own, from and to pinned memory.

    Args:
        device: The GPU; without a number the current one.

    Raises:
        TsnbError: There is none.
    """

    def __init__(self, device: torch.device) -> None:
        if not _cuda.is_available():
            raise TsnbError(
                f"There is no CUDA GPU for device={str(device)!r}: torch.cuda.is_available() is False "
                "in this process."
            )
        number = _cuda.current_device() if device.index is None else device.index
        super().__init__(torch.device("cuda", number))
        self._in = _cuda.Stream(self.device)
        self._out = _cuda.Stream(self.device)
        self._pinned: list[npt.NDArray[np.uint8]] = []
        self._unpin = weakref.finalize(self, _unpin, self._pinned, self.device)
        self._unpin.atexit = False  # the process takes it with it

    def host_memory(self, size: int) -> npt.NDArray[np.uint8]:
        """Return pinned memory: uint8 [size].

        It is registered rather than taken from torch's pinned allocator, which rounds up to a power of two.

        Raises:
            TsnbError: There is not enough, or it cannot be pinned.
        """
        made = super().host_memory(size)
        with _cuda.device(self.device):
            failed = int(_cuda.cudart().cudaHostRegister(made.ctypes.data, size, _PORTABLE))
        if failed:
            raise TsnbError(
                f"{size:,} bytes of host memory could not be pinned (CUDA error {failed}). An "
                "offloaded model needs as much host memory as its parameters and optimizer states "
                "take. Free some memory, or use a smaller model."
            )
        self._pinned.append(made)
        return made

    def blank(self, like: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the GPU without memory; what it had for a moment was of the stream that brings in."""
        with _cuda.stream(self._in):
            return super().blank(like)

    def bring(self, tensor: torch.Tensor, home: torch.Tensor) -> Any:
        """Begin to copy values in; returns an event."""
        with _cuda.stream(self._in):
            tensor.untyped_storage().resize_(bytes_of(tensor))
            tensor.copy_(home, non_blocking=True)
            return self._in.record_event()

    def write(self, tensor: torch.Tensor, home: torch.Tensor) -> Any:
        """Begin to copy values out; returns an event."""
        self._out.wait_stream(_cuda.current_stream(self.device))
        with _cuda.stream(self._out):
            home.copy_(tensor, non_blocking=True)
            return self._out.record_event()

    def wait(self, copied: Any) -> None:
        """Have the current stream wait for an event; the host goes on."""
        if copied is not None:
            _cuda.current_stream(self.device).wait_event(copied)

    def drop(self, tensor: torch.Tensor, written: Any) -> None:
        """Free a tensor's memory for what is brought in next, which waits on the device for those that use it now."""
        self._in.wait_stream(_cuda.current_stream(self.device))
        if written is not None:
            self._in.wait_event(written)
        with _cuda.stream(self._in):
            tensor.untyped_storage().resize_(0)

    def finish(self) -> None:
        """Wait until nothing computes or copies on the GPU."""
        _cuda.synchronize(self.device)

    def free_bytes(self) -> int | None:
        """Return what the GPU has free, and what torch keeps for new tensors of this process."""
        free, _ = _cuda.mem_get_info(self.device)
        return int(free + _cuda.memory_reserved(self.device) - _cuda.memory_allocated(self.device))

    def trim(self) -> None:
        """Give back what torch keeps."""
        _cuda.empty_cache()

    def close(self) -> None:
        """Have pinned memory be ordinary memory again."""
        self._unpin()


def _unpin(pinned: list[npt.NDArray[np.uint8]], device: torch.device) -> None:
    _cuda.synchronize(device)  # a copy may be under way
    for memory in pinned:
        _cuda.cudart().cudaHostUnregister(memory.ctypes.data)
    pinned.clear()
