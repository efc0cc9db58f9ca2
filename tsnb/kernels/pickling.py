"""How objects are written for another kernel: cloudpickle, protocol 5, with three differences.

- A function of the notebook takes along what it reads of the notebook's variables, and finds the receiver's own
  where those exist.
- A DataLoader travels without its running iterator (worker processes stay where they are).
- An open file is refused (cloudpickle would read it into memory and pass the copy off as the file).
"""

from __future__ import annotations

import copy
import io
import math
import pickle
import sys
import time
import types
from typing import Any, BinaryIO

import cloudpickle

__all__ = ["KERNELS_OWN", "Sink", "TooLarge", "TookTooLong", "pack", "packed_bytes"]

PIECE_BYTES = 16 * 2**20
"""What is written at once."""


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


class TooLarge(Exception):
    """More was written than there is room for."""


class TookTooLong(Exception):
    """Something was still being written when its time was over."""


class Sink:
    """Takes what is written, up to a limit. Without a file it is only counted.

    It is written to in small pieces: between two of them an interrupt of the user's comes through.

    Attributes:
        size: Bytes so far.
        counts_only: Whether nothing is kept.

    Args:
        file: Where it is kept.
        room_bytes: The limit.
        until_s: When to give up, by the monotonic clock.
    """

    def __init__(
        self, file: BinaryIO | None = None, room_bytes: float = math.inf, until_s: float = math.inf
    ) -> None:
        self.size = 0
        self.counts_only = file is None
        self._file = file
        self._room_bytes = room_bytes
        self._until_s = until_s

    def require(self, size: int) -> None:
        """Check that so many bytes more have room.

        Raises:
            TooLarge: They have not.
        """
        if self.size + size > self._room_bytes:
            raise TooLarge

    def write(self, data: Any) -> int:
        """Take some bytes. Called by the pickler.

        Raises:
            TooLarge: There is no room for them.
            TookTooLong: The time is over.
            OSError: The file cannot take them.
        """
        view = memoryview(data).cast("B")
        self.require(view.nbytes)
        if time.monotonic() > self._until_s:
            raise TookTooLong
        self.size += view.nbytes
        if self._file is not None:
            for start in range(0, view.nbytes, PIECE_BYTES):
                self._file.write(view[start : start + PIECE_BYTES])
        return view.nbytes

    def count(self, size: int) -> None:
        """Take note of bytes instead of taking them.

        Raises:
            TooLarge: There is no room for them.
        """
        self.require(size)
        self.size += size


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, but for the notebook's functions, running loaders and open files.

    Attributes:
        code_files: The files that packed code names as its own.
    """

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink, protocol=5)
        self._sink = sink
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
        if _is_storage(obj):
            size = obj._untyped_storage.nbytes()
            self._sink.require(size)  # before torch copies it twice
            if self._sink.counts_only:
                self._sink.count(size)
                return int, ()
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


def _is_storage(obj: Any) -> bool:
    """Whether it is the memory of a tensor. Without torch loaded there is none."""
    module = sys.modules.get("torch.storage")
    return module is not None and isinstance(obj, module.TypedStorage)


def _is_running_loader(obj: Any) -> bool:
    """Whether it is a DataLoader with a live iterator. Without torch loaded there is none."""
    if getattr(obj, "_iterator", None) is None:
        return False
    module = sys.modules.get("torch.utils.data")
    return module is not None and isinstance(obj, module.DataLoader)


def pack(obj: Any, file: BinaryIO | Sink) -> set[str]:
    """Write one object. Raises whatever a part of it raises that cannot travel, and what the sink raises.

    Returns:
        The files that the code in it names: those of the cells that functions were defined in, for one.
    """
    packer = _Packer(file if isinstance(file, Sink) else Sink(file))
    packer.dump(obj)
    return packer.code_files


def packed_bytes(obj: Any, until_s: float = math.inf) -> int:
    """Return the bytes that an object takes when it travels, without keeping or copying them.

    Args:
        obj: What is to be measured.
        until_s: When to give up, by the monotonic clock.

    Raises:
        TookTooLong: It took longer.
    """
    sink = Sink(until_s=until_s)
    pack(obj, sink)
    return sink.size
