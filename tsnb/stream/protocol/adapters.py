"""Batches of other packages' classes: what stands for an object on its way, and how it is made again.

| class | stands for it |
|---|---|
| Hugging Face's `BatchEncoding` of a fast tokenizer, `tokenizers.Encoding` | its tensors, and each encoding's bytes |
| PyG's `Data`, and `Batch` of them | its tensors, the places of its graphs |
| what `tsnb.data.register` was told | what its user's function gives |

The packages are known by name: nothing of them is imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tsnb.errors import BatchNotShareable
from tsnb.stream.protocol import classes

__all__ = [
    "Adapter",
    "AnotherClass",
    "adapter_of",
    "made_again",
    "register",
    "registered",
    "take_apart",
    "take_on",
]


class Adapter(NamedTuple):
    """How objects of a class travel."""

    to: Callable[[Any], Any]
    """Gives what stands for one."""
    make: Callable[[Any], Any]
    """Makes one of that again."""


class AnotherClass(Exception):
    """Of what stands for an object, one of this other class would be made."""


_registered: dict[type, Adapter] = {}
_found: dict[type, tuple[type, Adapter] | None] = {}
"""What was looked up: a batch has the same few classes as the one before."""
_proven: set[type] = set()


def register(cls: type, to: Callable[[Any], Any], make: Callable[[Any], Any], /) -> None:
    """Let batches hold objects of one of your classes.

    Call it in a module that the loader and the trials import, or in the notebook before the stream and its trials
    start. Background kernels take it along.

    Example:
        >>> from decimal import Context
        >>> tsnb.data.register(Context, lambda one: {"prec": one.prec}, lambda parts: Context(**parts))

    Args:
        cls: Class of the objects. Subclasses need their own call unless `make` returns their class.
        to: Function that takes an object and returns what a batch may hold: tensors, arrays, strings and
            numbers in dicts, lists and tuples.
        make: Function that takes what `to` returned and returns the object.

    Raises:
        TypeError: If `cls` is not a class, or `to` or `make` cannot be called.
    """
    if not isinstance(cls, type) or not callable(to) or not callable(make):
        raise TypeError(
            f"tsnb.data.register({cls!r:.60}, ...) is invalid. Pass a class, a function that takes an "
            "object of it apart, and a function that rebuilds the object."
        )
    _registered[cls] = Adapter(to, make)
    _found.clear()
    _proven.clear()


def registered() -> list[tuple[type, Adapter]]:
    """Return what was registered in this process, for others to `take_on`."""
    return list(_registered.items())


def take_on(others: list[tuple[type, Adapter]]) -> None:
    """Register what was registered in another process, and not here."""
    for cls, adapter in others:
        if cls not in _registered:
            register(cls, *adapter)


def adapter_of(cls: type) -> tuple[type, Adapter] | None:
    """Return the class by which objects of a class travel, itself or one above it, and how; None: in no special way."""
    if cls not in _found:
        _found[cls] = next(((k, a) for k in cls.__mro__ if (a := _adapter(k)) is not None), None)
    return _found[cls]


def _adapter(cls: type) -> Adapter | None:
    return _registered.get(cls) or _KNOWN.get((cls.__module__, cls.__qualname__))


def take_apart(node: Any, adapter: Adapter) -> Any:
    """Return what stands for an object.

    Raises:
        AnotherClass: One would be made of it.
    """
    parts = adapter.to(node)
    cls = type(node)
    if cls not in _proven:
        again = type(adapter.make(parts))
        if again is not cls:
            raise AnotherClass(f"{again.__module__}.{again.__qualname__}")
        _proven.add(cls)
    return parts


def made_again(module: str, qualname: str, parts: Any) -> Any:
    """Return an object of what stands for it.

    Raises:
        MissingClass: This process has no class of that name.
        BatchNotShareable: It was not told how to make one, or could not.
    """
    cls = classes.named(module, qualname)
    adapter = _adapter(cls)
    if adapter is None:
        raise BatchNotShareable(
            f"A batch holds a {module}.{qualname}, for which tsnb.data.register was called in the "
            "loader's process but not in this one. Call it here as well, for example in a module that "
            "both import."
        )
    try:
        return adapter.make(parts)
    except Exception as error:
        raise BatchNotShareable(
            (
                f"A {module}.{qualname} could not be rebuilt: the function passed to tsnb.data.register "
                f"raised {type(error).__name__}: {error}"
            )[:500]
        ) from error


# -- known ones ------------------------------------------------------------------------------------------------


def _encoding_parts(encoding: Any) -> bytes:
    return bytes(encoding.__getstate__())


def _encoding(state: bytes) -> Any:
    made: Any = classes.named(*_ENCODING)()
    made.__setstate__(state)
    return made


def _tokens_parts(batch: Any) -> dict[str, Any]:
    """Take a BatchEncoding apart; its encodings are one list of bytes, which is cut with its rows."""
    state = dict(vars(batch))
    encodings = state.get("_encodings")
    if encodings is not None:
        state["_encodings"] = [_encoding_parts(one) for one in encodings]
    return state


def _tokens(parts: dict[str, Any]) -> Any:
    batch: Any = object.__new__(classes.named(*_TOKENS))
    state = dict(parts)
    if state.get("_encodings") is not None:
        state["_encodings"] = [_encoding(one) for one in state["_encodings"]]
    vars(batch).update(state)
    return batch


def _graph_parts(graph: Any) -> dict[str, Any]:
    return {"items": dict(graph._store.items()), "state": _state_of(graph)}


def _state_of(graph: Any) -> dict[str, Any]:
    """Return what the graph's store knows beside its items: of a batch, where each graph lies."""
    return {name: x for name, x in vars(graph._store).items() if name not in ("_mapping", "_parent")}


def _graph(parts: dict[str, Any]) -> Any:
    return _filled(classes.named(*_GRAPH)(), parts)


def _filled(graph: Any, parts: dict[str, Any]) -> Any:
    for name, value in parts["items"].items():
        graph._store[name] = value
    for name, value in parts["state"].items():
        setattr(graph._store, name, value)
    return graph


def _graphs_parts(batch: Any) -> dict[str, Any]:
    """Take a batch of graphs apart: its class is made of Batch and of the graphs' own."""
    of = next(k for k in type(batch).__mro__[1:] if (k.__module__, k.__qualname__) != _GRAPHS)
    return {"module": of.__module__, "class": of.__qualname__, **_graph_parts(batch)}


def _graphs(parts: dict[str, Any]) -> Any:
    made: Any = classes.named(*_GRAPHS)
    return _filled(made(_base_cls=classes.named(parts["module"], parts["class"])), parts)


_ENCODING = ("tokenizers", "Encoding")
_TOKENS = ("transformers.tokenization_utils_base", "BatchEncoding")
_GRAPH = ("torch_geometric.data.data", "Data")
_GRAPHS = ("torch_geometric.data.batch", "Batch")
_KNOWN = {
    _ENCODING: Adapter(_encoding_parts, _encoding),
    _TOKENS: Adapter(_tokens_parts, _tokens),
    _GRAPH: Adapter(_graph_parts, _graph),
    _GRAPHS: Adapter(_graphs_parts, _graphs),
}
