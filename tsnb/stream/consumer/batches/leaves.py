"""Makes leaves of the bytes of a slot: views of them, with the type, shape and strides that the loader gave.

The counterpart of `stream.loader.leaves`. Numpy arrays are made read-only unless the consumer has copies of its own:
numpy then stops a write at its very line, where a tensor's would be noticed one batch later at best.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from tsnb.errors import RemoteProtocolError
from tsnb.stream.protocol import classes
from tsnb.stream.protocol.checks import TENSOR_DTYPES, attribute_of
from tsnb.stream.protocol.layout import ArrayLeaf

__all__ = ["array", "array_on", "arrays", "make", "torch_dtype"]


def array(leaf: ArrayLeaf, over: Any) -> Any:
    """Return a leaf's tensor or numpy array over a slot's memory, which it keeps alive.

    Raises:
        ValueError, TypeError, RuntimeError: It reaches past that memory.
    """
    if leaf.kind == "tensor":
        return _tensor(leaf, over)
    dtype = numpy_dtype(leaf.dtype)
    if not math.prod(leaf.shape):
        return np.empty(leaf.shape, dtype)
    made: np.ndarray[Any, Any] = np.ndarray(leaf.shape, dtype, over, leaf.offset, leaf.strides)
    return made[()].copy() if leaf.kind == "scalar" else made


def arrays(leaves: Iterable[ArrayLeaf], over: Any) -> list[Any]:
    """Return all leaves, as `array` does.

    By way of numpy where it has the dtype: that takes a third of the time of `torch.frombuffer`, in one step of
    compiled code for each. The array keeps the memory, and the tensor the array.

    Raises:
        ValueError, TypeError, RuntimeError: One reaches past the memory.
    """
    made = []
    for leaf in leaves:
        kind, name, shape, offset, strides = leaf
        dtype = twin_of(name) if kind == "tensor" and strides is None and 0 not in shape else None
        if dtype is None:
            made.append(array(leaf, over))
        else:
            made.append(torch.from_numpy(np.ndarray(shape, dtype, over, offset)))
    return made


def _tensor(leaf: ArrayLeaf, over: Any) -> torch.Tensor:
    dtype, count = torch_dtype(leaf.dtype), math.prod(leaf.shape)
    if leaf.strides is None:
        if not count:
            return torch.empty(leaf.shape, dtype=dtype)
        return torch.frombuffer(over, dtype=dtype, count=count, offset=leaf.offset).view(leaf.shape)
    if not count:
        return torch.empty_strided(leaf.shape, leaf.strides, dtype=dtype)
    low, high = leaf.extent
    flat = torch.frombuffer(over, dtype=dtype, count=(high - low) // dtype.itemsize, offset=low)
    return flat.as_strided(leaf.shape, leaf.strides)


def array_on(leaf: ArrayLeaf, over: Any, there: torch.Tensor) -> Any:
    """Return a tensor of the same bytes on a device; what numpy is to have stays on the CPU.

    Args:
        leaf: Which.
        over: The slot's memory.
        there: The slot's bytes on the device, uint8.
    """
    if leaf.kind != "tensor" or not math.prod(leaf.shape):
        made = array(leaf, over)
        return made.to(there.device) if leaf.kind == "tensor" else made
    low, high = leaf.extent
    flat = there[low:high].view(torch_dtype(leaf.dtype))
    return flat.view(leaf.shape) if leaf.strides is None else flat.as_strided(leaf.shape, leaf.strides)


@lru_cache(maxsize=64)
def torch_dtype(name: str) -> torch.dtype:
    """Return the dtype of that name.

    Raises:
        RemoteProtocolError: No tensor of ours has it, or this torch does not.
    """
    dtype = getattr(torch, name, None) if name in TENSOR_DTYPES else None
    if not isinstance(dtype, torch.dtype):
        raise RemoteProtocolError(
            f"a tensor of dtype {name!r:.80}, which torch {torch.__version__} of this process does not have"
        )
    return dtype


@lru_cache(maxsize=64)
def twin_of(name: str) -> np.dtype[Any] | None:
    """Return numpy's dtype of the same elements as torch's of that name; None where it has none, or torch none of it.

    Raises:
        RemoteProtocolError: As `torch_dtype`.
    """
    dtype = torch_dtype(name)
    try:
        twin = torch.empty(0, dtype=dtype).numpy().dtype
        return twin if torch.from_numpy(np.empty(0, twin)).dtype == dtype else None
    except TypeError:
        return None


@lru_cache(maxsize=256)
def numpy_dtype(word: str) -> np.dtype[Any]:
    """Return the dtype that `stream.loader.leaves.dtype_word` spelled so; its size was checked when the layout came.

    Raises:
        ValueError, TypeError: The dtype does not exist.
    """
    if word[:1] != "{":
        return np.dtype(word)
    form = json.loads(word)
    dtype: Any = np.lib.format.descr_to_dtype(_tuples(form["fields"]))
    if form["aligned"]:
        fields: Any = dtype.fields
        parts = {
            "formats": [fields[n][0] for n in dtype.names],
            "offsets": [fields[n][1] for n in dtype.names],
        }
        kind: Any = np.dtype
        dtype = kind({"names": list(dtype.names), **parts, "itemsize": dtype.itemsize}, align=True)
    return np.dtype((np.record, dtype)) if form["record"] else dtype


def _tuples(fields: Any) -> Any:
    """Return a description as numpy wants it: JSON has no tuples."""
    if not isinstance(fields, list):
        return fields
    return [
        (n if isinstance(n, str) else tuple(n), _tuples(of), *(tuple(s) for s in shape))
        for n, of, *shape in fields
    ]


def make(recipe: str, form: list[Any], names: list[str], children: list[Any]) -> Any:
    """Make what `stream.loader.leaves.classify` took apart.

    Args:
        recipe: `masked`, or what is inside the object of the class that `form` names: `tensor`, `array` or `tuple`.
        form: What else it needs.
        names: Its attributes.
        children: What it is made of, and the attributes' values after that.

    Raises:
        MissingClass: This process has no class of that name.
        ValueError, TypeError: It cannot be made of these.
    """
    if recipe == "masked":
        return _masked(form, *children)
    if recipe not in _RECIPES:
        raise ValueError(f"a recipe {recipe!r:.80}")
    module, qualname, *rest = form
    made = _RECIPES[recipe](classes.named(str(module), str(qualname)), children[0])
    vars(made).update(zip(names, children[1:], strict=True)) if names else None
    if rest and rest[0]:
        made.requires_grad_()
    return made


def _masked(form: list[Any], inner: Any, mask: Any = np.ma.nomask) -> Any:
    text, hard = form
    if not isinstance(inner, np.ndarray):
        raise TypeError("a mask over what is not an array")
    fill = None if text is None else np.frombuffer(base64.b64decode(text, validate=True), inner.dtype)[0]
    return np.ma.MaskedArray(inner, mask=mask, fill_value=fill, hard_mask=bool(hard), copy=False)


def _from_tensor(cls: Any, inner: Any) -> Any:
    name = "__torch_dispatch__"
    own_data = issubclass(cls, torch.Tensor) and attribute_of(cls, name) is attribute_of(torch.Tensor, name)
    if not own_data or not isinstance(inner, torch.Tensor):
        raise TypeError(f"a {cls.__qualname__} made of a tensor")
    return inner if cls is torch.Tensor else inner.as_subclass(cls)


def _from_array(cls: Any, inner: Any) -> Any:
    if not issubclass(cls, np.ndarray) or not isinstance(inner, np.ndarray):
        raise TypeError(f"a {cls.__qualname__} made of an array")
    return inner.view(cls)


def _from_tuple(cls: Any, inner: Any) -> Any:
    if not issubclass(cls, tuple) or not (cls is torch.Size or hasattr(cls, "n_sequence_fields")):
        raise TypeError(f"a {cls.__qualname__} made of a tuple")
    return cls(inner)


_RECIPES = {"tensor": _from_tensor, "array": _from_array, "tuple": _from_tuple}
