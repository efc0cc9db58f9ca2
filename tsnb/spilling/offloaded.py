"""Tensors of a GPU whose values lie in host memory, and which of them have memory on the GPU now.

Each tensor has a home, a part of pinned host memory with its values. On the device its storage has either its whole
size or none (`untyped_storage().resize_`); the tensor, and whatever the graph holds of it, stay the same objects. The
interface is that of `pages.Pages`; here a tensor must be in before it is computed with, so `use` brings in what is
not there, and what is in use never makes room:

    use         bring in now, computing waits for the copy; keep what one operation or step uses together
    read_ahead  bring in while something else computes, if there is room without what is in use (double buffering)
    changed     write back, while something else computes; so dropping never has to
    done        the same, and let it make room first: after its step a parameter is needed last

Making room: what is done first, in the order of the steps, then what was used longest ago. Forwards that is the first
layer, which is needed last, and backwards the one that was stepped first, for the same reason.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tsnb.errors import TsnbError
from tsnb.spilling.pages import SMALL_BYTES, bytes_of
from tsnb.spilling.transfers import Transfers

__all__ = ["Offloaded", "drop_all", "is_offloaded", "plain", "reserve_bytes"]

CHUNK_BYTES = 1 << 26
"""Host memory is taken by such pieces, since pinning one takes about as long as pinning thousands."""
ALIGNED_BYTES = 256


def plain() -> Any:
    """Return a context in which offloaded parameters are as any others: nothing is brought in for an operation."""
    return torch._C.DisableTorchFunctionSubclass()


_all: weakref.WeakSet[Offloaded] = weakref.WeakSet()


def is_offloaded(tensor: torch.Tensor) -> bool:
    """Whether a tensor's values are in host memory, as an offloaded model has them, and it may have no memory now."""
    return any(memory.has(tensor) for memory in _all)


def drop_all() -> None:
    """Drop all tensors of all offloaded models, between two steps: they come in again as they are used."""
    for memory in _all:
        memory.drop_all()


@dataclass
class _Entry:
    """A tensor: what it is on the device, and its home."""

    tensor: torch.Tensor
    home: torch.Tensor
    size: int
    arrived: Any = None
    """The copy in, for computing to wait for."""
    written: Any = None
    """The last copy out since."""


@dataclass
class _Chunk:
    """A piece of host memory."""

    memory: npt.NDArray[np.uint8]
    used: int = 0


class Offloaded:
    """Tensors of one device with homes in host memory.

    Attributes:
        limit_bytes: What may be on the device at once.
        read_bytes: What was brought in before it was used, so far.
        dropped_bytes: What was let go of, so far.

    Args:
        limit_bytes: What may be on the device at once.
        transfers: The device's copies.
    """

    def __init__(self, limit_bytes: int, transfers: Transfers) -> None:
        self.limit_bytes = limit_bytes
        self.read_bytes = self.dropped_bytes = 0
        self.transfers = transfers
        self._entries: dict[int, _Entry] = {}
        self._done: OrderedDict[int, None] = OrderedDict()
        self._present: OrderedDict[int, None] = OrderedDict()
        self._present_bytes = 0
        self._in_use: list[frozenset[int]] = []
        self._held: frozenset[int] = frozenset()
        self._chunks: list[_Chunk] = []
        _all.add(self)

    def __reduce_ex__(self, protocol: object) -> Any:
        """Refuse copies and pickles: of most tensors there would be nothing in them.

        Raises:
            TsnbError: Always.
        """
        raise TsnbError(
            "An offloaded model cannot be copied or pickled as a whole. Use model.state_dict(), or "
            "first call close() on the object that tsnb.offload returned."
        )

    # -- tensors -------------------------------------------------------------------------------------------

    def tensor(self, like: torch.Tensor, *, fill: bool = True) -> torch.Tensor:
        """Return a tensor of the device with a home, not brought in; a small one is simply on the device.

        Args:
            like: Its type and shape, on any device; strides are those of a contiguous one.
            fill: Whether it has the same values; else zeros.

        Raises:
            TsnbError: There is not enough host memory.
        """
        size = bytes_of(like)
        if size < SMALL_BYTES:
            return (
                like.to(self.transfers.device)
                if fill
                else torch.zeros_like(like, device=self.transfers.device)
            )
        home = self._home(like, size)
        if fill:
            home.copy_(like)
        else:
            home.zero_()
        self._make_room(size, self._kept)  # blank() has memory for a moment
        made = self.transfers.blank(like)
        self._entries[_key(made)] = _Entry(made.data, home, size)
        return made

    def _home(self, like: torch.Tensor, size: int) -> torch.Tensor:
        whole = -(-size // ALIGNED_BYTES) * ALIGNED_BYTES
        chunk = next((chunk for chunk in self._chunks if chunk.used + whole <= chunk.memory.size), None)
        if chunk is None:
            chunk = _Chunk(self.transfers.host_memory(max(CHUNK_BYTES, whole)))
            self._chunks.append(chunk)
        start, chunk.used = chunk.used, chunk.used + whole
        # each has a storage of its own, or one that is saved would take all others into the file
        return torch.from_numpy(chunk.memory[start : start + size]).view(like.dtype).view(like.shape)

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor, or what it is a view of, has a home here."""
        return _key(tensor) in self._entries

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor's values in host memory: its home, which changes as it does; waits for its copies."""
        self.transfers.finish()
        return self._entries[_key(tensor)].home

    def alone(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor with the same values on the device that has memory of its own, and forget this one."""
        home = self.whole(tensor)
        self.discard(tensor)
        return home.to(self.transfers.device, copy=True)

    def discard(self, tensor: torch.Tensor) -> None:
        """Forget a tensor, which nothing uses any more; its home's memory goes with `close`."""
        key = _key(tensor)
        if key in self._present or key in self._done:
            self._drop(key)
        self._entries.pop(key, None)

    # -- in and out ----------------------------------------------------------------------------------------

    @property
    def present_bytes(self) -> int:
        """How much is on the device."""
        return self._present_bytes

    def use(self, *tensors: torch.Tensor, writes: bool = False, room: int = 0) -> None:
        """Bring in tensors that are computed with now, all of them together.

        Args:
            tensors: Those without a home are left as they are.
            writes: Whether they will be written to; then computing waits until their old values are in host memory.
            room: Bytes of new tensors to make room for beside them.

        Raises:
            TsnbError: They do not fit beside what is in use.
        """
        keys = self._keys(tensors)
        absent = [key for key in keys if not self._is_present(key)]
        need = sum(self._entries[key].size for key in absent) + room
        kept = self._kept.union(keys)
        if not self._make_room(need, kept):
            together = need + sum(self._entries[key].size for key in kept if self._is_present(key))
            raise TsnbError(
                f"One operation needs {together:,} bytes of parameters and optimizer states on the "
                f"device at once, but the limit leaves {self.limit_bytes:,}. Raise the limit of "
                f"tsnb.offload by at least {together - self.limit_bytes:,} bytes."
            )
        for key in absent:
            self._bring(key)
        for key in keys:
            self._done.pop(key, None)
            self._present[key] = None
            self._present.move_to_end(key)
            entry = self._entries[key]
            self.transfers.wait(entry.arrived)
            if writes:
                self.transfers.wait(entry.written)

    def read_ahead(self, *tensors: torch.Tensor) -> None:
        """Bring in tensors that are used next, the first ones first, as far as there is room without what is in use."""
        keys = self._keys(tensors)
        kept = self._kept.union(keys)
        for key in keys:
            if not self._is_present(key):
                if not self._make_room(self._entries[key].size, kept):
                    return
                self._bring(key)
                self.read_bytes += self._entries[key].size
            self._done.pop(key, None)
            self._present[key] = None

    @contextlib.contextmanager
    def in_use(self, tensors: Iterable[torch.Tensor], *, writes: bool = False) -> Iterator[None]:
        """Bring in what an operation uses, and have none of it make room inside the block.

        Raises:
            TsnbError: It does not fit.
        """
        tensors = tuple(tensors)
        self.use(*tensors, writes=writes)
        self._in_use.append(frozenset(self._keys(tensors)))
        try:
            yield
        finally:
            self._in_use.pop()

    def hold(self, *tensors: torch.Tensor) -> None:
        """Bring in what an operation of `backward` uses, and have none of it make room until the next call.

        Raises:
            TsnbError: It does not fit.
        """
        self._held = frozenset()
        self.use(*tensors)
        self._held = frozenset(self._keys(tensors))

    def changed(self, *tensors: torch.Tensor) -> None:
        """Write tensors back that have been written to, after what has been computed so far."""
        for key in self._keys(tensors):
            entry = self._entries[key]
            entry.written = self.transfers.write(entry.tensor, entry.home)

    def done(self, *tensors: torch.Tensor) -> None:
        """Write tensors back whose step was taken; they make room before all others."""
        self.changed(*tensors)
        for key in self._keys(tensors):
            if key in self._present:
                del self._present[key]
                self._done[key] = None

    def drop_all(self) -> None:
        """Drop all that is not in use: where they are, they are written already."""
        for key in [*self._done, *self._present]:
            if key not in self._kept:
                self._drop(key)

    def check_room(self) -> None:
        """Refuse to bring all tensors back to the device where they do not fit.

        Raises:
            TsnbError: They do not.
        """
        free = self.transfers.free_bytes()
        need = sum(entry.size for entry in self._entries.values()) - self._present_bytes
        if free is not None and need > free:
            raise TsnbError(
                f"close() moves all parameters and optimizer states back to {self.transfers.device}, "
                f"but {need:,} bytes do not fit into the {free:,} that are free. Save "
                "model.state_dict() and optimizer.state_dict(), which are in host memory, and continue "
                "without close()."
            )

    def close(self) -> None:
        """Forget all tensors; homes that are still referred to keep their host memory."""
        self.transfers.finish()
        self._entries.clear()
        self._present.clear()
        self._done.clear()
        self._chunks.clear()
        self._present_bytes = 0
        self._held = frozenset()
        self.transfers.close()
        self.transfers.trim()

    def _keys(self, tensors: Iterable[torch.Tensor]) -> list[int]:
        keys = dict.fromkeys(map(_key, tensors))
        return [key for key in keys if key in self._entries]

    @property
    def _kept(self) -> frozenset[int]:
        return self._held.union(*self._in_use)

    def _is_present(self, key: int) -> bool:
        return key in self._present or key in self._done

    def _make_room(self, size: int, kept: frozenset[int]) -> bool:
        """Drop tensors until there is room for some bytes; drop none and return False where that cannot be."""
        excess = self._present_bytes + size - self.limit_bytes
        chosen = []
        for key in chain(self._done, self._present):
            if excess <= 0:
                break
            if key not in kept:
                chosen.append(key)
                excess -= self._entries[key].size
        if excess > 0:
            return False
        for key in chosen:
            self._drop(key)
        return True

    def _bring(self, key: int) -> None:
        entry = self._entries[key]
        entry.arrived = self.transfers.bring(entry.tensor, entry.home)
        self._present_bytes += entry.size

    def _drop(self, key: int) -> None:
        entry = self._entries[key]
        self.transfers.drop(entry.tensor, entry.written)
        entry.arrived = entry.written = None
        self._present.pop(key, None)
        self._done.pop(key, None)
        self._present_bytes -= entry.size
        self.dropped_bytes += entry.size


def _key(tensor: torch.Tensor) -> int:
    """Return what a tensor and its views have in common, with memory or without."""
    with plain():
        try:
            return int(tensor.untyped_storage()._cdata)
        except NotImplementedError:  # a sparse one
            return 0


def reserve_bytes(model: nn.Module, stepped: Iterable[nn.Parameter], states: int) -> int:
    """Return the part of the limit for gradients, and for small parameters, which stay on the device.

    The gradients of one layer may be there at once, and that of a tied parameter from its last use to its first.

    Args:
        model: The model.
        stepped: Those of its parameters that the optimizer steps.
        states: Tensors of a parameter's size that the optimizer keeps beside it.
    """
    own = {id(p) for p in stepped}
    lists = (nn.ParameterList, nn.ParameterDict)
    layers, places = [0], dict.fromkeys(own, 0)
    for module in model.modules():
        sizes = []
        for parameter in module.parameters(recurse=False):
            if id(parameter) in own:
                sizes.append(bytes_of(parameter))
                places[id(parameter)] += 1
        layers.append(max(sizes, default=0) if isinstance(module, lists) else sum(sizes))
    parameters = list(dict.fromkeys(model.parameters()))
    tied = sum(bytes_of(p) for p in parameters if places.get(id(p), 0) > 1)
    small = [p for p in parameters if bytes_of(p) < SMALL_BYTES]
    return max(layers) + tied + sum(bytes_of(p) * (1 + states * (id(p) in own)) for p in small)
