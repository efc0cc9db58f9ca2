"""By what code and values are known that decide in which order samples come, in this process and in another one.

Equal identities mean the same code and the same values: bytecode, defaults, closures, the globals and the project's own
modules that a function refers to, an object's class and attributes, the contents of arrays and tensors. Installed
packages go by their names. What cannot be described (an open file, a running generator) has another identity in each
process, so it is never taken for the same.

A table of numbers larger than `WHOLE_BYTES` goes by its shape and by pieces of it: another order moves them all.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import logging
import secrets
import site
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterable
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

__all__ = ["SCALARS", "identity", "is_installed", "names_in"]

WHOLE_BYTES = 1 << 28
"""Read in a quarter of a second; a stream is started that much later."""
PIECES, PIECE_BYTES = 256, 1 << 16
MOST_DEEP = 200
"""Values in one another."""
SCALARS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(...),
    range,
    slice,
    np.generic,
    torch.dtype,
)
"""Kinds of values with nothing in them."""
_WITHOUT_ORDER = (type(threading.Lock()), type(threading.RLock()), threading.Event, logging.Logger)
_OF_CLASSES = frozenset({
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__", "__static_attributes__",
    "__annotate__", "__annotate_func__", "__annotations_cache__", "_abc_impl", "__abstractmethods__", "__parameters__",
    "__orig_bases__", "__slots__", "__qualname__", "__type_params__", "__slotnames__",
})  # fmt: skip


def identity(*values: Any, leave_out: Collection[Any] = ()) -> str:
    """Return a word that stands for values, and for the code that they lead to.

    Args:
        values: Whatever decides about an order.
        leave_out: Objects that do not, though something leads to them.
    """
    described = _Described(leave_out)
    described.all(values)
    return described.digest.hexdigest()


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    found = [*paths, *site.getsitepackages(), site.getusersitepackages(), str(Path(torch.__file__).parent)]
    return tuple(f"{path.rstrip('/')}/" for path in found)


def is_installed(module: str | None) -> bool:
    """Return whether a module is of an installed package: its code stays what it is."""
    found = sys.modules.get(module or "")
    if found is None or module == "__main__":
        return False
    if found.__name__.partition(".")[0] == "tsnb":
        return True  # from a working copy, too
    file = getattr(found, "__file__", None)
    return file is None or file.startswith(_installed())


class _Described:
    """Gathers what describes values.

    Attributes:
        digest: Of it.
    """

    def __init__(self, leave_out: Collection[Any]) -> None:
        self.digest = hashlib.blake2b(digest_size=12)
        self._met = {id(value): -1 for value in leave_out}
        self._kept = list(leave_out)  # an id is another's when its object has gone
        self._deep = 0

    def all(self, values: Iterable[Any]) -> None:
        for value in values:
            self._one(value)

    def _say(self, *words: object) -> None:
        self.digest.update(repr(words).encode("utf-8", "surrogatepass"))

    def _one(self, value: Any) -> None:
        if isinstance(value, SCALARS):
            self._say(type(value).__name__, value)
            return
        if id(value) in self._met:
            self._say("met", self._met[id(value)])
            return
        self._met[id(value)] = len(self._met)
        self._kept.append(value)
        self._deep += 1
        if self._deep > MOST_DEEP:
            self._unlike(value)
        else:
            self._say(type(value).__qualname__)
            deep = self._deep
            try:
                self._described(value)(value)
            # its class's own code, or a kind that nobody has thought of: it is served all the same
            except Exception:  # noqa: BLE001
                self._deep = deep
                self._unlike(value)
        self._deep -= 1

    def _described(self, value: Any) -> Callable[[Any], None]:
        kinds: tuple[tuple[Any, Callable[[Any], None]], ...] = (
            ((list, tuple), self._sequence),
            ((set, frozenset), self._set),
            ((dict, types.MappingProxyType), self._mapping),
            (np.ndarray, self._array),
            (torch.Tensor, self._tensor),
            (torch.Generator, lambda made: self._array(made.get_state().numpy())),
            (types.FunctionType, self._function),
            (types.CodeType, self._code),
            (types.ModuleType, lambda module: self._say(module.__name__)),
            (types.MethodType, lambda bound: self.all((bound.__func__, bound.__self__))),
            (functools.partial, lambda made: self.all((made.func, made.args, made.keywords))),
            ((staticmethod, classmethod), lambda made: self._one(made.__func__)),
            (property, lambda made: self.all((made.fget, made.fset))),
            (types.BuiltinFunctionType, self._builtin),
            (type, self._class),
            (PurePath, lambda path: self._say(str(path))),
            ((*_WITHOUT_ORDER, torch.device), lambda _: None),
            (
                (weakref.ref, weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary),
                lambda _: None,
            ),
        )
        return next((say for kind, say in kinds if isinstance(value, kind)), self._object)

    def _unlike(self, value: Any) -> None:
        """It cannot be described: nothing is like it."""
        self._say(type(value).__qualname__, secrets.token_hex(8))

    def _sequence(self, values: Any) -> None:
        self._say(len(values))
        if all(type(value) in (int, float, str, bool) for value in values):
            self._say(*values)
        else:
            self.all(values)
        if type(values) not in (list, tuple):
            self._object(values)

    def _set(self, values: Any) -> None:
        self._say(sorted(identity(value) for value in values))  # their order is another one in each process

    def _mapping(self, values: Any) -> None:
        self._say(len(values))
        for key, value in values.items():
            self._one(key)
            self._one(value)

    def _array(self, values: Any) -> None:
        self._say(values.dtype.str, values.shape)
        if values.dtype.hasobject:
            self.all(values.ravel().tolist())
        elif values.nbytes <= WHOLE_BYTES:
            self.digest.update(np.ascontiguousarray(values).data.cast("B") if values.size else b"")
        else:
            self._pieces(values)

    def _pieces(self, values: Any) -> None:
        rows = values if values.flags.c_contiguous else values.reshape(-1)
        flat = rows.reshape(-1)
        most = max(1, PIECE_BYTES // flat.itemsize)
        for start in np.linspace(0, len(flat) - most, PIECES).astype(np.int64).tolist():
            self.digest.update(flat[start : start + most].tobytes())

    def _tensor(self, values: Any) -> None:
        plain = values.detach()
        if plain.layout is not torch.strided or plain.device.type not in ("cpu", "cuda", "mps"):
            self._unlike(values)
            return
        plain = plain.resolve_conj().resolve_neg().cpu().reshape(-1)
        if (
            plain.stride(0) != 1
        ):  # one element alone counts as contiguous whatever its stride, and has no bytes to view
            plain = plain.clone(memory_format=torch.contiguous_format).as_strided(plain.shape, (1,))
        self._say(str(plain.dtype), tuple(values.shape))
        self._array(plain.view(torch.uint8).numpy())

    def _builtin(self, function: Any) -> None:
        self._say(function.__module__, function.__qualname__)
        if not isinstance(function.__self__, (types.ModuleType, type(None))):
            self._one(function.__self__)

    def _function(self, function: Any) -> None:
        self._say(function.__qualname__)
        if is_installed(function.__module__):
            self._say(function.__module__)
            if not function.__closure__:
                return
        code = function.__code__
        self.all((code, function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                self._one(cell.cell_contents)
            except ValueError:  # it is empty
                self._say("empty")
        self._referred(code, function.__globals__)

    def _referred(self, code: types.CodeType, variables: dict[str, Any]) -> None:
        """Describe the globals that code names, and what it names of the project's own modules."""
        read, names = names_in(code)
        for name in sorted(read & variables.keys()):
            value = variables[name]
            self._say(name)
            self._one(value)
            if isinstance(value, types.ModuleType) and not is_installed(value.__name__):
                self.all(vars(value)[each] for each in sorted(names & vars(value).keys()))

    def _code(self, code: types.CodeType) -> None:
        self._say(
            code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_flags, code.co_argcount
        )
        self.all(code.co_consts)

    def _class(self, kind: Any) -> None:
        self._say(kind.__module__ if is_installed(kind.__module__) else "", kind.__qualname__)
        if is_installed(kind.__module__):
            return
        self.all(kind.__bases__)
        for name in sorted(vars(kind).keys() - _OF_CLASSES):
            self._say(name)
            self._one(vars(kind)[name])

    def _object(self, value: Any) -> None:
        self._one(type(value))
        if hasattr(value, "__next__") or isinstance(value, (types.FrameType, types.GeneratorType)):
            self._unlike(value)
            return
        state = dict(getattr(value, "__dict__", {}))
        for base in type(value).__mro__:
            slots = vars(base).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    state[name] = getattr(value, name)
        if hasattr(value, "set_epoch"):
            state.pop("epoch", None)  # it is told that for each epoch
        kind: Any = type(value)
        if not state or kind.__reduce__ is not object.__reduce__ or kind in copyreg.dispatch_table:
            self._reduced(value)  # a random.Random's attributes are not all it has
        for name in sorted(state, key=str):
            self._say(name)
            self._one(state[name])

    def _reduced(self, value: Any) -> None:
        """Describe an object of compiled code by what it would be pickled as."""
        reduce = copyreg.dispatch_table.get(type(value))
        try:
            reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception:  # noqa: BLE001 (an open file, say; or whatever a class raises)
            self._unlike(value)
            return
        parts = reduced if isinstance(reduced, tuple) else (reduced,)
        self.all(list(part) if at in (3, 4) and part is not None else part for at, part in enumerate(parts))


def names_in(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Return the globals that code reads, and all names that it has; code within it included."""
    read = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    every = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            more, others = names_in(constant)
            read, every = read | more, every | others
    return read, every
