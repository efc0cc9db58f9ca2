"""The leaves of a batch, and how their bytes go into a slot: tensors and numpy arrays of every kind.

A leaf is kept whole, with its type, dtype, shape and strides, or refused with what to do. A plain tensor or array is a
leaf; one with more to it (a subclass, a mask, `requires_grad`) is a plain one inside `protocol.tree.Parts`.

Strides stay as they are while the elements lie together: channels_last, transposed, Fortran order, reversed, expanded,
overlapping. A view with gaps (`x[:, ::2]`) is closed up, in the order that torch's `clone()` and numpy's
`copy(order="K")` give it: the bytes in the gaps are not part of the batch, and may be the whole data set.

The counterpart of `consumer.batches.leaves`.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from tsnb.errors import RemoteProtocolError
from tsnb.stream.protocol import classes
from tsnb.stream.protocol.checks import TENSOR_DTYPES, item_bytes
from tsnb.stream.protocol.tree import Parts, Refusal

__all__ = ["DTYPE_WORDS", "Placing", "array_placing", "classify", "dtype_word", "tensor_placing"]

DTYPE_WORDS: dict[torch.dtype, str] = {
    getattr(torch, word): word for word in TENSOR_DTYPES if hasattr(torch, word)
}
"""Of the dtypes that can be shared, how a layout spells them."""
_MEMMAP = ("_mmap", "filename", "offset", "mode")
"""What a memmap knows of its file; a pickled one leaves it behind too."""


class Placing(NamedTuple):
    """How a leaf lies in memory."""

    size: int
    """Bytes, from its lowest element's first to its highest one's last."""
    first: int
    """Bytes from there to its first element: an array that runs backwards begins at its end."""
    strides: tuple[int, ...] | None
    """As `protocol.layout.ArrayLeaf` has them."""
    as_it_is: bool
    """Whether these are the leaf's own, so that its bytes can be taken as they lie."""


# -- what a leaf is --------------------------------------------------------------------------------------------


def classify(node: Any) -> str | Parts | None:
    """Return `tensor`, `numpy` or `scalar`, or the parts of a leaf with more to it; None if it is not an array.

    Raises:
        Refusal: It cannot be shared as it is; says what to do.
    """
    kind = type(node)
    if kind is torch.Tensor:
        _require_dense(node)
        return _tensor_parts(node) if node.requires_grad or node.__dict__ else "tensor"
    if kind is np.ndarray:
        dtype_word(node.dtype)
        return "numpy"
    if isinstance(node, torch.Tensor):
        _require_dense(node)
        return _tensor_parts(node)
    if isinstance(node, np.generic):
        dtype_word(node.dtype)
        return "scalar"
    if isinstance(node, np.ma.MaskedArray):
        return _masked_parts(node)
    if isinstance(node, np.ndarray):
        return _array_parts(node)
    if isinstance(node, tuple) and kind is not tuple and _made_of_a_tuple(kind):
        return Parts("tuple", list(classes.name_of(kind)), [], [tuple(node)])
    return None


def _require_dense(leaf: torch.Tensor) -> None:
    """Refuse a tensor that is not elements at strides.

    Raises:
        Refusal: With what torch really can do about it.
    """
    if leaf.dtype in DTYPE_WORDS and leaf.is_cpu and leaf.layout is torch.strided and not leaf.is_nested:
        return  # as nearly always
    if leaf.is_nested:
        raise Refusal(
            "is a nested tensor. In your collate_fn, return its parts as list(x.unbind()), or padded "
            "with torch.nested.to_padded_tensor(x, 0.0)."
        )
    if leaf.is_quantized:
        raise Refusal(
            "is a quantized tensor. In your collate_fn, return x.dequantize(), or return x.int_repr() "
            "and rebuild the tensor in the trial."
        )
    if leaf.layout is not torch.strided:
        raise Refusal(
            f"is a sparse tensor ({leaf.layout}). In your collate_fn, return x.to_dense(), or return "
            "its indices and values and rebuild the tensor in the trial."
        )
    if leaf.device.type == "meta":
        raise Refusal("is on the device meta, so it has no data. Return a tensor on the CPU.")
    if leaf.device.type != "cpu":
        raise Refusal(
            f"is on {leaf.device}. Let the loader return CPU tensors, and choose the device in each "
            f'trial with tsnb.attach(..., device="{leaf.device}").'
        )
    raise Refusal(
        f"has dtype {str(leaf.dtype).removeprefix('torch.')}, which cannot be shared. In your "
        "collate_fn, return its bytes with x.view(torch.uint8), or use another dtype."
    )


def _tensor_parts(leaf: torch.Tensor) -> Parts:
    """Return the plain tensor in one that has gradients, attributes or a class of its own."""
    cls = type(leaf)
    if leaf.requires_grad and not leaf.is_leaf:
        raise Refusal("has a gradient history (grad_fn). Call .detach() on it in your collate_fn.")
    if leaf.is_leaf and leaf.grad is not None:
        raise Refusal(
            "has a gradient in .grad. Call .detach() on it in your collate_fn, and share .grad as a "
            "separate tensor."
        )
    if cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise Refusal(
            f"is a {cls.__module__}.{cls.__qualname__}, which does not store its data like a plain "
            "torch tensor. In your collate_fn, return the tensors it is made of."
        )
    with torch._C.DisableTorchFunctionSubclass():  # its own ways to compute are not asked
        plain = leaf.detach()
        plain = plain if type(plain) is torch.Tensor else plain.as_subclass(torch.Tensor)
    state = dict(leaf.__dict__)
    return Parts("tensor", [*classes.name_of(cls), leaf.requires_grad], list(state), [plain, *state.values()])


def _masked_parts(leaf: Any) -> Parts:
    plain = type(leaf) is np.ma.MaskedArray and not vars(leaf)["_optinfo"] and type(leaf.data) is np.ndarray
    if not plain:
        kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
        raise Refusal(
            f"is a {kind}, which is more than a masked array. In your collate_fn, return x.data and x.mask."
        )
    dtype_word(leaf.dtype)
    fill = vars(leaf)["_fill_value"]
    text = None if fill is None else base64.b64encode(np.asarray(fill, leaf.dtype).tobytes()).decode()
    form = [text, bool(leaf.hardmask)]
    return Parts("masked", form, [], [leaf.data, *([] if leaf.mask is np.ma.nomask else [leaf.mask])])


def _array_parts(leaf: np.ndarray[Any, Any]) -> Parts:
    """Return the plain array in one of a class of its own."""
    dtype_word(leaf.dtype)
    state = dict(getattr(leaf, "__dict__", ()))
    if isinstance(leaf, np.memmap):
        state = {name: x for name, x in state.items() if name not in _MEMMAP}
    return Parts(
        "array", list(classes.name_of(type(leaf))), list(state), [leaf.view(np.ndarray), *state.values()]
    )


def _made_of_a_tuple(cls: type) -> bool:
    """Whether it is torch.Size, or one of the C structures that are called with a tuple (torch.return_types)."""
    whole = getattr(cls, "n_fields", None) == getattr(cls, "n_sequence_fields", None)
    return cls is torch.Size or (hasattr(cls, "n_sequence_fields") and whole)


# -- how it lies in memory -------------------------------------------------------------------------------------


def tensor_placing(leaf: torch.Tensor) -> Placing:
    """Return how a dense tensor is to lie."""
    shape, strides, count = tuple(leaf.shape), leaf.stride(), leaf.numel()
    if strides == _in_c_order(shape):
        return Placing(count * leaf.itemsize, 0, None, as_it_is=True)
    if not count:
        return Placing(0, 0, strides, as_it_is=True)
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if span <= count:
        return Placing(span * leaf.itemsize, 0, strides, as_it_is=True)
    closed = _closed(shape, strides)
    return Placing(count * leaf.itemsize, 0, None if closed == _in_c_order(shape) else closed, as_it_is=False)


@lru_cache(maxsize=1024)
def _in_c_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * max(1, n))
    return tuple(reversed(strides)) if shape else ()


@lru_cache(maxsize=1024)
def _bytes_in_c_order(shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    return tuple(step * width for step in _in_c_order(shape))


@lru_cache(maxsize=1024)
def _closed(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides that a view with gaps has once they are closed."""
    view = torch.empty_strided(shape, strides, device="meta")
    return torch.empty_like(view, memory_format=torch.preserve_format).stride()


def array_placing(array: np.ndarray[Any, Any]) -> Placing:
    """Return how a numpy array is to lie."""
    if array.strides == _bytes_in_c_order(array.shape, array.itemsize) or not array.nbytes:
        return Placing(array.nbytes, 0, None, as_it_is=True)
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    size = array.itemsize + sum(map(abs, steps))
    if size <= array.nbytes:
        return Placing(size, -sum(s for s in steps if s < 0), array.strides, as_it_is=True)
    closed = np.empty_like(array, subok=False)
    return Placing(array.nbytes, 0, None if closed.flags.c_contiguous else closed.strides, as_it_is=False)


@lru_cache(maxsize=256)
def dtype_word(dtype: np.dtype[Any]) -> str:
    """Return a numpy dtype as a layout spells it.

    Raises:
        Refusal: Another process could not make the same one of it.
    """
    if dtype.hasobject or dtype.kind == "T":
        raise Refusal(
            f"is a NumPy array of dtype {dtype}, whose elements are objects. Convert it to numbers, or "
            "to a list of strings, in your collate_fn."
        )
    word = dtype.str
    same = dtype.metadata is None and dtype.itemsize > 0
    if dtype.names is not None or dtype.subdtype is not None:
        try:
            form: Any = {"fields": np.lib.format.dtype_to_descr(dtype), "aligned": dtype.isalignedstruct}
            word = json.dumps({**form, "record": dtype.type is np.record}, separators=(",", ":"))
            item_bytes("numpy", word)
            again = np.lib.format.descr_to_dtype(form["fields"])
            same = same and again == dtype
        except (ValueError, TypeError, RemoteProtocolError):
            same = False
    else:
        try:
            same = same and item_bytes("numpy", word) == dtype.itemsize and np.dtype(word) == dtype
        except RemoteProtocolError:
            same = False
    if not same:
        raise Refusal(
            f"is a NumPy array of dtype {dtype!r:.200}, which another process cannot rebuild. In your "
            "collate_fn, return its bytes with x.view(numpy.uint8), or use another dtype."
        )
    return word
