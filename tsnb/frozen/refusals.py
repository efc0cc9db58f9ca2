"""What is not frozen: modules in training mode, weights that want gradients or change, results that differ.

A function's networks are those that it reaches: what it is bound to, closes over, takes by `functools.partial`, or
names among its globals.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from tsnb.draws import another_seed
from tsnb.stream.loader.leaves import classify
from tsnb.stream.protocol.tree import flatten

__all__ = ["networks_of", "require_frozen", "require_same", "weights_of", "why_gradients"]

_DROPOUT: tuple[type[nn.Module], ...] = (nn.modules.dropout._DropoutNd, nn.RReLU)
_NORM = nn.modules.batchnorm._NormBase
_SEEDS = 0x5EED


def networks_of(then: Any) -> list[nn.Module]:
    """Return the networks that a frozen part computes with, as far as they can be seen."""
    found: dict[int, nn.Module] = {}
    for value in _reached(then):
        if isinstance(value, nn.Module):
            found.setdefault(id(value), value)
    return list(found.values())


def _reached(then: Any) -> Iterator[Any]:
    yield then
    if isinstance(then, nn.Module):
        return
    if isinstance(then, functools.partial):
        yield from (then.func, *then.args, *then.keywords.values())
        yield from _reached(then.func)
        return
    if inspect.ismethod(then):
        yield then.__self__
        then = then.__func__
    if not inspect.isfunction(then):
        yield from vars(then).values() if hasattr(then, "__dict__") else ()
        return
    for cell in then.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            continue
    yield from (then.__globals__[name] for name in then.__code__.co_names if name in then.__globals__)


def require_frozen(then: Any) -> None:
    """Refuse what cannot be called, and networks whose results depend on the mode that they are in.

    Raises:
        TypeError: It cannot be called.
        ValueError: A dropout or a batch norm is in training mode; names it.
    """
    if not callable(then):
        raise TypeError(
            f"then= must be a function or a torch.nn.Module, got {type(then).__name__}. Pass a function from batch to "
            "batch."
        )
    for network in networks_of(then):
        for name, part in network.named_modules():
            why = _why_random(part)
            if why:
                raise ValueError(
                    f"then= is in training mode, in which its {type(part).__name__} ({name or 'the network itself'}) "
                    f"{why}, so its results are not those of a frozen network. Call .eval() on the network first."
                )


def _why_random(part: nn.Module) -> str:
    if not part.training:
        return ""
    if isinstance(part, _DROPOUT) and getattr(part, "p", True):
        return "draws random numbers"
    if isinstance(part, _NORM) and (part.track_running_stats or "Batch" in type(part).__name__):
        return "uses and changes the statistics of each batch"
    return ""


def why_gradients(then: Any) -> str:
    """Return a note on weights that want gradients, which a stream never computes; "" where none does."""
    if not any(weight.requires_grad for network in networks_of(then) for weight in network.parameters()):
        return ""
    return (
        "The parameters of then= have requires_grad=True, but the stream computes them without gradients and no trial "
        "can train them. Call .requires_grad_(False) on the network if that is what you want. For trials that train "
        "it themselves, serve with inputs=True and attach with inputs=True."
    )


def weights_of(networks: list[nn.Module]) -> list[tuple[str, int]]:
    """Return a sum over each parameter and buffer of some networks; a change of numbers changes its sum.

    Tensors count their versions, but a change through `.data` or through numpy counts none, and momentum encoders use
    `.data`. A sum reads all numbers. It takes a thirtieth of a hash's time.
    """
    return [
        (f"{name} {tuple(value.shape)}", _sum(value))
        for network in networks
        for name, value in network.state_dict().items()
        if isinstance(value, torch.Tensor)
    ]


def _sum(value: torch.Tensor) -> int:
    """Return the sum of a tensor's bytes, read as whole numbers of eight bytes each."""
    value = value.dequantize() if value.is_quantized else value.to_dense()
    plain = _bits(value)
    whole = len(plain) // 8 * 8
    if plain.is_cpu:  # by numpy, which has no threads: torch's own would not outlive the fork of workers
        numbers = plain.numpy()
        return int(numbers[:whole].view(np.uint64).sum()) + int(numbers[whole:].sum())
    aligned = plain[:whole].clone().view(torch.int64)  # where it lies: its own device is faster than a copy
    return int(aligned.sum()) + int(plain[whole:].sum())


def require_same(apply: Callable[[Any], Any], batch: Any, first: Any) -> None:
    """Compute a batch a second time, from other random numbers, and refuse what differs.

    Args:
        apply: What computes it.
        batch: A copy of what it was computed of.
        first: What it gave the first time.

    Raises:
        ValueError: The results differ.
    """
    with another_seed(_SEEDS):
        second = apply(batch)
    if not alike(first, second):
        raise ValueError(
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
        return bool(one.shape == other.shape) and torch.equal(_bits(one), _bits(other))
    if isinstance(one, np.ndarray):
        return bool(one.shape == other.shape and one.tobytes() == other.tobytes())
    return bool(one == other)


def _bits(value: torch.Tensor) -> torch.Tensor:
    plain = value.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8) if plain.numel() else plain


def copied(batch: Any) -> Any:
    """Return a copy of a batch: a function may change what it gets."""
    return copy.deepcopy(batch)
