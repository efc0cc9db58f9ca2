"""The user's own code while it is measured.

`undisturbed` puts random numbers back where they were. `CountedStep` counts how often the step runs. If the step
raises, the error says at which batch and at which line.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from tsnb.errors import TsnbError
from tsnb.native.forks import guard
from tsnb.text.printable import raised_in

__all__ = ["CountedStep", "undisturbed"]


@contextmanager
def undisturbed(loader: Any) -> Iterator[None]:
    """Put random numbers back where they were: a loader without workers draws them in this process, and so does a step.

    And let the user still choose how processes are started, where that was open: the first worker settles it.

    Those of torch (of its GPUs only where one is in use: asking would start CUDA), of Python, of numpy where it is
    imported, and the generators that the loader, its samplers and its dataset have as attributes.

    Args:
        loader: That is gone through meanwhile.
    """
    guard()  # an interrupt while a worker is forked
    numpy: Any = sys.modules.get("numpy")
    back = [_back(generator) for generator in _generators(loader)]
    back += [partial(random.setstate, random.getstate()), partial(torch.set_rng_state, torch.get_rng_state())]
    if numpy is not None:
        back.append(partial(numpy.random.set_state, numpy.random.get_state()))
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch's own
    if in_use:
        back.append(partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    if multiprocessing.get_start_method(allow_none=True) is None:
        back.append(partial(multiprocessing.set_start_method, None, force=True))
    try:
        yield
    finally:
        for put_back in back:
            put_back()
        if not in_use and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            for generator in torch.cuda.default_generators:  # as they were seeded, with nothing drawn
                generator.manual_seed(generator.initial_seed())


def _generators(loader: Any) -> list[Any]:
    """Return the generators that a loader, its samplers and its datasets, one inside another, have; each once."""
    batches = getattr(loader, "batch_sampler", None)
    parts = [loader, batches, getattr(loader, "sampler", None), getattr(batches, "sampler", None)]
    inside = getattr(loader, "dataset", None)
    while inside is not None and all(inside is not part for part in parts):
        parts.append(inside)
        inside = getattr(inside, "dataset", None)
    found = [value for part in parts for value in getattr(part, "__dict__", {}).values()]
    found += [getattr(part, "generator", None) for part in parts]
    return list({id(value): value for value in found if _is_generator(value)}.values())


def _is_generator(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.random.Generator, numpy.random.RandomState)):
        return True
    return isinstance(value, (torch.Generator, random.Random)) and not isinstance(value, random.SystemRandom)


def _back(generator: Any) -> Callable[[], Any]:
    """Return what puts a generator back to where it is now."""
    if isinstance(generator, torch.Generator):
        return partial(generator.set_state, generator.get_state())
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    if hasattr(generator, "set_state"):
        return partial(generator.set_state, generator.get_state())
    bits = generator.bit_generator
    return partial(setattr, bits, "state", bits.state)


Step = Callable[[Any], Any]


class CountedStep:
    """A step that counts how often it runs: it really trains.

    Args:
        step: The user's.
    """

    def __init__(self, step: Step) -> None:
        self.runs = 0
        """How often it was called."""
        self._step = step

    def __call__(self, batch: Any) -> Any:
        """Train on a batch.

        Raises:
            TsnbError: The step raised.
        """
        self.runs += 1
        try:
            return self._step(batch)
        except Exception as error:
            number = "its first batch" if self.runs == 1 else f"its batch {self.runs}"
            raise TsnbError(
                f"the step raised {type(error).__name__} at {number}{raised_in(error)}: {error}\n"
                f"The batch is {_kind(batch)}. Try it alone: step(next(iter(loader)))."
            ) from error


def _kind(value: Any, depth: int = 1) -> str:
    """Return what a batch is, in words: "a list of 2: Tensor [8, 3], Tensor [8]"."""
    if isinstance(value, Mapping):
        parts = [f"{key!r}: {_kind(each, 0)}" for key, each in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [_kind(each, 0) for each in value]
    else:
        shape = getattr(value, "shape", None)
        name = type(value).__name__ + ("" if shape is None else f" {list(shape)}")
        return f"a {name}" if depth else name
    name = f"{type(value).__name__} of {len(parts)}"
    return f"a {name}: {', '.join(parts[:8])}" if depth else name
