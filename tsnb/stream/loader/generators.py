"""What a served loader draws from: a generator of the stream's own, where it would draw from torch's global one.

A script that serves a loader trains in the same process. Its weights and its dropout must be those of the plain script,
so the loading thread leaves the global generators alone. The training's own loop draws what a loop over the plain
loader would draw, at the same moment (`seeds_drawn`).

What a user's code draws in this process itself cannot be moved elsewhere: a data set's without workers, a sampler's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, RandomSampler

from tsnb.draws import draw_seed
from tsnb.stream.loader.repeating import length, sampler_chain

__all__ = ["Seeds", "draw_apart", "drawing_from", "seeds_drawn", "stream_generator"]


class Seeds(NamedTuple):
    """How many seeds `iter(loader)` draws from torch's global generator, in torch's own DataLoader."""

    first: int = 0
    """The first loop."""
    later: int = 0
    """Each loop after it: workers that stay keep theirs."""


def seeds_drawn(loader: Any) -> Seeds:
    """Return what loops over a loader draw; nothing where it is not a DataLoader."""
    if not isinstance(loader, DataLoader):
        return Seeds()
    samplers = sampler_chain(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
    orders = sum(1 for one in samplers if _draws_a_seed(one) and one.generator is None)
    workers = int(loader.generator is None)
    stay = loader.persistent_workers and loader.num_workers > 0
    return Seeds(workers + orders, orders + (0 if stay else workers))


def stream_generator() -> torch.Generator:
    """Return a generator that draws what torch's global one would draw now, and leaves that one alone."""
    generator = torch.Generator()
    generator.set_state(torch.default_generator.get_state())
    return generator


def draw_apart(loader: DataLoader[Any], generator: torch.Generator) -> None:
    """Let a loader draw from this generator in place of torch's global one.

    Args:
        loader: A copy of the user's, which has not been iterated.
        generator: The stream's.
    """
    fields = loader.__dict__
    if loader.generator is None:
        fields["generator"] = generator
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    fields[name] = _apart(fields[name], generator)


def _apart(sampler: Any, generator: torch.Generator) -> Any:
    """Return a copy of a sampler, and of those that it draws from, which draws from this generator if from none."""
    if _draws_a_seed(sampler):
        return sampler if sampler.generator is not None else _SeededAnew(sampler, generator)
    inner = getattr(sampler, "sampler", None)
    own = inner if inner is None else _apart(inner, generator)
    without = getattr(sampler, "generator", sampler) is None
    if own is inner and not without:
        return sampler
    try:
        mine = copy.copy(sampler)
    except TypeError:  # an iterator: it can be used once, by us
        return sampler
    if own is not inner:
        mine.sampler = own
    if without:
        mine.generator = generator
    return mine


def _draws_a_seed(sampler: Any) -> bool:
    """Whether it is torch's own that shuffles, which seeds a generator anew for each epoch."""
    return isinstance(sampler, RandomSampler) and type(sampler).__iter__ is RandomSampler.__iter__


class _SeededAnew:
    """Torch's `RandomSampler` as it shuffles by default, except where its seed is drawn from."""

    def __init__(self, sampler: RandomSampler, generator: torch.Generator) -> None:
        self._sampler = sampler
        self._generator = generator

    def __iter__(self) -> Iterator[int]:
        mine = copy.copy(self._sampler)
        mine.generator = torch.Generator()
        mine.generator.manual_seed(draw_seed(self._generator))
        return iter(mine)

    def __len__(self) -> int:
        return length(self._sampler) or 0


def drawing_from(sampler: Any, generator: torch.Generator) -> Any:
    """Return a copy of a sampler, and of those it draws from, that draws from this generator."""
    try:
        mine = copy.copy(sampler)
    except TypeError:  # an iterator: it can be used once, by us
        return sampler
    if getattr(mine, "sampler", None) is not None:
        mine.sampler = drawing_from(mine.sampler, generator)
    if hasattr(mine, "generator"):
        mine.generator = generator
    return mine
