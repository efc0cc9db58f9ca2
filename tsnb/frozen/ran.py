"""What the first batch was computed with beside what code shows: tensors that entered an operation.

Code may come to a network in a way that cannot be read off it: an import in a function, a cache of results,
`globals()`. So the second computation of the first batch notes the tensors that it uses. Those count that were there
before it began. A forked worker has them at the addresses of the serving process. It tells the addresses and a sum of
the numbers, and the serving process compares these before each further epoch.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tsnb.frozen.changes import array_sum, changed, in_training, why_random
from tsnb.frozen.counters import Counters
from tsnb.stream.loader.seams import worker_row

__all__ = ["Ran"]

_KINDS = (nn.Module, nn.Parameter, torch.Tensor)
_WRITING = frozenset({"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"})


class Ran:
    """What a frozen part was computed with, and whether that is still as it was.

    Args:
        known: Tensors that are compared already.
        counters: Where workers tell what they used.
    """

    def __init__(self, known: Iterable[torch.Tensor], counters: Counters) -> None:
        self._known = {_address(each) for each in known} | {0}
        self._counters = counters
        self._at_start: dict[int, int] = {}
        self._modes: dict[int, bool] = {}
        self._parameters: set[int] = set()
        self._look_around()

    def __getstate__(self) -> Any:  # a process that is not forked has nothing of what is here
        return {**vars(self), "_tensors": {}, "_modules": []}

    def _look_around(self) -> None:
        """Note which tensors and modules there are."""
        self._tensors: dict[int, list[weakref.ref[torch.Tensor]]] = {}
        self._modules: list[weakref.ref[nn.Module]] = []
        kinds: dict[type, type | None] = {}
        for each in gc.get_objects():
            kind = type(each)  # `isinstance` would ask an object that stands for another one, and load that
            if kind not in kinds:
                kinds[kind] = next((known for known in _KINDS if issubclass(kind, known)), None)
            if kinds[kind] is nn.Module:
                self._modules.append(weakref.ref(each))
            elif kinds[kind] and (address := _address(each)) not in self._known:
                self._tensors.setdefault(address, []).append(weakref.ref(each))
                if kinds[kind] is nn.Parameter:
                    self._parameters.add(address)

    def noting(self, compute: Callable[[], Any]) -> Any:
        """Return what `compute` gives, and tell what it uses."""
        entering = _Entering()
        with entering:
            made = compute()
        entering.addresses.update(_tensors_in(made))
        used = ((at, self._there(at)) for at in sorted(entering.addresses - entering.written))
        self._counters.tell_ran(worker_row(), [(at, _word(each)) for at, each in used if each is not None])
        return made

    def before_noting(self) -> None:
        """Note what a first computation has loaded, where no worker computes."""
        if not worker_row():
            self._look_around()

    def why_changed(self) -> str:
        """Return what has changed of what was told, as a message; "": nothing has."""
        for address, word in self._counters.ran():
            self._at_start.setdefault(address, word)
        for address, word in self._at_start.items():
            tensor = self._there(address)
            if address in self._parameters if tensor is None else _word(tensor) != word:
                return changed(self._called(address))
        return self._why_other_mode()

    def _why_other_mode(self) -> str:
        modes = {}
        for part, _, _ in self._owners():
            if why := why_random(part):
                return in_training(part, "used by your function", why)
            modes[id(part)] = part.training
        if any(self._modes.get(part, training) != training for part, training in modes.items()):
            self._counters.forget_tried()  # a dropout beside it has no tensors: the next batch shows it
        self._modes = modes
        return ""

    def _called(self, address: int) -> str:
        for part, name, at in self._owners():
            if at == address:
                return f"{name} of a {type(part).__name__} that your function uses"
        return "a tensor that your function uses"

    def _owners(self) -> Iterator[tuple[nn.Module, str, int]]:
        """Give the modules whose tensors were used, with the tensors' names and addresses."""
        for each in self._modules if self._at_start else []:
            if (part := each()) is None:
                continue
            members = vars(part)  # one that is being made has none yet
            for name, tensor in (members.get("_parameters", {}) | members.get("_buffers", {})).items():
                if tensor is not None and (address := _address(tensor)) in self._at_start:
                    yield part, name, address

    def _there(self, address: int) -> torch.Tensor | None:
        """Return a tensor that was at an address from the beginning, and still is."""
        for each in self._tensors.get(address, ()):
            tensor = each()
            if tensor is not None and _address(tensor) == address:
                return tensor
        return None


class _Entering(TorchFunctionMode):
    """Notes where the tensors lie that enter operations."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: set[int] = set()
        self.written: set[int] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        given = {*_tensors_in(made, arrays=True)}  # a view is no use yet
        if given and not name.endswith("_like") and not name.startswith("new_"):
            whose = args[:1] if name == "to" or name.endswith("_as") else (*args, *kwargs.values())
            self.addresses |= {*_tensors_in(whose)} - given
        if name in _WRITING or (name.endswith("_") and not name.endswith("__")):
            self.written.update(_tensors_in(args[:1]))
        self.written.update(_tensors_in(kwargs.get("out")))
        return made


def _tensors_in(value: Any, *, arrays: bool = False) -> Iterator[int]:
    """Give the addresses of tensors in a value; for a NumPy array 1."""
    if isinstance(value, torch.Tensor):
        yield _address(value) or int(arrays)
    elif arrays and isinstance(value, np.ndarray):
        yield 1
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors_in(each, arrays=arrays)
    elif isinstance(value, dict):
        yield from _tensors_in([*value.values()], arrays=arrays)


def _address(tensor: torch.Tensor) -> int:
    """Return where a tensor's storage lies; 0 where it has no floating-point numbers that can be read there."""
    with contextlib.suppress(Exception), torch._C.DisableTorchFunctionSubclass():
        if (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_meta:
            return tensor.untyped_storage().data_ptr()
    return 0


def _word(tensor: torch.Tensor) -> int:
    """Return a number that stands for a tensor's whole storage, by whichever of its views it was found."""
    with torch._C.DisableTorchFunctionSubclass():
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        whole.set_(tensor.untyped_storage())
        numbers = repr(array_sum(whole, {})).encode()
    return int.from_bytes(hashlib.blake2b(numbers, digest_size=8).digest(), "little")
