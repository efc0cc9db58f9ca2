"""How objects are written for another kernel: cloudpickle, protocol 5, with three differences.

- A function of the notebook takes along what it reads of the notebook's variables, and finds the receiver's own
  where those exist.
- A DataLoader travels without its running iterator (worker processes stay where they are).
- An open file is refused (cloudpickle would read it into memory and pass the copy off as the file).
"""

from __future__ import annotations

import copy
import io
import pickle
import sys
import types
from typing import Any, BinaryIO

import cloudpickle

__all__ = ["KERNELS_OWN", "pack", "packed_bytes"]


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
    """cloudpickle, but for the notebook's functions, running loaders and open files.

    Attributes:
        code_files: The files that packed code names as its own.
    """

    def __init__(self, file: Any) -> None:
        super().__init__(file, protocol=5)
        self.code_files: set[str] = set()
        self._main = id(_main_variables())
        self.globals_ref[self._main] = _Main()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType) and id(obj.__globals__) == self._main:
            return self._function_of_main(obj)
        if isinstance(obj, types.CodeType):
            self.code_files.add(obj.co_filename)
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


def pack(obj: Any, file: BinaryIO) -> set[str]:
    """Write one object. Raises whatever a part of it raises that cannot travel.

    Returns:
        The files that the code in it names: those of the cells that functions were defined in, for one.
    """
    packer = _Packer(file)
    packer.dump(obj)
    return packer.code_files


def packed_bytes(obj: Any) -> int:
    """Return the bytes that an object takes when it travels, without keeping them."""
    counter = _Counter()
    pack(obj, counter)  # type: ignore[arg-type]
    return counter.size
