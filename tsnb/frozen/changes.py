"""What a frozen part computed with at its start, and whether it still does: its numbers, and the mode of its networks.

All numbers are read before each epoch. Before each batch only what is quick is looked at: a network that the serving
process computes may change in the middle of an epoch, and its epochs begin ahead of the trials.
"""

from __future__ import annotations

import functools
import hashlib
import types
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tsnb.frozen.reaching import Reached, reached
from tsnb.stream.loader.identity import names_in

__all__ = ["AtStart", "array_sum", "bits", "changed", "in_training", "sums_of", "why_random", "why_training"]

PART_BYTES, PARTS = 1 << 16, 256
WHOLE_BYTES = 1 << 28
"""A tensor of no network that is larger, a table of samples, say, goes by parts of it."""
_DROPOUT: tuple[type[nn.Module], ...] = (nn.modules.dropout._DropoutNd, nn.RReLU)
_UNMADE = (nn.UninitializedParameter, nn.UninitializedBuffer)
_NORM = nn.modules.batchnorm._NormBase
_INNER_DROPOUT = (nn.RNNBase, nn.MultiheadAttention)
"""Draw by themselves where their attribute `dropout` is not 0."""


class _Mode(NamedTuple):
    """A module whose results depend on its mode."""

    where: str
    part: nn.Module
    training: bool
    """Whether it was in training mode at the start."""


class AtStart:
    """What a frozen part computed with at its start.

    Args:
        then: The frozen part.

    Attributes:
        digest: Stands for all its numbers.
    """

    def __init__(self, then: Any) -> None:
        self._then = then
        self._arrived = False
        self._networks: dict[str, tuple[nn.Module | None, dict[str, Any]]] = {}
        self._arrays: dict[str, Any] = {}
        self._modes: dict[int, _Mode] = {}
        found = reached(then)
        self._take(found)
        numbers = [
            *self._arrays.values(),
            *(sums for _, of in self._networks.values() for sums in of.values()),
        ]
        self.digest = hashlib.blake2b(
            "".join(sorted(map(repr, numbers))).encode(), digest_size=12
        ).hexdigest()

    def _take(self, found: Reached) -> None:
        """Note what was found and is new, with what it is now."""
        read: dict[Any, Any] = {}
        for path, network in found.networks.items():
            if path not in self._networks:
                self._networks[path] = network, _network_sums(network, read)
            for name, part in network.named_modules():
                if id(part) not in self._modes and _minds_its_mode(type(part)):  # type: ignore[arg-type]
                    where = ".".join(filter(None, (path, name)))
                    self._modes[id(part)] = _Mode(where, part, part.training)
        for path, array in found.arrays.items():
            if path not in self._arrays:
                self._arrays[path] = array_sum(array, read)
        self._tensors = [each for each in found.tensors() if not each.is_inference()]
        self._versions = self._versions_now()

    def __getstate__(self) -> Any:  # for a process that is not forked, and so may have made its networks anew
        return (
            self._then,
            {path: sums for path, (_, sums) in self._networks.items()},
            self._arrays,
            self.digest,
        )

    def __setstate__(self, state: Any) -> None:
        self._then, sums, self._arrays, self.digest = state
        self._networks = {path: (None, each) for path, each in sums.items()}
        self._modes, self._tensors, self._versions, self._arrived = (
            {},
            [],
            [-1],
            True,
        )  # compared at the first batch

    def _versions_now(self) -> list[int]:
        return [each._version for each in self._tensors]

    def why_changed_since_batch(self) -> str:
        """Return what has changed, as far as can be told at once; "": nothing. Called before each batch."""
        why = self._why_other_mode()
        return why if why or self._versions_now() == self._versions else self.why_changed()

    def why_changed(self) -> str:
        """Return what has changed, as a message; "": nothing has. Called before each epoch."""
        found = reached(self._then)
        if why := self._why_other_mode() or why_training(found) or self._why_other_numbers(found):
            return why
        self._take(found)
        return ""

    def _why_other_mode(self) -> str:
        for where, part, training in self._modes.values():
            if part.training == training or (
                type(part).__module__.startswith("torch.nn.") and _same_in_both(part)
            ):
                continue
            called = f"its {type(part).__name__} ({where or 'the network itself'})"
            if training:
                return (
                    f"then= is in evaluation mode now, because .eval() was called on {called} after tsnb.serve. Trials "
                    "would get other features than before. Serve the loader again."
                )
            why = why_random(part, training=True) or "computes something else in that mode"
            return (
                f"then= is in training mode now, because .train() was called on it after tsnb.serve: {called} {why}. "
                "Call .eval() on the network before the next epoch. To train the network too, let the trial train a "
                "copy of it."
            )
        return ""

    def _why_other_numbers(self, found: Reached) -> str:
        where = self._other_numbers(found)
        if where is None:
            return ""
        if self._arrived:
            return (
                f"A worker process computes then= with other parameters than the serving process ({where}), because it "
                "imports the module again. Pass the network itself, or functools.partial(function, network)."
            )
        return changed(where)

    def _other_numbers(self, found: Reached) -> str | None:
        """Return the path of the first numbers that have changed; None: all are the same."""
        read: dict[Any, Any] = {}
        there = {id(network) for network in found.networks.values()}
        for path, (network, sums) in self._networks.items():
            if path not in found.networks and id(network) not in there:
                return path
            there_now = found.networks.get(path, network)
            assert there_now is not None  # else it is not among those that are there
            now = _network_sums(there_now, read)
            for name, numbers in sums.items():
                if now.get(name) != numbers:
                    return ".".join(filter(None, (path, name)))
        for path, numbers in self._arrays.items():
            if path in found.arrays and array_sum(found.arrays[path], read) != numbers:
                return path
        return None


def why_training(found: Reached) -> str:
    """Return which module's results are not those of a frozen network, as a message; "" where all are."""
    for path, network in found.networks.items():
        for name, part in network.named_modules():
            if why := why_random(part):
                where = ".".join(filter(None, (path, name))) or "the network itself"
                return in_training(part, where, why)
    return ""


def in_training(part: nn.Module, where: str, why: str) -> str:
    """Say that a module is in training mode; `why`: what it does there."""
    return (
        f"then= is in training mode, in which its {type(part).__name__} ({where}) {why}, so its results "
        "are not those of a frozen network. Call .eval() on the network first."
    )


def changed(where: str) -> str:
    """Say that numbers have changed; `where`: which."""
    return (
        f"The parameters of then= have changed since tsnb.serve{f' ({where})' if where else ''}, so it is not "
        "frozen: trials would get features of different ages. Compute a part that learns (a momentum encoder) in "
        "the trials. For a part that has finished learning, serve the loader again."
    )


def why_random(part: nn.Module, *, training: bool | None = None) -> str:
    """Return why a module's results are not those of a frozen network; "" where they are.

    Args:
        part: The module, without those in it.
        training: In which mode; by default in its own.
    """
    if not (part.training if training is None else training):
        return ""
    if isinstance(part, _DROPOUT) and getattr(part, "p", True):
        return "draws random numbers"
    if isinstance(part, _INNER_DROPOUT) and part.dropout:
        return "draws random numbers"
    if isinstance(part, _NORM) and (part.track_running_stats or "Batch" in type(part).__name__):
        return "uses and changes the statistics of each batch"
    return ""


def _same_in_both(part: nn.Module) -> bool:
    """Return whether a module of torch's computes the same in both modes."""
    return isinstance(part, (*_DROPOUT, *_INNER_DROPOUT, _NORM)) and not why_random(part, training=True)


@functools.cache
def _minds_its_mode(kind: type[nn.Module]) -> bool:
    """Return whether code of a module's class asks for its mode."""
    own = [each for base in kind.__mro__ if base not in (nn.Module, object) for each in vars(base).values()]
    return any(
        "training" in names_in(each.__code__)[1] for each in own if isinstance(each, types.FunctionType)
    )


def sums_of(network: nn.Module) -> dict[str, Any]:
    """Return a sum over each parameter and buffer of a network, by its name; a change of numbers changes its sum.

    Tensors count their versions, but a change through `.data` or through numpy counts none, and momentum encoders use
    `.data`. A sum reads all numbers. It takes a thirtieth of a hash's time.
    """
    return _network_sums(network, {})


def _network_sums(network: nn.Module, read: dict[Any, Any]) -> dict[str, Any]:
    found = {}
    for name, value in network.state_dict().items():
        if isinstance(value, torch.Tensor) and not isinstance(value, _UNMADE):
            found[name] = _once(value, read)
    return found


def _once(value: torch.Tensor, read: dict[Any, Any]) -> Any:
    """Return a tensor's shape and sum; of one that two networks share it is read once."""
    plain = value.layout is torch.strided and not value.is_quantized
    key = (
        (value.data_ptr(), value.shape, value.stride(), value.dtype) if plain and value.numel() else object()
    )
    if key not in read:
        read[key] = tuple(value.shape), _sum(value)
    return read[key]


def array_sum(array: Any, read: dict[Any, Any]) -> Any:
    """Return the shape and the sum of a tensor or array; of a very large one the sum of parts.

    Args:
        array: The tensor or NumPy array.
        read: Those that were read already.
    """
    if isinstance(array, torch.Tensor):
        plain = array.layout is torch.strided and array.is_cpu
        if not plain or array.numel() * array.element_size() <= WHOLE_BYTES:
            return _once(array, read)
        numbers = bits(array).numpy()
    else:
        numbers = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if len(numbers) <= WHOLE_BYTES:
        return tuple(array.shape), _sum_of(numbers)
    starts = np.linspace(0, len(numbers) - PART_BYTES, PARTS).astype(np.int64).tolist()
    return tuple(array.shape), sum(_sum_of(numbers[start : start + PART_BYTES]) for start in starts)


def _sum(value: torch.Tensor) -> int:
    """Return the sum of a tensor's bytes, read as whole numbers of eight bytes each."""
    if value.is_meta:
        return 0
    value = value.dequantize() if value.is_quantized else value.to_dense()
    plain = bits(value)
    if plain.is_cpu:  # by numpy, which has no threads: torch's own would not outlive the fork of workers
        return _sum_of(plain.numpy())
    whole = len(plain) // 8 * 8
    aligned = plain[:whole].clone().view(torch.int64)  # where it lies: its own device is faster than a copy
    return int(aligned.sum()) + int(plain[whole:].sum())


def _sum_of(numbers: np.ndarray[Any, Any]) -> int:
    whole = len(numbers) // 8 * 8
    return int(numbers[:whole].view(np.uint64).sum()) + int(numbers[whole:].sum())


def bits(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes, uint8 [bytes]."""
    plain = value.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8) if plain.numel() else plain
