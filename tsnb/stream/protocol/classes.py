"""Objects of classes other than the plain containers: taken apart into their state, and made again by class name.

What crosses is a class's name and its instance's state. The other side looks the name up among what it has loaded
(`checks.find_class`): nothing is imported, and no code of the class runs, neither `__init__` nor `__setattr__`.

| kind | content | rebuilt by |
|---|---|---|
| a subclass of dict, list or tuple (OrderedDict, Counter, defaultdict) | its items | the built-in type's own methods |
| a dataclass or attrs class, a Mapping or UserList, a batch class with `pin_memory()` | none | `object.__new__` |

Beside the content goes the state: what lies in `__dict__` and in slots.
"""

from __future__ import annotations

import collections
import dataclasses
from collections import OrderedDict, UserDict, UserList, defaultdict
from collections.abc import Mapping
from functools import lru_cache
from types import BuiltinFunctionType, MemberDescriptorType
from typing import Any

from tsnb.stream.protocol.checks import attribute_of, find_class

__all__ = [
    "FACTORIES",
    "MissingClass",
    "Refusal",
    "class_name",
    "factory_name",
    "has_parts",
    "keeps_data",
    "made",
    "name_of",
    "named",
    "state_of",
]

FACTORIES: dict[str, Any] = {
    "None": None, "bool": bool, "bytes": bytes, "dict": dict, "float": float, "int": int, "list": list, "set": set,
    "str": str, "tuple": tuple, "Counter": collections.Counter, "OrderedDict": OrderedDict,
}  # fmt: skip
"""What a defaultdict may make its missing values with: looked up, and never called, by the other side."""
_NATIVE = (list, tuple, dict, OrderedDict, defaultdict, object)
_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class that was made by a `class` statement."""


class MissingClass(LookupError):
    """This process has no class of that name."""

    def __init__(self, module: str, qualname: str) -> None:
        super().__init__(module, qualname)
        self.module = module
        self.qualname = qualname


class Refusal(Exception):
    """A leaf cannot be shared; the text goes on from its place in the batch: "is a sparse tensor: ..."."""


def class_name(cls: type) -> tuple[str, str] | None:
    """Return a class's module and qualified name, if another process can find it by them."""
    # where workers are spawned, the script's own module has this name too
    module = "__main__" if cls.__module__ == "__mp_main__" else cls.__module__
    if "<locals>" in cls.__qualname__:
        return None
    # a notebook's classes lie in a producer kernel without a module around them, and in a trial's `__main__`
    if module == "__main__":
        return module, cls.__qualname__
    for where in (
        module,
        module.partition(".")[0],
    ):  # numpy.rec.recarray, say, is loaded as numpy.recarray only
        if find_class(where, cls.__qualname__) is cls:
            return where, cls.__qualname__
    return None


def name_of(cls: type) -> tuple[str, str]:
    """Return a class's module and qualified name.

    Raises:
        Refusal: Another process cannot find it by them.
    """
    name = class_name(cls)
    if name is None:
        raise Refusal(
            f"is a {cls.__module__}.{cls.__qualname__}, a class that other processes cannot find by "
            "name. Define it at the top level of a module that the trials also import, or convert it "
            "in your collate_fn."
        )
    return name


def named(module: str, qualname: str) -> type:
    """Return the class of that name.

    Raises:
        MissingClass: This process does not have it.
    """
    found = find_class(module, qualname)
    if found is None:
        raise MissingClass(module, qualname)
    return found


def factory_name(node: defaultdict[Any, Any]) -> str | None:
    """Return the word for a defaultdict's factory; None if it has no word."""
    return next((word for word, made in FACTORIES.items() if node.default_factory is made), None)


@lru_cache(maxsize=256)
def has_parts(cls: type) -> bool:
    """Return whether an instance is all in its state: so of the classes in the table's second line."""
    kind = (
        dataclasses.is_dataclass(cls)
        or attribute_of(cls, "__attrs_attrs__") is not None
        or issubclass(cls, (Mapping, UserList))
        or callable(attribute_of(cls, "pin_memory"))
    )
    ours = all(
        attribute_of(cls, name) is vars(object).get(name)
        for name in ("__reduce__", "__reduce_ex__", "__del__")
    )
    return kind and ours and _native(cls) is object


def keeps_data(cls: type) -> bool:
    """Return whether what its user sees as its items lies in `.data`."""
    return issubclass(cls, (UserDict, UserList))


def _native(cls: type) -> type | None:
    """Return the built-in type below it; None where that has a state of its own that nothing here knows."""
    base = next(k for k in cls.__mro__ if k in _NATIVE or not k.__flags__ & _HEAP_TYPE)
    return base if base in _NATIVE else None


def content_type(cls: type) -> type | None:
    """Return dict, list or tuple where a class is a subclass that can be made again, else None."""
    if _native(cls) in (None, object):
        return None
    return next((k for k in (dict, list, tuple) if issubclass(cls, k)), None)


def content_of(node: Any, kind: type) -> Any:
    """Return what a subclass of dict, list or tuple holds as that, past all ways of its own to show it."""
    if kind is dict:
        return dict((OrderedDict if isinstance(node, OrderedDict) else dict).items(node))
    return kind(list.__iter__(node) if kind is list else tuple.__iter__(node))


def state_of(node: object) -> dict[str, Any]:
    """Return an object's attributes: what lies in `__dict__` and in the slots of its classes."""
    state = dict(getattr(node, "__dict__", ()))
    for name, member in _slots(_class(node)).items():
        try:
            state[name] = member.__get__(node)
        except AttributeError:  # never set
            pass
    return state


def _class(node: object) -> Any:
    return type(node)


@lru_cache(maxsize=256)
def _slots(cls: type) -> dict[str, Any]:
    own = [k for k in cls.__mro__ if k.__flags__ & _HEAP_TYPE]
    return {n: m for k in reversed(own) for n, m in vars(k).items() if type(m) is MemberDescriptorType}


def set_state(node: object, state: dict[str, Any]) -> Any:
    """Give an object its attributes, without a look at its class's own ways to set them; return it."""
    slots = _slots(_class(node))
    for name, value in state.items():
        member = slots.get(name)
        if member is not None:
            member.__set__(node, value)
        else:
            vars(node)[name] = value
    return node


def made(cls: type, content: Any, factory: str | None) -> Any:
    """Return a new instance with its items, and without its attributes.

    Args:
        cls: Its class.
        content: A plain dict, list or tuple; None for a class that is all in its state.
        factory: A defaultdict's, as `factory_name` has it.

    Raises:
        TypeError: No instance of that class has such a content.
    """
    wanted = object if content is None else type(content)
    fits = has_parts(cls) if content is None else content_type(cls) is wanted
    if not fits:
        raise TypeError(f"a {cls.__module__}.{cls.__qualname__} made of a {wanted.__name__}")
    new = next(
        v for k in cls.__mro__ if isinstance(v := vars(k).get("__new__"), BuiltinFunctionType)
    )  # the built-in type's own
    if wanted is tuple:
        return new(cls, content)
    node = new(cls)
    if wanted is list:
        list.extend(node, content)
    elif issubclass(cls, OrderedDict):
        for key, value in content.items():
            OrderedDict.__setitem__(node, key, value)
    elif wanted is dict:
        dict.update(node, content)
        if issubclass(cls, defaultdict):
            vars(defaultdict)["default_factory"].__set__(node, FACTORIES[str(factory)])
    return node
