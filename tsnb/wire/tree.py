"""Batches of any nesting, taken apart into leaves and put together again.

Pure: knows no torch and no numpy; what counts as an array is told by the caller. The *spec* that describes a
tree is made of JSON lists only, so that it can cross a process border without pickle:

    ["a", kind]                                     an array leaf; `kind` is the caller's word for it
    ["v"] / ["vt"]                                  a value leaf: scalar or list of scalars / tuple of scalars
    ["list" | "tuple", child, ...]
    ["dict", [key, ...], child, ...]                any mapping; comes back as a dict in the same order
    ["named" | "data", module, qualname, [field, ...], child, ...]     named tuple, dataclass

A list or tuple made of scalars alone (the file names of a batch, say) is one leaf: it costs one entry, and
re-batching may cut it like a tensor's first dimension.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from keyword import iskeyword
from typing import Any

from tsnb.errors import BatchNotShareable
from tsnb.wire.checks import MAX_DEPTH, attribute_of, find_class

__all__ = ["Spec", "flatten", "leaf_paths", "unflatten"]

Spec = list[Any]
Classify = Callable[[Any], "str | None"]

_SCALARS = (str, bytes, bool, int, float, complex, type(None))


def flatten(tree: Any, classify: Classify) -> tuple[list[Any], Spec]:
    """Take a batch apart.

    Args:
        tree: What the loader yielded.
        classify: Gives the kind of an array leaf, None for anything else.

    Returns:
        Its leaves in order (arrays, scalars, lists of scalars) and the spec to rebuild it.

    Raises:
        BatchNotShareable: It holds something that is neither a container, an array nor a scalar.
    """
    leaves: list[Any] = []
    try:
        return leaves, _flatten(tree, classify, leaves, "batch")
    except RecursionError:
        raise BatchNotShareable(
            f"a batch has more than {MAX_DEPTH} containers in one another, or one that holds itself. Flatten it in "
            "your collate_fn."
        ) from None


def _flatten(node: Any, classify: Classify, leaves: list[Any], path: str) -> Spec:
    kind = classify(node)
    if kind is not None:
        leaves.append(node)
        return ["a", kind]
    if type(node) in _SCALARS:
        leaves.append(node)
        return ["v"]
    if type(node) in (list, tuple) and all(type(x) in _SCALARS for x in node):
        leaves.append(list(node))
        return ["vt"] if type(node) is tuple else ["v"]
    head, children = _container(node, path)
    return [*head, *(_flatten(child, classify, leaves, where) for where, child in children)]


def _container(node: Any, path: str) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Return the head of the container's spec, and its children with their paths."""
    if isinstance(node, Mapping):
        keys = list(node)
        for key in keys:
            if type(key) not in (str, int, float, bool, type(None)):
                raise BatchNotShareable(
                    f"{path} has a key of type {type(key).__name__} ({key!r:.80}): "
                    "only strings and numbers can be keys of a shared batch. Change it in your collate_fn."
                )
        return ["dict", keys], [(f"{path}[{k!r}]", node[k]) for k in keys]
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        fields = list(node._fields)
        return _class_head("named", node, fields), [(f"{path}.{f}", getattr(node, f)) for f in fields]
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = [f.name for f in dataclasses.fields(node)]
        return _class_head("data", node, fields), [(f"{path}.{f}", getattr(node, f)) for f in fields]
    if isinstance(node, (list, tuple)):
        head = "tuple" if isinstance(node, tuple) else "list"
        return [head], [(f"{path}[{i}]", child) for i, child in enumerate(node)]
    raise BatchNotShareable(
        f"{path} is a {type(node).__module__}.{type(node).__qualname__}, which cannot be shared between "
        "processes. A batch may hold tensors, numpy arrays, strings, bytes and numbers in dicts, lists, tuples, "
        "named tuples and dataclasses: convert it in your collate_fn."
    )


def _class_head(word: str, node: Any, fields: list[str]) -> list[Any]:
    return [word, type(node).__module__, type(node).__qualname__, fields]


def unflatten(spec: Spec, leaves: Iterator[Any]) -> Any:
    """Put a batch together again from its leaves, in the order that `flatten` gave them."""
    word = spec[0]
    if word in ("a", "v"):
        return next(leaves)
    if word == "vt":
        return tuple(next(leaves))
    if word == "list":
        return [unflatten(child, leaves) for child in spec[1:]]
    if word == "tuple":
        return tuple([unflatten(child, leaves) for child in spec[1:]])
    if word == "dict":
        return {key: unflatten(child, leaves) for key, child in zip(spec[1], spec[2:], strict=True)}
    return _build(spec, [unflatten(child, leaves) for child in spec[4:]])


def _build(spec: Spec, children: list[Any]) -> Any:
    cls = _resolve(spec[0], spec[1], spec[2], tuple(spec[3]))
    if spec[0] == "named":
        return cls._make(children)
    made = object.__new__(cls)  # not cls(...): fields may be init=False, and __post_init__ has run already
    for name, value in zip(spec[3], children, strict=True):
        object.__setattr__(made, name, value)
    return made


@lru_cache(maxsize=256)
def _resolve(word: str, module: str, qualname: str, fields: tuple[str, ...]) -> Any:
    """Find the class where this process has it loaded; else make one of the same name and fields.

    Nothing is imported: a name that arrives on a socket must not make this process run code.
    """
    found: Any = find_class(module, qualname)
    if word == "named":
        if found is not None and issubclass(found, tuple) and attribute_of(found, "_fields") == fields:
            return found
        return namedtuple(qualname.rsplit(".", 1)[-1], fields, rename=True)  # noqa: PYI024  # fields come at run time
    known = found is not None and attribute_of(found, "__dataclass_fields__") is not None
    if known and tuple(f.name for f in dataclasses.fields(found)) == fields:
        return found
    return dataclasses.make_dataclass(qualname.rsplit(".", 1)[-1], fields)


def checked_words(spec: Any, depth: int = 0) -> list[str]:
    """Return the words of a spec's leaves, in order, if it is a spec: one that came from another process.

    Args:
        spec: What came.
        depth: In how many containers it lies.

    Raises:
        ValueError: It is not a spec, or one with more than `MAX_DEPTH` containers in one another.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} containers in one another")
    if not isinstance(spec, list) or not spec or not isinstance(spec[0], str):
        raise ValueError(f"{spec!r:.80} is not part of a tree")
    word = spec[0]
    if word in ("a", "v", "vt"):
        return [word]
    if word not in ("list", "tuple", "dict", "named", "data"):
        raise ValueError(f"{word!r:.80} is not a kind of container")
    head = {"list": 1, "tuple": 1, "dict": 2}.get(word, 4)
    if head > 1:
        _check_head(spec, head)
    return [leaf for child in spec[head:] for leaf in checked_words(child, depth + 1)]


def _check_head(spec: list[Any], head: int) -> None:
    """Check the keys of a dict, or the class and the fields of a named tuple or a dataclass."""
    names = spec[head - 1] if len(spec) >= head else None
    if not isinstance(names, list) or len(names) != len(spec) - head:
        raise ValueError(f"{spec!r:.80} has not as many keys as children")
    if head == 2:
        if not all(isinstance(key, (str, int, float, type(None))) for key in names):
            raise ValueError(f"{names!r:.80} cannot be keys")
    else:
        where = spec[2].rsplit(".", 1)[-1] if isinstance(spec[1], str) and isinstance(spec[2], str) else ""
        if not all(isinstance(n, str) and _can_name(n) for n in (where, *names)):
            raise ValueError(f"{spec!r:.80} has no fields that a class can have")
    if len(set(names)) < len(names):
        raise ValueError(f"{names!r:.80} has a key twice")


def _can_name(word: str) -> bool:
    """Return whether a class or a field of a user's may be called so; none is called like `__class__`."""
    return word.isidentifier() and not iskeyword(word) and not (word[:2] == word[-2:] == "__")


def leaf_paths(spec: Spec, path: str = "batch") -> list[str]:
    """Return where each leaf stands in the tree, as the user would write it (`batch['image']`)."""
    word = spec[0]
    if word in ("a", "v", "vt"):
        return [path]
    if word in ("list", "tuple"):
        steps = [f"[{i}]" for i in range(len(spec) - 1)]
        children = spec[1:]
    elif word == "dict":
        steps = [f"[{key!r}]" for key in spec[1]]
        children = spec[2:]
    else:
        steps = [f".{field}" for field in spec[3]]
        children = spec[4:]
    return [p for step, child in zip(steps, children, strict=True) for p in leaf_paths(child, path + step)]
