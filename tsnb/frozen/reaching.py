"""What a frozen part computes with: the networks, tensors and arrays that its code can reach.

| from | it reaches |
|---|---|
| a function | what it closes over, its defaults, the globals that it reads, and so on from the functions among them |
| a bound method, a partial | what it is bound to |
| a dict, list, tuple, set | all that is in it |
| an object or a module of the user's | the attributes and methods that some code reached so far names |
| an object of another package | all its attributes, but not the code of its class |
| a network | its modules and hooks; of one of the user's, what its code names besides |

The code of installed packages is not read. An attribute that no code names is left out: an object may hold a network
that is trained besides one that is frozen. Where code asks for attributes by `getattr` or `vars`, all count.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tsnb.stream.loader.identity import SCALARS, is_installed, names_in

__all__ = ["Reached", "reached"]

MOST_VALUES = 50_000
"""Looked at; what lies behind them is not found."""
_PLAIN = (*SCALARS, torch.device)
_SEQUENCES = (list, tuple, set, frozenset, deque)
_NEVER = ("torch", "numpy", "tsnb", "IPython", "ipykernel")
"""Packages whose objects hold no network of a frozen part; torch's networks are not meant."""
_AROUND = {
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
    functools.cached_property: "func",
    types.BuiltinFunctionType: "__self__",
    functools._lru_cache_wrapper: "__wrapped__",
}
"""Where kinds of values hold the one that they stand for."""
_BY_NAME = frozenset({"getattr", "vars", "__dict__", "attrgetter", "asdict", "astuple"})
_OF_NETWORKS = frozenset(vars(nn.Module()))
_MAKING = frozenset({
    "__init__", "__new__", "__del__", "__repr__", "__str__", "__reduce__", "__reduce_ex__", "__getstate__",
    "__setstate__", "__init_subclass__", "__class_getitem__", "__post_init__", "__dict__", "__weakref__", "__doc__",
    "__module__", "__slots__",
})  # fmt: skip


class Reached(NamedTuple):
    """What was found, each by the ways that lead to it, as code spells them (`box['teacher']`)."""

    networks: dict[str, nn.Module]
    """The one that is the frozen part itself by ""."""
    arrays: dict[str, Any]
    """Tensors and NumPy arrays of floating-point numbers that belong to no network; whole numbers count things."""

    def tensors(self) -> Iterator[torch.Tensor]:
        """Give all parameters and buffers, and the other tensors."""
        for network in {id(each): each for each in self.networks.values()}.values():
            yield from (*network.parameters(), *network.buffers())
        yield from (each for each in self.arrays.values() if isinstance(each, torch.Tensor))


def reached(then: Any) -> Reached:
    """Return what a frozen part computes with, as far as it can be seen."""
    walk = _Walk(then)
    walk.run()
    return Reached(walk.networks, walk.arrays)


class _Named(NamedTuple):
    """Attributes that count as soon as some code names them."""

    path: str
    members: dict[str, Any]
    always: bool
    """Whether a `getattr` may mean any of them."""


class _Walk:
    """Goes from value to value, nearest first.

    Attributes:
        networks, arrays: As `Reached`.
    """

    def __init__(self, then: Any) -> None:
        self.networks: dict[str, nn.Module] = {}
        self.arrays: dict[str, Any] = {}
        self._root = then
        self._met: dict[int, Any] = {}
        self._waiting: deque[tuple[str, Any]] = deque([("", then)])
        self._names = {"forward"}
        self._named: list[_Named] = []

    def run(self) -> None:
        """Go on until nothing new is found."""
        while self._waiting:
            while self._waiting and len(self._met) < MOST_VALUES:
                self._look(*self._waiting.popleft())
            if len(self._met) >= MOST_VALUES:
                return
            self._waiting.extend(self._now_named())

    def _now_named(self) -> Iterator[tuple[str, Any]]:
        everything = not self._names.isdisjoint(_BY_NAME)
        for path, members, always in self._named:
            chosen = members.keys() if everything and always else members.keys() & self._names
            for name in sorted(chosen):
                yield f"{path}.{name}" if path else name, members.pop(name)

    def _look(self, path: str, value: Any) -> None:
        kind = type(value)  # `isinstance` would ask an object that stands for another one, and load that
        if issubclass(kind, _PLAIN):
            return
        if issubclass(kind, nn.Module):
            _note(self.networks, path, value)
        elif issubclass(kind, (torch.Tensor, np.ndarray)):
            self._array(path, value)
            return
        if id(value) not in self._met:
            self._met[id(value)] = value
            with contextlib.suppress(Exception):  # of the user's classes, whose attributes may be anything
                self._waiting.extend(self._inside(path, value, kind))

    def _array(self, path: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            numbers = value.is_floating_point() or value.is_complex()
        else:
            numbers = value.dtype.kind in "fc" and not isinstance(value, np.memmap)
        if numbers:
            _note(self.arrays, path, value)
        elif not isinstance(value, torch.Tensor) and value.dtype.hasobject:
            self._waiting.append((path, value.ravel().tolist()))

    def _inside(self, path: str, value: Any, kind: type) -> Iterable[tuple[str, Any]]:
        if kind in _AROUND:
            return [(path, getattr(value, _AROUND[kind]))]
        kinds: tuple[tuple[Any, Callable[[str, Any], Iterable[tuple[str, Any]]]], ...] = (
            (nn.Module, self._of_network),
            (types.FunctionType, self._of_function),
            (types.MethodType, lambda at, bound: [(at, bound.__func__), (at or "self", bound.__self__)]),
            (functools.partial, _of_partial),
            ((dict, types.MappingProxyType), _of_mapping),
            (_SEQUENCES, _of_sequence),
            (weakref.ref, lambda at, value: [(at, value())]),
            (type, self._of_class),
            (types.ModuleType, self._of_module),
        )
        look = next((look for those, look in kinds if issubclass(kind, those)), self._of_object)
        return look(path, value)

    # -- code ------------------------------------------------------------------------------------------------

    def _of_function(self, path: str, function: Any) -> Iterator[tuple[str, Any]]:
        root = self._is_root(function)
        prefix = "" if root else f"{function.__name__}."
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            with contextlib.suppress(ValueError):  # it is empty
                yield f"{prefix}{name}", cell.cell_contents
        if "__wrapped__" in vars(function):
            yield path, function.__wrapped__
        if not root and is_installed(function.__module__):
            return  # what a decorator of a package has around the user's function
        read = self._read(code)
        arguments = code.co_varnames[: code.co_argcount]
        defaults = function.__defaults__ or ()
        yield from (
            (f"{prefix}{n}", v)
            for n, v in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
        )
        yield from ((f"{prefix}{n}", v) for n, v in (function.__kwdefaults__ or {}).items())
        for name in sorted(read & function.__globals__.keys()):
            yield name, function.__globals__[name]
        if vars(function):
            self._named.append(_Named(path, dict(vars(function)), always=True))

    def _is_root(self, function: Any) -> bool:
        root = self._root
        while isinstance(root, functools.partial):
            root = root.func
        return function is getattr(root, "__func__", root)

    def _read(self, code: types.CodeType) -> set[str]:
        """Take the names of some code; return the globals that it reads."""
        read, names = names_in(code)
        self._names |= names
        waiting = [code]
        while waiting:
            for constant in waiting.pop().co_consts:
                if isinstance(constant, str):
                    self._names.add(constant)
                elif isinstance(constant, types.CodeType):
                    waiting.append(constant)
        return read

    def _of_class(self, path: str, kind: type, *, made: bool = False) -> Iterator[tuple[str, Any]]:
        """Give what a class of the user's does; `made`: one of its objects was reached, which exists already."""
        for base in kind.__mro__:
            if is_installed(base.__module__):
                continue
            members = {name: each for name, each in vars(base).items() if name not in _MAKING}
            yield from (
                (path, members.pop(n)) for n in [*members] if n.startswith("__") and callable(members[n])
            )
            if not made and "__init__" in vars(base):
                yield path, vars(base)["__init__"]
            self._named.append(_Named(path, members, always=False))

    def _of_module(self, path: str, module: types.ModuleType) -> Iterable[tuple[str, Any]]:
        if not is_installed(module.__name__):
            self._named.append(_Named(path, dict(vars(module)), always=False))
        return ()

    # -- objects ---------------------------------------------------------------------------------------------

    def _of_object(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        kind = type(value)
        whose = {
            _package(base) for base in kind.__mro__ if base is not object and is_installed(base.__module__)
        }
        mine = not is_installed(kind.__module__)
        if not mine and _package(kind) in _NEVER:
            return
        members = _attributes(value, kind)
        if mine:
            yield from self._of_class(path, kind, made=True)
        if all(package in sys.stdlib_module_names or package in _NEVER for package in whose):
            self._named.append(_Named(path, members, always=True))
        else:  # its package's code reads what nothing here names
            yield from ((f"{path}.{name}" if path else name, each) for name, each in members.items())

    def _of_network(self, path: str, network: nn.Module) -> Iterator[tuple[str, Any]]:
        for name, part in network.named_modules():
            self._met[id(part)] = part
            kind, at = type(part), ".".join(filter(None, (path, name)))
            for hooks in (part._forward_hooks, part._forward_pre_hooks):
                yield from ((f"{at} hook", hook) for hook in hooks.values())
            members = {key: each for key, each in vars(part).items() if key not in _OF_NETWORKS}
            if is_installed(kind.__module__):
                held = (nn.Module, list, tuple, dict)
                yield from (
                    (f"{at}.{key}", each) for key, each in members.items() if issubclass(type(each), held)
                )
                continue
            members |= {key: part._buffers[key] for key in part._non_persistent_buffers_set}
            self._named.append(_Named(at, members, always=True))
            yield from self._of_class(at, kind, made=True)


def _of_partial(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    given = [(f"{path}args[{at}]", each) for at, each in enumerate(value.args)]
    return [(path, value.func), *given, *value.keywords.items()]


def _of_mapping(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    return [(f"{path}[{_key(key)}]", each) for key, each in _first(value.items()) if type(each) not in _PLAIN]


def _of_sequence(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    parts = sorted(value, key=id) if isinstance(value, (set, frozenset)) else _first(value)
    return [(f"{path}[{at}]", each) for at, each in enumerate(parts) if type(each) not in _PLAIN]


def _note(found: dict[str, Any], path: str, value: Any) -> None:
    """Note a value by its path; by another one where two things are called alike."""
    free, number = path, 1
    while free in found and found[free] is not value:
        number += 1
        free = f"{path} ({number})"
    found[free] = value


def _first(values: Iterable[Any]) -> list[Any]:
    return list(itertools.islice(values, MOST_VALUES))  # at once: another thread may add to them


def _key(key: Any) -> str:
    return repr(key) if isinstance(key, (str, int)) else type(key).__name__


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _attributes(value: Any, kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with contextlib.suppress(AttributeError):
        found |= object.__getattribute__(value, "__dict__")
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(AttributeError):
                found[name] = object.__getattribute__(value, name)
    return found
