"""What is refused as not frozen: modules in training mode, weights that want gradients, results that differ."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tsnb.draws import another_seed
from tsnb.frozen.changes import bits, why_training
from tsnb.frozen.reaching import reached
from tsnb.stream.loader.leaves import classify
from tsnb.stream.loader.seams import StepFailed
from tsnb.stream.protocol.tree import flatten

__all__ = ["require_frozen", "require_same", "why_gradients"]

_SEEDS = 0x5EED


def require_frozen(then: Any) -> None:
    """Refuse what cannot be called with a batch, and networks whose results depend on the mode that they are in.

    Raises:
        TypeError: It cannot be called, or is a class.
        ValueError: A dropout or a batch norm is in training mode; names it.
    """
    if not callable(then):
        raise TypeError(
            f"then= must be a function or a torch.nn.Module, got {type(then).__name__}. Pass a function from batch to "
            "batch."
        )
    if isinstance(then, type):
        name = then.__name__
        raise TypeError(
            f"then= must be a function or a torch.nn.Module, got the class {name}. Pass an instance of it, for example "
            f"then={name}(...)."
        )
    if why := why_training(reached(then)):
        raise ValueError(why)


def why_gradients(then: Any) -> str:
    """Return a note on weights that want gradients, which a stream never computes; "" where none does."""
    if not any(each.requires_grad for each in reached(then).tensors()):
        return ""
    return (
        "The parameters of then= have requires_grad=True, but the stream computes them without gradients and no trial "
        "can train them. Call .requires_grad_(False) on the network if that is what you want. For trials that train "
        "it themselves, serve with inputs=True and attach with inputs=True."
    )


def require_same(apply: Callable[[Any], Any], batch: Any, first: Any) -> None:
    """Compute a batch a second time, from other random numbers, and refuse what differs.

    Args:
        apply: What computes it.
        batch: A copy of what it was computed of.
        first: What it gave the first time.

    Raises:
        StepFailed: The results differ.
    """
    with another_seed(_SEEDS):
        second = apply(batch)
    if not alike(first, second):
        raise StepFailed(
            "then= gives another result when it computes the same batch a second time, so it is not frozen. It may "
            "draw random numbers (augmentation, dropout), or change with each batch (a momentum encoder). Move random "
            "steps into the trials with attach(transform=...), and call .eval() on networks."
        )


def alike(first: Any, second: Any) -> bool:
    """Return whether two batches are the same, bit for bit."""
    ones, form = flatten(first, classify)
    others, other_form = flatten(second, classify)
    return form == other_form and all(_same(one, other) for one, other in zip(ones, others, strict=True))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(one.shape == other.shape) and torch.equal(bits(one), bits(other))
    if isinstance(one, np.ndarray):
        return bool(one.shape == other.shape and one.tobytes() == other.tobytes())
    return bool(one == other)


def copied(batch: Any) -> Any:
    """Return a copy of a batch: a function may change what it gets."""
    return copy.deepcopy(batch)
