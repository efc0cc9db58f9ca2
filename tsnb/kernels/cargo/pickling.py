"""How objects are written for another kernel: cloudpickle, protocol 5, with these differences.

- A function of the notebook takes along what it reads of the notebook's variables.
- A DataLoader travels without its running iterator (worker processes stay where they are).
- A module travels by name, also where a library has put an object in its place (`torch.backends`, `torch.classes`).
- An open file is refused (cloudpickle would read it into memory and pass the copy off as the file).
- What pickle would look up by its name in the receiver's `__main__`, where it is not (`lru_cache`, `NewType`), goes by
  value, and so does what holds a lock or weak references for its own purposes only (`cached_property`,
  `singledispatch`). Caches arrive empty, and a weak reference without a callback refers to the copy.
- A class or function of the notebook brings its name along. The receiver's `__main__` has it then, so that plain pickle
  finds it there: `torch.save(net)` in a trial whose cell never names the class.
- A consumer leaves its trial as a stand-in that is closed (`LeftBehind`), so that a trainer can be fetched that holds
  one. On its way *to* a kernel it is refused.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import io
import math
import pickle
import sys
import time
import types
import typing
import weakref
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, BinaryIO, NoReturn

import cloudpickle

from tsnb.errors import TsnbError
from tsnb.native.endings import Bound
from tsnb.stream.this_process import this_process

__all__ = [
    "KERNELS_OWN",
    "Sink",
    "TooLarge",
    "TookTooLong",
    "fingerprint",
    "pack",
    "packed_bytes",
    "trained_parts",
]

PIECE_BYTES = 16 * 2**20
"""Bytes that are written at once."""


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


def _settle_class(kind: type, state: tuple[Any, str, dict[str, Any]]) -> None:
    """Give an arrived class of the notebook its state, and its name where the receiver has none like it."""
    own, kind.__qualname__, named = state  # cloudpickle forgets that a class stands within another
    cloudpickle.cloudpickle._class_setstate(kind, own)
    _settle_name(kind, named)


def _settle_name(_: Any, named: dict[str, Any]) -> None:
    for name, value in named.items():
        _main_variables().setdefault(name, value)


class LeftBehind:
    """Stands for what stays in its process, a consumer for one, in something that was fetched from there.

    Attributes:
        closed: It is of no use any more.

    Args:
        what: What it was.
        instead: What to do.
    """

    closed = True

    def __init__(self, what: str, instead: str) -> None:
        self.what = what
        self._instead = instead

    def close(self) -> None:
        """Do nothing: it is closed."""

    def __iter__(self) -> NoReturn:
        raise TsnbError(self._why())

    __next__ = __iter__

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"no attribute {name!r}" if name[:1] == "_" else self._why())

    def _why(self) -> str:
        return (
            f"{self.what} stayed in the process that it was fetched from, and is closed here. {self._instead}"
        )

    def __repr__(self) -> str:
        return f"<closed: {self.what}>"


_DISPATCH = functools.singledispatch(len).__code__  # type: ignore[attr-defined]
"""The code of every function that `singledispatch` has made."""


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _dispatching(registry: Sequence[tuple[type, Callable[..., Any]]]) -> Any:
    implementations = dict(registry)
    function = functools.singledispatch(implementations.pop(object))
    for kind, implementation in implementations.items():
        function.register(kind, implementation)
    return function


def _cached_property(function: Callable[..., Any], name: str | None) -> Any:
    made = functools.cached_property(function)
    made.attrname = name
    return made


def _by_value(obj: Any) -> Any:
    """Reduce what pickle would look up by name, or could not take apart; NotImplemented for all else."""
    kind = type(obj)
    if kind is functools.cached_property:
        return _cached_property, (obj.func, obj.attrname)
    if kind is types.FunctionType and obj.__code__ is _DISPATCH and _is_of_main(obj):
        registry: Any = obj
        return _dispatching, (tuple(registry.registry.items()),)
    if kind is functools._lru_cache_wrapper and _is_of_main(obj):
        given = obj.cache_parameters()
        return _cached, (obj.__wrapped__, given["maxsize"], given["typed"])
    if kind is weakref.ref and obj.__callback__ is None and (referent := obj()) is not None:
        return weakref.ref, (referent,)
    if kind is typing.NewType and _is_of_main(obj):
        return typing.NewType, (obj.__name__, obj.__supertype__)
    if kind is typing.ParamSpec and _is_of_main(obj):
        return typing.ParamSpec, (obj.__name__,)
    return NotImplemented


def _is_special_module(obj: Any) -> bool:
    """Whether an import gives this object, which a library has put in a module's place (`torch.backends`)."""
    if not isinstance(obj, types.ModuleType) or type(obj) is types.ModuleType:
        return False
    return sys.modules.get(obj.__name__) is obj


def _is_of_main(obj: Any) -> bool:
    """Whether no import finds it: it is a notebook's own."""
    return cloudpickle.cloudpickle._lookup_module_and_qualname(obj) is None


class TooLarge(Exception):
    """More was written than there is room for."""


class TookTooLong(Exception):
    """Something was still being written when its time was over."""


class Sink:
    """Takes bytes up to a limit. Without a file it only counts them.

    It is written to in small pieces: between two of them an interrupt of the user's comes through.

    Attributes:
        size: Bytes so far.
        counts_only: Whether nothing is kept.

    Args:
        file: Where it is kept.
        room_bytes: The limit.
        until_s: When to give up, by the monotonic clock.
        more: Asked once, when `room_bytes` are used up: returns the limit from there on.
    """

    def __init__(
        self,
        file: BinaryIO | None = None,
        room_bytes: float = math.inf,
        until_s: float = math.inf,
        more: Callable[[], float] | None = None,
    ) -> None:
        self.size = 0
        self.counts_only = file is None
        self._file = file
        self._room_bytes = room_bytes
        self._until_s = until_s
        self._more = more

    def require(self, size: int) -> None:
        """Check that so many bytes more have room.

        Raises:
            TooLarge: They have not.
        """
        if self.size + size > self._room_bytes and self._more is not None:
            self._room_bytes, self._more = self._more(), None
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
    """cloudpickle, except for the notebook's functions, running loaders and open files.

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
        if _is_special_module(obj):
            return import_module, (obj.__name__,)
        reduced = _by_value(obj)
        if reduced is not NotImplemented:
            named = _names_of(obj)
            return (*reduced, named, None, None, _settle_name) if named else reduced
        if isinstance(obj, Bound) and this_process.name is not None:  # it leaves a trial
            return LeftBehind, (repr(obj), obj._instead)
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
        reduced = super().reducer_override(obj)
        return _with_name(obj, reduced) if isinstance(obj, type) else reduced

    def _function_of_main(self, function: types.FunctionType) -> Any:
        reduced = super().reducer_override(function)
        if reduced is NotImplemented:
            return reduced
        make, arguments, (plain, slots), *_ = reduced
        reads = {k: v for k, v in slots["__globals__"].items() if k not in KERNELS_OWN} | _names_of(function)
        return make, arguments, (plain, {**slots, "__globals__": reads}), None, None, _settle


def _with_name(kind: type, reduced: Any) -> Any:
    """Have a class of the notebook bring its name along, where that is how it is reduced."""
    if not isinstance(reduced, tuple) or len(reduced) < 6 or not (named := _names_of(kind)):
        return reduced
    make, arguments, state, *_ = reduced
    return make, arguments, (state, kind.__qualname__, named), None, None, _settle_class


def _names_of(obj: Any) -> dict[str, Any]:
    """Return under which variable of the notebook plain pickle looks for something: {"Net": Net}, or nothing.

    That of a class within a class is the outer one. Functions of a class are not looked for: it travels by itself.
    """
    name, *inner = str(getattr(obj, "__qualname__", getattr(obj, "__name__", ""))).split(".")
    found = variable = _main_variables().get(name)
    if inner and not isinstance(obj, type):
        return {}
    for step in inner:
        found = getattr(found, "__dict__", {}).get(step)
    return {name: variable} if found is obj and obj is not None else {}


def _is_storage(obj: Any) -> bool:
    """Whether it is the memory of a tensor. False without torch loaded."""
    return isinstance(obj, _class_of_torch("torch.storage", "TypedStorage"))


def _is_running_loader(obj: Any) -> bool:
    """Whether it is a DataLoader with a live iterator. False without torch loaded."""
    if getattr(obj, "_iterator", None) is None:
        return False
    return isinstance(obj, _class_of_torch("torch.utils.data", "DataLoader"))


def _class_of_torch(module: str, name: str) -> Any:
    """Return a class; an empty tuple where there is none yet: a thread may be importing torch just now."""
    return getattr(sys.modules.get(module), name, ())


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
        obj: The object to measure.
        until_s: When to give up, by the monotonic clock.

    Raises:
        TookTooLong: It took longer.
    """
    sink = Sink(until_s=until_s)
    pack(obj, sink)
    return sink.size


class _TrainedParts(_Packer):
    """Notes the models, optimizers and trained tensors that it meets, by identity."""

    def __init__(self, until_s: float) -> None:
        super().__init__(Sink(until_s=until_s))
        self.met: set[int] = set()
        kinds = (("torch.nn", "Module"), ("torch.optim", "Optimizer"))
        self._kinds = tuple(kind for where in kinds if (kind := _class_of_torch(*where)))
        self._tensor = _class_of_torch("torch", "Tensor")

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, self._kinds) or (isinstance(obj, self._tensor) and obj.requires_grad):
            self.met.add(id(obj))
        return super().reducer_override(obj)


def trained_parts(obj: Any, until_s: float) -> set[int]:
    """Return the identities of the models, optimizers and trained tensors within something that can travel.

    Args:
        obj: The object.
        until_s: When to give up, by the monotonic clock: nothing is known then.
    """
    try:
        (parts := _TrainedParts(until_s)).dump(obj)
    except Exception:  # noqa: BLE001 (its time is over, or it cannot travel: who sends it says why)
        return set()
    return parts.met


class _Describer(_Packer):
    """Writes a class without the number that distinguishes it from the same class after its cell was run again."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced[1]) > 2:
            make, (*parts, _tracker_id, extra), *rest = reduced
            return make, (*parts, None, extra), *rest
        return reduced


class _Digest:
    """A file that keeps a digest only."""

    def __init__(self) -> None:
        self.of = hashlib.sha256()

    def write(self, data: Any) -> None:
        self.of.update(data)


def fingerprint(obj: Any, most_bytes: float, until_s: float) -> str:
    """Return a word that two objects share if they are alike, made by the same code; "" if it is not known.

    Args:
        obj: The object to describe.
        most_bytes: Past this it is not looked at.
        until_s: When to give up, by the monotonic clock.
    """
    digest: Any = _Digest()
    try:
        _Describer(Sink(digest, most_bytes, until_s)).dump(obj)
    except Exception:  # noqa: BLE001 (whatever a user's __reduce__ raises)
        return ""
    return str(digest.of.hexdigest())
