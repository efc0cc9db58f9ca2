"""Objects on their way to another kernel: cloudpickle, protocol 5, through a private file.

Classes and functions of the notebook travel by value, those of importable modules by name. Objects shipped
together stay together (two variables that share a dataset share it on arrival). Two things differ from plain
cloudpickle: a DataLoader travels without its running iterator (worker processes stay where they are), and an
open file is refused (cloudpickle would read it into memory and pass the copy off as the file).

Only files in a directory of mode 0700 are ever unpickled, never anything from a socket.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import sys
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle

from tsnb.errors import NotShippable

__all__ = ["KERNELS_OWN", "LARGE_BYTES", "fetch", "pack", "packed_bytes", "ship"]

LARGE_BYTES = 64 * 2**20
"""Past this a copy is worth a warning: it takes memory once per kernel, and time at each start."""


class _Main:
    """Stands for the notebook's variables (`__main__`) in a pickle; arrives as those of the receiver."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _main_variables, ()


def _main_variables() -> dict[str, Any]:
    return vars(sys.modules["__main__"])


KERNELS_OWN = frozenset({
    "In", "Out", "_", "__", "___", "__builtin__", "__builtins__", "__doc__", "__file__", "__name__",
    "display", "exit", "get_ipython", "quit",
})  # fmt: skip
"""Variables that every kernel has of its own: the sender's stay behind."""


def _settle(function: types.FunctionType, state: tuple[Any, dict[str, Any]]) -> None:
    """Give an arrived function of the notebook its state; globals that the receiver lacks are added."""
    plain, slots = state
    variables = function.__globals__
    for name, value in slots["__globals__"].items():
        variables.setdefault(name, value)
    builtins = variables.get("__builtins__")
    cloudpickle.cloudpickle._function_setstate(function, (plain, {**slots, "__globals__": {}}))
    variables["__builtins__"] = builtins


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, but for the notebook's functions, running loaders and open files."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, protocol=5)
        self._main = id(_main_variables())
        self.globals_ref[self._main] = _Main()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType) and id(obj.__globals__) == self._main:
            return self._function_of_main(obj)
        if isinstance(obj, io.TextIOWrapper) and obj not in {sys.__stdout__, sys.__stderr__}:
            raise pickle.PicklingError(f"cannot pickle an open file ({obj.name})")
        if _is_running_loader(obj):
            resting = copy.copy(obj)
            resting._iterator = None
            return resting.__reduce_ex__(5)
        return super().reducer_override(obj)

    def _function_of_main(self, function: types.FunctionType) -> Any:
        reduced = super().reducer_override(function)
        if reduced is NotImplemented:
            return reduced
        make, arguments, (plain, slots), *_ = reduced
        reads = {k: v for k, v in slots["__globals__"].items() if k not in KERNELS_OWN}
        return make, arguments, (plain, {**slots, "__globals__": reads}), None, None, _settle


def _is_running_loader(obj: Any) -> bool:
    """Whether it is a DataLoader with a live iterator. Without torch loaded there is none."""
    if getattr(obj, "_iterator", None) is None:
        return False
    module = sys.modules.get("torch.utils.data")
    return module is not None and isinstance(obj, module.DataLoader)


class _Counter(io.RawIOBase):
    """A file that only counts what is written to it."""

    size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written = memoryview(data).nbytes
        self.size += written
        return written


def pack(obj: Any, file: BinaryIO) -> None:
    """Write one object. Raises whatever a part of it raises that cannot travel."""
    _Packer(file).dump(obj)


def packed_bytes(obj: Any) -> int:
    """Return the bytes that an object takes when it travels, without keeping them."""
    counter = _Counter()
    pack(obj, counter)  # type: ignore[arg-type]
    return counter.size


def ship(variables: Mapping[str, Any], path: Path, purpose: str) -> None:
    """Write variables to a private file, for `fetch` in another process.

    Called on the thread that owns the objects, before anything is started.

    Args:
        variables: By name; they travel together.
        path: A file that does not exist, in a private directory.
        purpose: What they are for, for messages ("trial 'cnn'").

    Raises:
        NotShippable: Something cannot travel; names the variable, the attribute path, and the fix.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            pack(dict(variables), file)
    except Exception as error:
        path.unlink(missing_ok=True)
        from tsnb.kernels.obstacles import explain

        raise NotShippable(explain(variables, error, purpose)) from error
    if path.stat().st_size > LARGE_BYTES:
        _warn_large(variables, purpose)


def _warn_large(variables: Mapping[str, Any], purpose: str) -> None:
    sizes = {name: packed_bytes(value) for name, value in variables.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    total = sum(sizes.values()) / 2**20
    warnings.warn(
        f"{purpose} takes a copy of {total:.0f} MB along, most of it in {largest!r} "
        f"({sizes[largest] / 2**20:.0f} MB). It may be quicker to load it in the background kernel itself.",
        stacklevel=4,
    )


def fetch(path: Path) -> dict[str, Any]:
    """Read what `ship` wrote, and remove the file.

    Raises:
        Exception: Whatever the objects raise on arrival (a module that cannot be imported here, say).
    """
    try:
        with path.open("rb") as file:
            arrived: dict[str, Any] = pickle.load(file)  # noqa: S301 (our own file, in a private directory)
            return arrived
    finally:
        path.unlink(missing_ok=True)
