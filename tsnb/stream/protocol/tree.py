"""Batches of any nesting, taken apart into leaves and put together again.

Pure: knows no torch and no numpy; what counts as an array is told by the caller. The *spec* that describes a
tree is made of JSON lists only, so that it can cross a process border without pickle:

    ["a", kind]                                     an array leaf; `kind` is the caller's word for it
    ["v"] / ["vt"]                                  a value leaf: scalar or list of scalars / tuple of scalars
    ["list" | "tuple", child, ...]
    ["dict", [key, ...], child, ...]
    ["named" | "data", module, qualname, [field, ...], child, ...]     named tuple, dataclass
    ["kin", module, qualname, hint, [attribute, ...], content, child, ...]   other classes (`protocol.classes`)
    ["enum", module, qualname, child]               a member of an enumeration; the child is its name
    ["made", "own", [module, qualname], [], child]  an object of a class that `protocol.adapters` knows
    ["made", recipe, form, [attribute, ...], child, ...]   what the caller makes of others: a masked array, say
    ["c", value]                                    an attribute that is None, a bool, a whole number or a short text
    ["same", n]                                     what was the n-th to be complete: the very same object again

A key of a dict is a text, a number, None, or ["enum", module, qualname, name]: a member of an enumeration.

A list or tuple made of scalars alone (the file names of a batch, say) is one leaf: it costs one entry, and
re-batching may cut it like a tensor's first dimension. Only arrays and containers have a number for "same".
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import warnings
from collections import defaultdict, namedtuple
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

from tsnb.errors import BatchNotShareable, SharedBatchWarning
from tsnb.stream.protocol import adapters, classes
from tsnb.stream.protocol.checks import MAX_DEPTH, attribute_of, find_class
from tsnb.stream.protocol.classes import Refusal
from tsnb.stream.protocol.scalars import SCALARS, why_not
from tsnb.stream.protocol.specs import HEADS, Spec, checked_words, leaf_paths, leaf_words, place_of

__all__ = [
    "Parts",
    "Refusal",
    "Spec",
    "checked_words",
    "flatten",
    "leaf_paths",
    "leaf_words",
    "unflatten",
    "users_frame",
]


class Parts(NamedTuple):
    """A leaf that is made of others."""

    recipe: str
    """The caller's word for how; given back to its `make`."""
    form: list[Any]
    """What else that needs, as JSON."""
    names: list[str]
    """Its attributes; their values are the last of the children."""
    children: list[Any]


Classify = Callable[[Any], "str | Parts | None"]
Make = Callable[[str, list[Any], list[str], list[Any]], Any]
MOST_ARRAYS = 8192
"""Of a batch: a layout takes 18 bytes at least for each, and has 128 KiB."""
MOST_CONSTANT = 64
"""Letters of a text, and bits of a number, that may stand in a spec, which is sent again whenever it changes."""
_NUMBERLESS = ("v", "vt", "c", "same", "enum")


class _TooMany(Exception):
    """A batch has so many arrays that no packet can describe it: it is not worth looking further."""


class _Flattening:
    """One batch being taken apart."""

    def __init__(self, classify: Classify) -> None:
        self.classify = classify
        self.leaves: list[Any] = []
        self.numbers: dict[int, int] = {}  # of complete parts, by id
        self.kept: list[Any] = []  # keeps those ids from being given away
        self.above: set[int] = set()
        self.arrays = 0

    def add_array(self, node: Any) -> None:
        self.arrays += 1
        if self.arrays > MOST_ARRAYS:
            raise _TooMany
        self.leaves.append(node)
        self.complete(node)

    def complete(self, node: Any) -> None:
        self.numbers[id(node)] = len(self.kept)
        self.kept.append(node)


def flatten(tree: Any, classify: Classify) -> tuple[list[Any], Spec]:
    """Take a batch apart.

    Args:
        tree: The batch, as the loader yielded it.
        classify: Gives the kind of an array leaf, or the parts of one that is made of several; None for anything else.
            It may raise `Refusal`.

    Returns:
        Its leaves in order (arrays, scalars, lists of scalars) and the spec to rebuild it.

    Raises:
        BatchNotShareable: It holds something that cannot be shared without a change; names its place.
    """
    run = _Flattening(classify)
    try:
        return run.leaves, _flatten(tree, run, "batch")
    except _TooMany:
        raise BatchNotShareable(
            f"The batch has more than {MOST_ARRAYS:,} tensors. Stack or concatenate them into fewer in "
            "your collate_fn."
        ) from None
    except RecursionError:
        raise BatchNotShareable(
            f"The batch is nested more than {MAX_DEPTH} levels deep. Flatten it in your collate_fn."
        ) from None


def _flatten(node: Any, run: _Flattening, path: str) -> Spec:
    kind = type(node)
    if kind in SCALARS:
        run.leaves.append(node)
        return ["v"]
    if kind in (list, tuple) and all(type(x) in SCALARS for x in node):
        run.leaves.append(list(node))
        return ["vt"] if kind is tuple else ["v"]
    if kind is _Constant:
        return ["c", node.value]
    number = run.numbers.get(id(node))
    if number is not None:
        return ["same", number]
    try:
        adapter = adapters.adapter_of(kind)
        array = run.classify(node) if adapter is None else _adapted(node, *adapter)
        if isinstance(array, str):
            run.add_array(node)
            return ["a", array]
        head, children = _parts(array, path) if array is not None else _container(node, path)
    except Refusal as why:
        raise BatchNotShareable(f"{path} {why}") from None
    if head[0] == "v":
        run.leaves.append(node)
        return head
    if id(node) in run.above:
        raise BatchNotShareable(f"{path} contains itself. Remove the circular reference in your collate_fn.")
    run.above.add(id(node))
    spec = [*head, *[_flatten(child, run, where) for where, child in children]]
    run.above.discard(id(node))
    if head[0] not in _NUMBERLESS:
        run.complete(node)
    return spec


def _adapted(node: Any, cls: type, adapter: adapters.Adapter) -> Parts:
    """Return what stands for an object of a class that is known, or was registered.

    Raises:
        Refusal: Another class would come of it.
    """
    try:
        content = adapters.take_apart(node, adapter)
    except adapters.AnotherClass as other:
        raise Refusal(
            f"is a {type(node).__module__}.{type(node).__qualname__}, but would arrive as a {other}. "
            "Call tsnb.data.register for its own class."
        ) from None
    if type(content) is dict:  # what is the same in each batch has no row, and need not be cut
        content = {k: _Constant(x) if _is_constant(x) else x for k, x in content.items()}
    return Parts("own", list(classes.name_of(cls)), [], [content])


class _Constant(NamedTuple):
    value: Any


def _parts(parts: Parts, path: str) -> tuple[list[Any], list[tuple[str, Any]]]:
    plain = len(parts.children) - len(parts.names)
    steps = [""] * plain + [f".{name}" for name in parts.names]
    children = [(path + step, child) for step, child in zip(steps, parts.children, strict=True)]
    return ["made", parts.recipe, parts.form, parts.names], children


def _container(node: Any, path: str) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Return the head of the container's spec, and its children with their paths.

    Raises:
        Refusal: It is not one, or holds what cannot be described.
    """
    cls = type(node)
    if cls is dict:
        return _items(node, path)
    if cls in (list, tuple):
        return [cls.__name__], [(f"{path}[{i}]", child) for i, child in enumerate(node)]
    reason = why_not(node)
    if reason is not None:
        if reason:
            raise Refusal(f"{reason}. Convert it in your collate_fn.")
        return ["v"], []
    if isinstance(node, enum.Enum):
        if not isinstance(node.name, str) or cls.__members__.get(node.name) is not node:
            raise Refusal("is a combination of flags. Return its .value, and rebuild the flags in the trial.")
        return ["enum", *classes.name_of(cls)], [(path, node.name)]
    state = classes.state_of(node)
    if isinstance(node, tuple) and hasattr(node, "_fields") and not state:
        fields = list(node._fields)
        head = ["named", cls.__module__, cls.__qualname__, fields]
        return _as_main(head), [(f"{path}.{f}", x) for f, x in zip(fields, tuple(node), strict=True)]
    if dataclasses.is_dataclass(cls) and classes.has_parts(cls):
        fields = [f.name for f in dataclasses.fields(cls)]
        # a field that is not in the instance has its default in the class; one that was never set has neither
        values = {
            f: state[f] if f in state else getattr(node, f) for f in fields if f in state or hasattr(node, f)
        }
        if len(values) == len(fields) and state.keys() <= values.keys():
            head = ["data", cls.__module__, cls.__qualname__, fields]
            return _as_main(head), [(f"{path}.{f}", x) for f, x in values.items()]
    return _kin(node, cls, state, path)


def _items(node: Any, path: str) -> tuple[list[Any], list[tuple[str, Any]]]:
    keys = list(node)
    for key in keys:
        if type(key) not in (str, int, float, bool, type(None)) and not isinstance(key, enum.Enum):
            raise Refusal(
                f"has a key of type {type(key).__name__} ({key!r:.80}). The keys of a shared batch "
                "must be strings, numbers or members of an enumeration. Change it in your collate_fn."
            )
    named = [_key(key) if isinstance(key, enum.Enum) else key for key in keys]
    return ["dict", named], [(f"{path}[{k!r}]", node[k]) for k in keys]


def _key(key: enum.Enum) -> list[str]:
    """Return a member of an enumeration as a spec has it.

    Raises:
        Refusal: Another process cannot find it by its name.
    """
    if type(key).__members__.get(key.name or "") is not key:
        raise Refusal(
            f"has the key {key!r:.80}, a combination of flags. Return its .value in your collate_fn."
        )
    return ["enum", *classes.name_of(type(key)), key.name or ""]


def _kin(node: Any, cls: type, state: dict[str, Any], path: str) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Take apart an object of a class that the other side finds by its name."""
    kind = classes.content_type(cls)
    if kind is None and not classes.has_parts(cls):
        raise Refusal(
            f"is a {cls.__module__}.{cls.__qualname__}, which cannot be shared between processes. A "
            "batch may hold tensors, NumPy arrays, strings, bytes, numbers, dates and paths, in dicts, "
            "lists, tuples, named tuples, dataclasses and subclasses of these. Convert it in your "
            "collate_fn."
        )
    hint = "data" if kind is None and classes.keeps_data(cls) else None
    if isinstance(node, defaultdict):
        hint = classes.factory_name(node)
        if hint is None:
            raise Refusal(
                f"is a defaultdict of {node.default_factory!r:.80}, which cannot be sent to other "
                f"processes. Return dict(batch), or a defaultdict of {', '.join(classes.FACTORIES)}, "
                "in your collate_fn."
            )
    head = ["kin", *classes.name_of(cls), hint, list(state)]
    # what a plain container holds, without any way of its class's own to show it
    content = _Constant(None) if kind is None else classes.content_of(node, kind)
    shows = {name: path if name == hint else f"{path}.{name}" for name in state}
    constant = kind is not None or hint is not None
    return head, [
        (path, content),
        *((shows[name], _Constant(x) if constant and _is_constant(x) else x) for name, x in state.items()),
    ]


def _is_constant(value: Any) -> bool:
    kind = type(value)
    return (
        kind in (type(None), bool)
        or (kind is int and value.bit_length() <= MOST_CONSTANT)
        or (kind is str and len(value) <= MOST_CONSTANT)
    )


def _as_main(head: list[Any]) -> list[Any]:
    if head[1] == "__mp_main__":  # where workers are spawned, the script's own module is called so
        head[1] = "__main__"
    return head


def unflatten(spec: Spec, leaves: Iterator[Any], make: Make | None = None) -> Any:
    """Put a batch together again from its leaves, in the order that `flatten` gave them.

    Args:
        spec: The tree.
        leaves: Its leaves.
        make: Makes a leaf of others, from a recipe, its form, the names of its attributes and the children.

    Raises:
        BatchNotShareable: It needs a class that this process has not loaded; names it, and its place.
        ValueError, TypeError, AttributeError: The spec names a class that cannot be made of these leaves.
    """
    try:
        return _unflatten(spec, leaves, make or _no_recipes, [])
    except classes.MissingClass as missing:
        module, qualname = missing.module, missing.qualname
        where = place_of(spec, [module, qualname], "batch")
        way = f"Write `import {module}` before the loop"
        if module == "__main__":
            way = "Define it in a module that both processes import"
        raise BatchNotShareable(
            f"{where} is a {module}.{qualname}, a class that this process has not loaded. tsnb never "
            f"imports a module because a batch names it. {way}, or convert the object in the loader's "
            "collate_fn."
        ) from None


def _no_recipes(recipe: str, *_: Any) -> Any:
    raise ValueError(f"a recipe {recipe!r:.80}")


def _unflatten(spec: Spec, leaves: Iterator[Any], make: Make, built: list[Any]) -> Any:
    word = spec[0]
    if word == "v":
        return next(leaves)
    if word == "a":
        node: Any = next(leaves)
    elif word == "vt":
        return tuple(next(leaves))
    elif word == "c":
        return spec[1]
    elif word == "same":
        return built[spec[1]]
    else:
        head = HEADS[word]
        children = [_unflatten(child, leaves, make, built) for child in spec[head:]]
        if word == "list":
            node = children
        elif word == "tuple":
            node = tuple(children)
        elif word == "dict":
            keys = [_member(key, key[3]) if isinstance(key, list) else key for key in spec[1]]
            node = dict(zip(keys, children, strict=True))
        elif word == "enum":
            return _member(spec, children[0])
        else:
            node = _made(spec, children, make) if word == "made" else _build(spec, children)
    built.append(node)
    return node


def _made(spec: Spec, children: list[Any], make: Make) -> Any:
    if spec[1] == "own":
        module, qualname = spec[2]
        return adapters.made_again(str(module), str(qualname), *children)
    return make(spec[1], spec[2], spec[3], children)


def _member(spec: Spec, name: Any) -> Any:
    cls = classes.named(spec[1], spec[2])
    found = cls.__members__.get(name) if issubclass(cls, enum.Enum) else None
    if found is None:
        raise ValueError(f"no member {name!r:.80} of {spec[1]}.{spec[2]}")
    return found


def _build(spec: Spec, children: list[Any]) -> Any:
    if spec[0] == "kin":
        node = classes.made(classes.named(spec[1], spec[2]), children[0], spec[3])
        return classes.set_state(node, dict(zip(spec[4], children[1:], strict=True)))
    cls = _resolve(spec[0], spec[1], spec[2], tuple(spec[3]))
    if spec[0] == "named":
        return tuple.__new__(cls, children)  # as `_make`, which a class may have changed
    made = object.__new__(cls)  # not cls(...): fields may be init=False, and __post_init__ has run already
    return classes.set_state(made, dict(zip(spec[3], children, strict=True)))


def _resolve(word: str, module: str, qualname: str, fields: tuple[str, ...]) -> Any:
    """Find the class where this process has it loaded; else make one of the same name and fields.

    Nothing is imported: a name that arrives on a socket must not make this process run code. It is looked for each
    time: its module may be imported, and a notebook's cell run again, at any moment.
    """
    found = find_class(module, qualname)
    if found is not None and _has_fields(found, word, fields):
        return found
    return _likeness(word, module, qualname, fields)


@lru_cache(maxsize=256)
def _has_fields(cls: type, word: str, fields: tuple[str, ...]) -> bool:
    if word == "named":
        return issubclass(cls, tuple) and attribute_of(cls, "_fields") == fields
    known = attribute_of(cls, "__dataclass_fields__") is not None and classes.has_parts(cls)
    return known and tuple(f.name for f in dataclasses.fields(cls)) == fields


@lru_cache(maxsize=256)
def _likeness(word: str, module: str, qualname: str, fields: tuple[str, ...]) -> Any:
    name = qualname.rsplit(".", 1)[-1]
    warnings.warn(
        f"Batches hold a {module}.{qualname}. This process has not loaded that class, or has it with "
        "other fields, so batches arrive with a look-alike: the same fields and no methods. Import the "
        "class (if a notebook or script defines it, move it into a module that both import). The next "
        "batch then uses it.",
        SharedBatchWarning,
        stacklevel=max(1, users_frame()[1]),
    )
    if word == "named":
        return namedtuple(name, fields, rename=True)  # noqa: PYI024  # fields come at run time
    made = dataclasses.make_dataclass(name, fields)
    made.__module__ = "types"  # from Python 3.12 on it would be this module, which has no such class
    return made


def users_frame() -> tuple[FrameType | None, int]:
    """Return the innermost frame that is not tsnb's own, and how far up it is from the caller's."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tsnb."):
        frame, level = frame.f_back, level + 1
    return frame, level
